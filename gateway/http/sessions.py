"""Sessions: listed, read, changed, ended, and kept for frontends that call their model themselves."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from gateway.http.auth import may_see, only_owner, owner_of, speaker_of
from gateway.http.json import clean
from gateway.http.problems import Problem, not_found
from gateway.http.routes import Body, Call, Route, json_answer
from gateway.http.turns import RequestId, checked_sender, fingerprint, idempotency_key
from gateway.http.views import (
    EntryPageView,
    EntryView,
    SessionPageView,
    SessionView,
    entry_view,
    session_view,
)
from gateway.models import anthropic_wire, openai_wire
from gateway.turn import Incoming, reading_json
from sessions.entries import AssistantEntry, Entry, PinnedEntry, ToolCall, ToolResultEntry, UserEntry
from sessions.keys import parse_key
from sessions.listing import PageQuery, SessionSort
from sessions.policy import Composed, QueueMode, ResetOverride
from sessions.usage import Usage

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.parts import Parts
    from sessions.keys import SessionKey
    from sessions.record import SessionRecord
    from sessions.session import Session

CLEARED_WAIT_S = 5.0
"""How long a deletion waits until no byte of it is in the archive's files; then it answers, and that goes on."""

Text = Annotated[str, Field(max_length=4_000_000)]
Name = Annotated[str, Field(min_length=1, max_length=512)]


class ListQuery(Body):
    limit: Annotated[int, Field(ge=1, le=500)] = 50
    cursor: Annotated[str, Field(max_length=100)] | None = None
    agent: Name | None = None
    channel: Name | None = None
    type: Literal["main", "direct", "group", "channel", "sub", "cron", "hook"] | None = None
    archived: bool = False
    q: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="Part of the key or the title"
    )
    sort: SessionSort = Field(
        default="active",
        description="Last used first; `idle`: longest unused first; all others: highest first, of the 20,000 used last",
    )


class TranscriptQuery(Body):
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    before: Annotated[int, Field(ge=1, le=2**53)] | None = Field(
        default=None, description="Only entries with a lower seq"
    )
    session: Annotated[str, Field(min_length=26, max_length=26)] | None = Field(
        default=None, description="A former session of this key"
    )


class SessionPatch(Body):
    """What a person may set; a field given as null goes back to the configured value."""

    title: Annotated[str, Field(max_length=200)] | None = None
    model: Name | None = None
    queue_mode: QueueMode | None = None
    reset: ResetOverride | None = None
    notes: bool | None = None
    archived: bool | None = None
    pinned: bool | None = None


class ResumeIn(Body):
    session: Annotated[str, Field(min_length=26, max_length=26)] = Field(description="Id of the former session")


class ForkIn(Body):
    to: Name = Field(description="Key of the copy; it must have no session yet")
    through: Annotated[int, Field(ge=1, le=2**53)] | None = Field(
        default=None, description="Last seq to copy; all when left out"
    )


class PinIn(Body):
    seq: Annotated[int, Field(ge=1, le=2**53)]
    pinned: bool = True


class ToolCallIn(Body):
    id: Name
    name: Name
    arguments: Text = "{}"


class UsageIn(Body):
    input_total: Annotated[int, Field(ge=0, le=2**40)] = 0
    cached_read: Annotated[int, Field(ge=0, le=2**40)] = 0
    cache_write: Annotated[int, Field(ge=0, le=2**40)] = 0
    output: Annotated[int, Field(ge=0, le=2**40)] = 0
    reasoning: Annotated[int, Field(ge=0, le=2**40)] = 0


class UserIn(Body):
    role: Literal["user"]
    text: Text
    sender: Annotated[Composed, Field(min_length=1, max_length=512)] | None = None
    sender_name: Name | None = None


class AssistantIn(Body):
    role: Literal["assistant"]
    text: Text = ""
    tool_calls: list[ToolCallIn] = Field(default_factory=list[ToolCallIn], max_length=200)
    model: Name | None = None
    usage: UsageIn | None = None


class ToolIn(Body):
    role: Literal["tool"]
    call_id: Name
    name: Name = "tool"
    text: Text
    is_error: bool = False


EntryIn = Annotated[UserIn | AssistantIn | ToolIn, Field(discriminator="role")]


class EntriesIn(Body):
    """What was said, in order: all of it is written, or nothing."""

    entries: list[EntryIn] = Field(min_length=1, max_length=1000)
    request_id: RequestId | None = Field(default=None, description="The same id again stores nothing twice")


class EntriesView(BaseModel):
    """The entries as they are on disk."""

    session: str
    entries: list[EntryView]


class PromptQuery(Body):
    form: Literal["openai", "anthropic"] = "openai"


class PromptView(BaseModel):
    """The assembled prompt, ready to be sent to a model."""

    session: str
    form: str
    request: dict[str, Any]


class ContextPart(BaseModel):
    """One part of the next prompt, in tokens of our own count."""

    name: str
    tokens: int


class ContextReport(BaseModel):
    """What the next prompt consists of: by our own count, and in the model's tokens."""

    session: str
    parts: list[ContextPart]
    estimated: int
    context: dict[str, Any]


class HistoryView(BaseModel):
    """All sessions of a key, the active one first."""

    key: str
    sessions: list[SessionView]


class CompactIn(Body):
    instructions: Annotated[str, Field(max_length=4000)] | None = Field(
        default=None, description="What the summary should keep in mind"
    )


class CompactedView(BaseModel):
    """What came of it, in words, and the generation the session is in now."""

    outcome: str
    generation: int


class StoppedView(BaseModel):
    """Whether a running reply was stopped."""

    stopped: bool


class DeletedView(BaseModel):
    """How many sessions of the key are gone for good."""

    deleted: int


def visible(parts: Parts, call: Call) -> SessionRecord:
    """The record of the path's key: after a reset the ended session's, until something is said in the next one.

    Raises Problem when there is none, or the caller may not see it.
    """
    record = parts.store.find(call.key)
    if record is not None and record.entries == 0:
        record = next(iter(parts.store.sessions_of(call.key)), None)
    if record is None or not may_see(call.caller, record.key, record.owner):
        raise not_found("session")
    return record


async def opened(parts: Parts, call: Call) -> Session:
    return await parts.store.open(visible(parts, call).session)


async def next_spoken_in(parts: Parts, call: Call) -> Session:
    """The session the next message goes to: after a reset a new one, with nothing in it."""
    visible(parts, call)
    return await parts.store.active(call.key)


class SessionEndpoints:
    """What is done with sessions; one method for each route of the table below."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def list_sessions(self, call: Call) -> web.Response:
        query: ListQuery = call.query
        found, cursor = await self._parts.store.index.page_beside(
            PageQuery(
                limit=query.limit,
                cursor=query.cursor,
                state="archived" if query.archived else "active",
                agent=query.agent,
                channel=query.channel,
                type=query.type,
                search=None if query.q is None else query.q.casefold(),
                allowed=None if call.caller.role == "admin" else lambda key, owner: may_see(call.caller, key, owner),
                owner=only_owner(call.caller),
                sort=query.sort,
            )
        )
        return json_answer({"sessions": [session_view(record) for record in found], "next": cursor})

    async def show(self, call: Call) -> web.Response:
        record = visible(self._parts, call)
        running, waiting = self._parts.turns.lane_state(record.session)
        queue = {"running": [turn.id for turn in running], "waiting": [turn.id for turn in waiting]}
        return json_answer({**session_view(record), "queue": queue})

    async def change(self, call: Call) -> web.Response:
        session, patch = await opened(self._parts, call), call.body
        if patch.model is not None:
            self._parts.models.choose(session.record.agent, patch.model)
        await self._parts.store.update(session, lambda record: patched(record, patch))
        if patch.archived is not None:
            await self._move(call, session.id, archived=patch.archived)
        self._parts.timer.consider(session.record)
        following = await self._parts.store.active(call.key)
        if following is not session:
            settings = session.record.settings
            await self._parts.store.update(following, lambda record: dataclasses.replace(record, settings=settings))
        return json_answer(session_view(session.record))

    async def _move(self, call: Call, session_id: str, *, archived: bool) -> None:
        """Into the archive, or out of it."""
        if not archived:
            await self._parts.turns.restore(call.key, session_id)
        elif not await self._parts.turns.archive(call.key, session_id):
            raise Problem(409, "Busy", "A reply is still being written. Wait for it or stop it, then archive.")

    async def delete(self, call: Call) -> web.Response:
        visible(self._parts, call)
        doomed = self._parts.store.sessions_of(call.key)
        await self._parts.turns.forget(call.key, [former.session for former in doomed])
        if await self._parts.archive.cleared(CLEARED_WAIT_S):
            await self._parts.said.cleared(CLEARED_WAIT_S)
        return json_answer(DeletedView(deleted=len(doomed)))

    async def reset(self, call: Call) -> web.Response:
        record = visible(self._parts, call)
        incoming = Incoming(text="/reset", user=record.owner, role=call.caller.role)
        turn = await self._parts.turns.start(call.key, incoming)
        await turn.done()
        following = self._parts.store.find(call.key)
        return json_answer(session_view(following or record))

    async def stop(self, call: Call) -> web.Response:
        return json_answer(
            StoppedView(stopped=await self._parts.turns.stop_session(visible(self._parts, call).session))
        )

    async def compact(self, call: Call) -> web.Response:
        session = await opened(self._parts, call)
        body: CompactIn = call.body
        outcome = await self._parts.compactor.compact(session, body.instructions)
        return json_answer({"outcome": outcome, "generation": session.record.generation})

    async def resume(self, call: Call) -> web.Response:
        current = await opened(self._parts, call)
        body: ResumeIn = call.body
        if body.session not in {record.session for record in self._parts.store.sessions_of(call.key)}:
            raise not_found("former session")
        running, waiting = self._parts.turns.lane_state(current.id)
        if running or waiting:
            raise Problem(409, "Busy", "A reply is still being written. Wait for it or stop it, then resume.")
        former = await self._parts.store.resume(current, body.session)
        return json_answer(session_view(former.record))

    async def fork(self, call: Call) -> web.Response:
        session = await opened(self._parts, call)
        body: ForkIn = call.body
        key = parse_key(body.to)
        checked_sender(self._parts, call.caller, key, None)
        if self._parts.store.find(key) is not None:
            raise Problem(409, "Key in use", f"{key} has a session already. Choose another key.")
        copied = [unstamped(e) for e in session.entries if copyable(e) and e.seq <= (body.through or e.seq)]
        if not copied:
            raise Problem(409, "Nothing to copy", "There is no message up to that seq.")
        target = await self._parts.store.active(
            key, owner=owner_of(key, None, call.caller, self._parts.config.sessions.identities)
        )
        await self._parts.store.append(target, *copied)
        return json_answer(session_view(target.record), 201)

    async def pin(self, call: Call) -> web.Response:
        session = await opened(self._parts, call)
        body: PinIn = call.body
        if not any(e.seq == body.seq for e in session.entries):
            raise Problem(404, "Not found", f"There is no message with seq {body.seq} in this generation.")
        refusal = self._parts.compactor.pin_refusal(session, body.seq) if body.pinned else None
        if refusal is not None:
            raise Problem(409, "Cannot be pinned", refusal, [("seq", refusal)])
        (entry,) = await self._parts.store.append(session, PinnedEntry(of=body.seq, pinned=body.pinned))
        return json_answer(entry_view(entry))

    async def transcript(self, call: Call) -> web.Response:
        query: TranscriptQuery = call.query
        record = visible(self._parts, call)
        wanted = query.session or record.session
        if wanted not in {known.session for known in self._parts.store.sessions_of(call.key)}:
            raise not_found("former session")
        session = await self._parts.store.open(wanted)
        entries = session.entries
        if session.record.generation > 1 and (query.before is not None or len(entries) <= query.limit):
            entries = await self._parts.store.everything(session)
        older = [e for e in entries if query.before is None or e.seq < query.before]
        shown = older[-query.limit :]
        before = shown[0].seq if len(older) > len(shown) else None
        return json_answer({"session": session.id, "entries": [entry_view(entry) for entry in shown], "before": before})

    async def history(self, call: Call) -> web.Response:
        visible(self._parts, call)
        return json_answer(
            {
                "key": str(call.key),
                "sessions": [session_view(record) for record in self._parts.store.sessions_of(call.key)],
            }
        )

    async def context(self, call: Call) -> web.Response:
        session = await next_spoken_in(self._parts, call)
        await self._parts.prompts.ready()
        counted = self._parts.prompts.parts(session)
        return json_answer(
            {
                "session": session.id,
                "parts": [{"name": name, "tokens": tokens} for name, tokens in counted],
                "estimated": sum(tokens for _, tokens in counted),
                "context": reading_json(self._parts.gauge.reading(session)),
            }
        )

    async def append(self, call: Call) -> web.Response:
        key = call.key
        sender = checked_sender(self._parts, call.caller, key, None)
        owner = owner_of(key, sender, call.caller, self._parts.config.sessions.identities)
        body: EntriesIn = call.body
        await self._parts.prompts.ready()
        drafts = [self._spoken(call, key, draft_of(entry, self._parts.prompts.count)) for entry in body.entries]
        request_id = body.request_id or idempotency_key(call.request)
        sha256 = fingerprint(body, key) if request_id else None
        session, written = await self._parts.turns.record(key, owner, drafts, request_id, sha256)
        return json_answer({"session": session.id, "entries": [entry_view(entry) for entry in written]}, 201)

    def _spoken(self, call: Call, key: SessionKey, draft: Entry) -> Entry:
        """With the person whose words they are, where that is known."""
        if not isinstance(draft, UserEntry):
            return draft
        user = speaker_of(key, draft.sender, call.caller, self._parts.config.sessions.identities)
        return dataclasses.replace(draft, user=user)

    async def prompt(self, call: Call) -> web.Response:
        query: PromptQuery = call.query
        session = await next_spoken_in(self._parts, call)
        waiting = frozenset(session.open)
        built = self._parts.prompts.build(session, waiting, Incoming(text=""), tools=False)  # it could not run ours
        model = self._parts.models.choose(session.record.agent, session.record.settings.model)
        render = openai_wire.render if query.form == "openai" else anthropic_wire.render
        request = render(built.prompt, model=model.model, load_blob=self._parts.blobs.load)
        return json_answer({"session": session.id, "form": query.form, "request": request})


def routes(parts: Parts) -> list[Route]:
    """The table of addresses under /v1/sessions."""
    at = SessionEndpoints(parts)

    def route(method: str, path: str, endpoint: Any, summary: str, answers: dict[int, Any], **more: Any) -> Route:
        return Route(
            method=method,
            path=f"/v1/sessions{path}",
            endpoint=endpoint,
            summary=summary,
            tag="sessions",
            answers=answers,
            **more,
        )

    return [
        route("GET", "", at.list_sessions, "Sessions, newest activity first", {200: SessionPageView}, query=ListQuery),
        route("GET", "/{key}", at.show, "One session", {200: SessionView}),
        route("PATCH", "/{key}", at.change, "Change settings of a session", {200: SessionView}, body=SessionPatch),
        route("DELETE", "/{key}", at.delete, "Delete all sessions of a key for good", {200: DeletedView}),
        route("POST", "/{key}/reset", at.reset, "End the session and start a new one", {200: SessionView}),
        route("POST", "/{key}/stop", at.stop, "Stop the reply that is being written", {200: StoppedView}),
        route(
            "POST",
            "/{key}/compact",
            at.compact,
            "Summarise the earlier part of the conversation",
            {200: CompactedView},
            body=CompactIn,
            body_optional=True,
        ),
        route("POST", "/{key}/resume", at.resume, "Go back to a former session", {200: SessionView}, body=ResumeIn),
        route("POST", "/{key}/fork", at.fork, "Copy a conversation to another key", {201: SessionView}, body=ForkIn),
        route("POST", "/{key}/pin", at.pin, "Keep a message through compactions", {200: EntryView}, body=PinIn),
        route("GET", "/{key}/transcript", at.transcript, "What was said", {200: EntryPageView}, query=TranscriptQuery),
        route("GET", "/{key}/history", at.history, "All sessions of a key", {200: HistoryView}),
        route("GET", "/{key}/context", at.context, "What the next prompt consists of", {200: ContextReport}),
        route("POST", "/{key}/entries", at.append, "Store what was said elsewhere", {201: EntriesView}, body=EntriesIn),
        route("GET", "/{key}/prompt", at.prompt, "The assembled prompt", {200: PromptView}, query=PromptQuery),
    ]


def patched(record: SessionRecord, patch: SessionPatch) -> SessionRecord:
    """The record with the fields the patch names; the others stay."""
    given = patch.model_fields_set
    settings = dataclasses.replace(
        record.settings,
        **{name: getattr(patch, name) for name in ("model", "queue_mode", "reset") if name in given},
        **({"notes": patch.notes is not False} if "notes" in given else {}),
    )
    changed = dataclasses.replace(record, settings=settings)
    if "model" in given and settings.model != record.settings.model:
        changed = dataclasses.replace(changed, context_tokens=None, window=None)  # those of the other model
    if "title" in given:
        changed = dataclasses.replace(changed, title=patch.title)
    if patch.pinned is not None:
        changed = dataclasses.replace(changed, pinned=patch.pinned)
    return changed


def copyable(entry: Entry) -> bool:
    return isinstance(entry, UserEntry | AssistantEntry | ToolResultEntry)


def unstamped(entry: Entry) -> Entry:
    """A draft with the content and time of an entry, free of its old turn."""
    loose = dataclasses.replace(entry, seq=0, id="", turn=None)
    if isinstance(loose, UserEntry | AssistantEntry | ToolResultEntry):
        return dataclasses.replace(loose, request_id=None, request_sha256=None)
    return loose


def draft_of(entry: UserIn | AssistantIn | ToolIn, count: Any) -> Entry:
    """The draft of an entry a frontend stores."""
    match entry:
        case UserIn():
            return UserEntry(
                text=clean(entry.text), sender=entry.sender, sender_name=entry.sender_name, tokens=count(entry.text)
            )
        case AssistantIn():
            calls = tuple(ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in entry.tool_calls)
            return AssistantEntry(
                text=entry.text,
                calls=calls,
                model=entry.model,
                usage=None if entry.usage is None else Usage(**entry.usage.model_dump()),
                finish="client_tools" if calls else "stop",
                tokens=count(entry.text + "".join(call.arguments for call in calls)),
            )
        case ToolIn():
            return ToolResultEntry(
                call_id=entry.call_id,
                name=entry.name,
                text=entry.text,
                is_error=entry.is_error,
                tokens=count(entry.text),
            )
