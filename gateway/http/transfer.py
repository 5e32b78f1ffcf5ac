"""Conversations in and out over HTTP, and the backup."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Literal

from aiohttp import web
from pydantic import BaseModel, Field

from gateway import backup
from gateway.http.auth import owner_of
from gateway.http.problems import Problem, problem_of
from gateway.http.routes import Body, Call, Route, json_answer
from gateway.http.sessions import opened
from gateway.http.turns import checked_sender
from sessions.entries import EPOCH, AssistantEntry, Entry, Header, ToolResultEntry, UserEntry
from sessions.files import StorageError
from sessions.keys import parse_key
from sessions.portable import MEDIA_TYPES, ImportProblem, parse_import, render_export

if TYPE_CHECKING:
    from gateway.parts import Parts
    from sessions.keys import SessionKey
    from sessions.portable import ImportedSession


class ExportQuery(Body):
    format: Literal["jsonl", "markdown", "openai"] = "jsonl"


class ImportIn(Body):
    """A file in one of the known formats, as text. `key` is where its conversation goes."""

    content: str = Field(description="The file's text")
    key: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        default=None, description="Needed unless the file names one; several conversations get `:thread:<n>`"
    )


class ImportedView(BaseModel):
    """Where the conversations went. `left_out` counts records that have no place here, such as system messages."""

    sessions: list[dict[str, Any]]


class BackupIn(Body):
    folder: str = Field(
        pattern=r"^/[^\x00]+$",
        max_length=4096,
        description="Absolute path on the daemon's machine; it must not exist yet",
    )


class BackupView(BaseModel):
    """What was copied."""

    folder: str
    files: int
    size_bytes: int


def routes(parts: Parts) -> list[Route]:
    async def export(call: Call) -> web.Response:
        session = await opened(parts, call)
        query: ExportQuery = call.query
        record = session.record
        header = Header(
            session=record.session,
            generation=record.generation,
            key=record.key,
            agent=record.agent,
            at=record.created_at,
        )
        content = render_export(query.format, header, record.title, await parts.store.everything(session))
        return web.Response(body=content, content_type=MEDIA_TYPES[query.format], charset="utf-8")

    async def take_in(call: Call) -> web.Response:
        body: ImportIn = call.body
        try:
            found = await asyncio.to_thread(parse_import, body.content.encode())
        except ImportProblem as error:
            places = [(f"record {p.record}", p.detail) for p in error.problems]
            raise Problem(422, "Cannot be imported", f"Nothing was imported. {error}", places) from error
        keys = [_key_for(body.key or one.key, n, len(found)) for n, one in enumerate(found, 1)]
        for key in keys:
            checked_sender(parts, call.caller, key, None)
        there = [await _taken_before(parts, key, one) for key, one in zip(keys, found, strict=True)]
        if all(there):
            detail = f"{keys[0]} has a session already; nothing was imported. Choose another key."
            raise Problem(409, "Key in use", detail, [("key", detail)])
        written: list[dict[str, Any]] = []
        for key, one, session_id in zip(keys, found, there, strict=True):
            try:
                session_id = session_id or await _write(parts, call, key, one)
            except StorageError as error:
                raise _cut_short(error, written, len(found)) from error
            told = {"key": str(key), "session": session_id, "entries": len(one.entries), "left_out": one.left_out}
            written.append(told)
        return json_answer({"sessions": written}, 201)

    async def save(call: Call) -> web.Response:
        body: BackupIn = call.body
        try:
            copied = await backup.copy_live(parts, body.folder)
        except backup.BackupRefused as error:
            raise Problem(409, "No backup", str(error), [("folder", str(error))]) from error
        return json_answer(BackupView(folder=copied.folder, files=copied.files, size_bytes=copied.size_bytes), 201)

    return [
        Route(
            method="GET",
            path="/v1/sessions/{key}/export",
            endpoint=export,
            summary="The session as JSONL, Markdown or OpenAI messages",
            tag="transfer",
            query=ExportQuery,
            answers={200: tuple(MEDIA_TYPES.values())},
        ),
        Route(
            method="POST",
            path="/v1/import",
            endpoint=take_in,
            summary="Take over conversations from a file, which is checked first; a repeat goes on where a disk failed",
            tag="transfer",
            body=ImportIn,
            answers={201: ImportedView},
        ),
        Route(
            method="POST",
            path="/v1/backup",
            endpoint=save,
            summary="Copy the data directory while the daemon runs",
            tag="transfer",
            body=BackupIn,
            answers={201: BackupView},
            roles=("admin",),
        ),
    ]


def _key_for(key: str | None, number: int, count: int) -> Any:
    if key is None:
        raise Problem(422, "Invalid request", "The file names no session key: give key.", [("key", "is needed")])
    return parse_key(key if count == 1 else f"{key}:thread:{number}")


async def _write(parts: Parts, call: Call, key: SessionKey, one: ImportedSession) -> str:
    """One conversation, whole or not at all; the id of its session."""
    owner = owner_of(key, None, call.caller, parts.config.sessions.identities)
    session = await parts.store.active(key, owner=owner)
    await parts.prompts.ready()
    drafts = [counted(entry, parts.prompts.count) for entry in one.entries]
    await parts.store.append(session, *drafts, change=lambda record: _titled(record, one.title))
    return session.id


async def _taken_before(parts: Parts, key: SessionKey, one: ImportedSession) -> str | None:
    """The session this conversation went to in an import that was cut short; None when the key is free.

    Raises Problem when the key holds something else.
    """
    record = parts.store.find(key)
    if record is None or (record.entries == 0 and not parts.store.sessions_of(key)):
        return None
    session = await parts.store.open(record.session) if record.entries else None
    begins = [] if session is None else session.entries[: len(one.entries)]
    if [bare(entry) for entry in begins] != [bare(entry) for entry in one.entries]:
        detail = f"{key} has a session already; nothing was imported. Choose another key."
        raise Problem(409, "Key in use", detail, [("key", detail)])
    return record.session


def bare(entry: Entry) -> Entry:
    """What was said, without when and where."""
    return dataclasses.replace(entry, seq=0, id="", turn=None, at=EPOCH, tokens=0)


def _cut_short(error: StorageError, written: list[dict[str, Any]], count: int) -> Problem:
    told = problem_of(error) or Problem(503, "Storage failed", str(error))
    if count == 1:
        return told
    detail = (
        f"{len(written)} of {count} conversations were imported, then: {told.detail} Send the same file again: it goes "
        "on after those."
    )
    return dataclasses.replace(told, detail=detail, extra={"sessions": written})


def counted(entry: Entry, count: Any) -> Entry:
    """The draft with the count of its text."""
    text = entry.text if isinstance(entry, UserEntry | AssistantEntry | ToolResultEntry) else ""
    return dataclasses.replace(entry, tokens=count(text))


def _titled(record: Any, title: str | None) -> Any:
    return record if title is None else dataclasses.replace(record, title=title[:200])
