"""Memories as JSON lines: one header, then topics, memories and tombstones, one a line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from memory.errors import InvalidMemory
from memory.records import KINDS, YEARS, Draft, Pool, Source, TopicDraft

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memory.records import Memory, Topic

FORMAT = "sessiond-memories"
VERSION = 1
MAX_LINES = 1_000_000


@dataclass(frozen=True, slots=True)
class Portable:
    """What a file holds. Tombstones are hashes of texts that were deleted for good."""

    topics: tuple[TopicDraft, ...]
    drafts: tuple[Draft, ...]
    tombstones: tuple[str, ...]


def render_lines(
    pool: Pool, topics: Iterable[Topic], memories: Iterable[Memory], tombstones: Iterable[str], *, at: datetime
) -> Iterable[str]:
    """One line at a time, each with its line feed. Memories name their topic, not its id."""
    known = list(topics)
    names = {topic.id: topic.name for topic in known}
    yield _line({"format": FORMAT, "version": VERSION, "pool": str(pool), "at": at.isoformat()})
    for topic in known:
        yield _line({"type": "topic", **_topic_fields(topic)})
    for memory in memories:
        yield _line({"type": "memory", **_memory_fields(memory, names)})
    for digest in tombstones:
        yield _line({"type": "tombstone", "sha256": digest})


def parse_lines(content: str, pool: Pool | None) -> Portable:
    """What a file says, for this pool. Raises InvalidMemory, which names the line."""
    topics: list[TopicDraft] = []
    drafts: list[Draft] = []
    stones: list[str] = []
    for number, fields in _objects(content):
        where = f"line {number}"
        try:
            match fields.get("type"):
                case "topic":
                    topics.append(_topic_of(fields))
                case "memory":
                    drafts.append(_draft_of(fields, pool))
                case "tombstone":
                    stones.append(_hash_of(fields))
                case None if "format" in fields:
                    _check_header(fields)
                case other:
                    raise ValueError(f"type {other!r:.40} is not known; there are topic, memory and tombstone")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
            raise InvalidMemory(where, why) from error
    return Portable(tuple(topics), tuple(drafts), tuple(stones))


def _objects(content: str) -> Iterable[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(content.split("\n"), 1):
        if number > MAX_LINES:
            raise InvalidMemory(f"line {number}", f"a file has at most {MAX_LINES} lines; split it")
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidMemory(f"line {number}", f"is no JSON ({error})") from error
        if not isinstance(fields, dict):
            raise InvalidMemory(f"line {number}", "is no JSON object")
        yield number, cast("dict[str, Any]", fields)


def _check_header(fields: Mapping[str, Any]) -> None:
    if fields["format"] != FORMAT or fields.get("version") != VERSION:
        raise ValueError(f"the file is no {FORMAT} of version {VERSION}; export it anew")


def _topic_fields(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "description": topic.description,
        "leave_out": topic.leave_out,
        "bounded": topic.bounded,
        "scope_properties": list(topic.scope_properties),
        "always_on": topic.always_on,
    }


def _topic_of(fields: Mapping[str, Any]) -> TopicDraft:
    return TopicDraft(
        name=_text(fields["name"]),
        description=_text(fields["description"]),
        leave_out=None if fields.get("leave_out") is None else _text(fields["leave_out"]),
        bounded=fields.get("bounded") is True,
        scope_properties=tuple(_text(name) for name in fields.get("scope_properties", ())),
        always_on=fields.get("always_on") is True,
    )


def _memory_fields(memory: Memory, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "text": memory.text,
        "topic": names.get(memory.topic or ""),
        "kind": memory.kind,
        "importance": memory.importance,
        "properties": dict(memory.properties),
        "created_at": memory.created_at.isoformat(),
        "valid_from": memory.valid_from.isoformat(),
    }


def _draft_of(fields: Mapping[str, Any], pool: Pool | None) -> Draft:
    kind = fields.get("kind", "user")
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}")
    importance = fields.get("importance", 5)
    if not isinstance(importance, int):
        raise ValueError("importance is a whole number from 1 to 10")
    return Draft(
        text=_text(fields["text"]),
        topic=None if fields.get("topic") is None else _text(fields["topic"]),
        kind=kind,
        importance=importance,
        pool=pool,
        properties={_text(name): _text(value) for name, value in fields.get("properties", {}).items()},
        source=Source(origin="import"),
        created_at=_time(fields.get("created_at")),
        valid_from=_time(fields.get("valid_from")),
    )


def _hash_of(fields: Mapping[str, Any]) -> str:
    digest = _text(fields["sha256"])
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise ValueError("sha256 is no hash")
    return digest


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} should be a text")
    return value


def _time(value: Any) -> datetime | None:
    if value is None:
        return None
    at = datetime.fromisoformat(_text(value))
    if at.tzinfo is None or at.year not in YEARS:
        raise ValueError(f"{value!r:.40} is no time with a zone")
    return at


def _line(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"
