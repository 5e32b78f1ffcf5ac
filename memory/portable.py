"""Memories as JSON lines: one header, then topics, memories and tombstones, one a line."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from memory.encodings import whole_text
from memory.errors import InvalidMemory
from memory.records import KINDS, YEARS, Draft, Pool, Source, TopicDraft

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from memory.records import Memory, Topic

FORMAT = "sessiond-memories"
VERSION = 2
VERSIONS = (1, 2)
"""1 did not say which project a topic is bound to."""

MAX_LINES = 1_000_000
MAX_LINE_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The hash of a text that was deleted for good."""

    digest: str


Item: TypeAlias = "TopicDraft | Draft | Tombstone"


def render_lines(
    pool: Pool, topics: Iterable[Topic], memories: Iterable[Memory], tombstones: Iterable[str], *, at: datetime
) -> Iterator[str]:
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


def parse_lines(lines: Iterable[bytes], pool: Pool | None) -> Iterator[tuple[str, Item]]:
    """Each line of a file and what it holds, for this pool. Raises InvalidMemory, which names the line."""
    for where, fields in _objects(lines):
        with at_line(where):
            item = _item_of(fields, pool)
        if item is not None:
            yield where, item


@contextmanager
def at_line(where: str) -> Generator[None]:
    """Whatever is wrong inside is told with its line, as InvalidMemory."""
    try:
        yield
    except InvalidMemory as error:
        raise InvalidMemory(where, f"{error.field}: {error.why}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidMemory(where, _words(error)) from error


def _words(error: KeyError | TypeError | ValueError | AttributeError) -> str:
    match error:
        case KeyError():
            return f"{error.args[0]!r} is missing"
        case ValueError():
            return str(error).rstrip(".")
        case _:
            return "a field holds another kind of value than an export has; correct the line, or export anew"


def _item_of(fields: Mapping[str, Any], pool: Pool | None) -> Item | None:
    match fields.get("type"):
        case "topic":
            return _topic_of(fields)
        case "memory":
            return _draft_of(fields, pool)
        case "tombstone":
            return Tombstone(_hash_of(fields))
        case None if "format" in fields:
            return _check_header(fields)
        case other:
            raise ValueError(f"type {other!r:.40} is not known; there are topic, memory and tombstone")


def _objects(lines: Iterable[bytes]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(lines, 1):
        where = f"line {number}"
        if number > MAX_LINES:
            raise InvalidMemory(where, f"a file has at most {MAX_LINES} lines; split it")
        if len(line) > MAX_LINE_BYTES:
            raise InvalidMemory(where, f"has more than {MAX_LINE_BYTES} bytes")
        text = line.removeprefix(BOM_UTF8) if number == 1 else line
        if not text.strip():
            continue
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            at = f" from character {error.colno} on" if isinstance(error, json.JSONDecodeError) else ""
            raise InvalidMemory(where, f"is no JSON{at}; correct the line, or export the file anew") from error
        if not isinstance(fields, dict):
            raise InvalidMemory(where, "is no JSON object")
        yield where, cast("dict[str, Any]", fields)


def _check_header(fields: Mapping[str, Any]) -> None:
    if fields["format"] != FORMAT or fields.get("version") not in VERSIONS:
        raise ValueError(f"the file is no {FORMAT} of version {VERSION} or older; export it anew")


def _topic_fields(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "description": topic.description,
        "leave_out": topic.leave_out,
        "bounded": topic.bounded,
        "scope_properties": list(topic.scope_properties),
        "always_on": topic.always_on,
        "project": topic.project,
    }


def _topic_of(fields: Mapping[str, Any]) -> TopicDraft:
    return TopicDraft(
        name=_text(fields["name"]),
        description=_text(fields["description"]),
        leave_out=None if fields.get("leave_out") is None else _text(fields["leave_out"]),
        bounded=fields.get("bounded") is True,
        scope_properties=tuple(_text(name) for name in fields.get("scope_properties", ())),
        always_on=fields.get("always_on") is True,
        project=None if fields.get("project") is None else _text(fields["project"]),
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
    return whole_text(value)


def _time(value: Any) -> datetime | None:
    if value is None:
        return None
    at = datetime.fromisoformat(_text(value))
    if at.tzinfo is None or at.year not in YEARS:
        raise ValueError(f"{value!r:.40} is no time with a zone")
    return at


def _line(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"
