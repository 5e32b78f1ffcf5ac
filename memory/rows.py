"""Memories, topics and audit entries as rows, and back."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, select, type_coerce

from memory.access import INSTANCE
from memory.records import Audit, Memory, Pool, Source, Topic, folded_name, parse_pool, text_hash
from memory.tables import memories

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES = (
    "valid_from",
    "valid_to",
    "created_at",
    "updated_at",
    "trashed_at",
    "last_recalled_at",
    "checked_at",
)
SOURCE = tuple(one.name for one in dataclasses.fields(Source))
PLAIN = "id topic kind text importance state place current supersedes author recall_count revision".split()


def millis(at: datetime) -> int:
    since = at - EPOCH
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000


def time_of(value: int) -> datetime:
    return EPOCH + timedelta(milliseconds=value)


def whole(at: datetime) -> datetime:
    """A time as it is kept, in whole milliseconds."""
    return time_of(millis(at))


def memory_to_row(memory: Memory) -> dict[str, Any]:
    """All columns but the number, which the database gives. It is also what the audit keeps."""
    return {
        **{name: getattr(memory, name) for name in PLAIN},
        **{name: _millis_or_none(getattr(memory, name)) for name in TIMES},
        "pool": str(memory.pool),
        "text_hash": text_hash(memory.text),
        "properties": dict(memory.properties),
        "source": source_to_json(memory.source),
    }


READ = select(
    *(memories.c[name] for name in (*PLAIN, "pool", *TIMES)),
    *(type_coerce(memories.c[name], Text).label(name) for name in ("properties", "source")),
)
"""What `memory_of` takes; JSON as text, which is mostly the same and is read once."""


def memory_of(row: Sequence[Any]) -> Memory:
    """Many are read in every search, so nothing is checked that was checked when it was written."""
    (id_, topic, kind, text, importance, state, place, current, supersedes, author, recall_count, revision) = row[:12]
    (pool, valid_from, valid_to, created_at, updated_at, trashed_at, recalled_at, checked_at) = row[12:20]
    return Memory(
        id=id_,
        pool=_kept_pool(pool),
        text=text,
        topic=topic,
        kind=kind,
        importance=importance,
        state=state,
        valid_from=time_of(valid_from),
        valid_to=None if valid_to is None else time_of(valid_to),
        supersedes=supersedes,
        current=current,
        place=place,
        properties={} if row[20] == "{}" else json.loads(row[20]),
        source=_kept_source(row[21]),
        author=author,
        created_at=time_of(created_at),
        updated_at=time_of(updated_at),
        trashed_at=None if trashed_at is None else time_of(trashed_at),
        last_recalled_at=None if recalled_at is None else time_of(recalled_at),
        recall_count=recall_count,
        checked_at=None if checked_at is None else time_of(checked_at),
        revision=revision,
    )


def memory_from_row(row: Mapping[Any, Any]) -> Memory:
    """From all columns, with JSON as values: also what the audit keeps."""
    fields: dict[str, Any] = {name: row[name] for name in PLAIN} | {name: _time_or_none(row[name]) for name in TIMES}
    return Memory(
        **fields,
        pool=_kept_pool(row["pool"]),
        properties=dict(row["properties"]),
        source=Source(**row["source"]),
    )


@lru_cache(maxsize=1024)
def _kept_pool(text: str) -> Pool:
    """The pool of a row: it was checked when it was written."""
    kind, _, name = text.partition(":")
    return Pool("user", name) if kind == "user" else Pool("project", name)


@lru_cache(maxsize=1024)
def _kept_source(text: str) -> Source:
    return Source(**json.loads(text))


def source_to_json(source: Source) -> dict[str, Any]:
    return {name: value for name in SOURCE if (value := getattr(source, name)) is not None}


def topic_to_row(topic: Topic) -> dict[str, Any]:
    return {
        "id": topic.id,
        "owner": owner_name(topic.owner),
        "name": topic.name,
        "name_folded": folded_name(topic.name),
        "description": topic.description,
        "leave_out": topic.leave_out,
        "bounded": topic.bounded,
        "scope_properties": list(topic.scope_properties),
        "always_on": topic.always_on,
        "project": topic.project,
        "created_at": millis(topic.created_at),
        "updated_at": millis(topic.updated_at),
    }


def topic_from_row(row: Mapping[Any, Any]) -> Topic:
    return Topic(
        id=row["id"],
        owner=None if row["owner"] == INSTANCE else parse_pool(row["owner"]),
        name=row["name"],
        description=row["description"],
        leave_out=row["leave_out"],
        bounded=row["bounded"],
        scope_properties=tuple(row["scope_properties"]),
        always_on=row["always_on"],
        project=row["project"],
        created_at=time_of(row["created_at"]),
        updated_at=time_of(row["updated_at"]),
    )


def audit_from_row(row: Mapping[Any, Any]) -> Audit:
    return Audit(
        **{
            name: row[name]
            for name in "id operation memory row action origin author why before after undone_by".split()
        },
        pool=parse_pool(row["pool"]),
        at=time_of(row["at"]),
    )


def owner_name(owner: Pool | None) -> str:
    return INSTANCE if owner is None else str(owner)


def _time_or_none(value: int | None) -> datetime | None:
    return None if value is None else time_of(value)


def _millis_or_none(at: datetime | None) -> int | None:
    return None if at is None else millis(at)
