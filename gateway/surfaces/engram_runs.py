"""Runs of Engram's clients: what became of each write, and what is still to be learnt from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import orjson

from gateway.surfaces.engram_scope import public_id
from memory.records import Source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory.records import Origin

Status = Literal["running", "completed", "failed"]
Who = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One write. `created`, `updated` and `deleted` are ids of memories, as they were committed."""

    id: str
    project: str
    token: str
    group: str
    user_id: str | None
    input_type: str
    status: Status
    error: str | None = None
    note: str | None = None
    at: datetime
    ended_at: datetime | None = None
    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Spoken:
    """A message to learn from."""

    who: Who
    text: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a run is to learn from. `lessons` are the ids of its steps, so that none is taken twice."""

    said: tuple[Spoken, ...]
    properties: Mapping[str, str]
    created_at: datetime | None
    lessons: tuple[str, ...]


def source_of(run: Run, origin: Origin) -> Source:
    return Source(origin=origin, detail=f"engram run {run.id}")


def committed(
    run: Run, *, created: Sequence[str] = (), updated: Sequence[str] = (), deleted: Sequence[str] = ()
) -> Run:
    """What was committed: a memory that was made in this run counts as created, also when it was changed again."""
    made = dict.fromkeys([*run.created, *map(public_id, created)])
    gone = dict.fromkeys([*run.deleted, *map(public_id, deleted)])
    changed = dict.fromkeys([*run.updated, *map(public_id, updated)])
    return dataclasses.replace(
        run,
        created=tuple(one for one in made if one not in gone),
        updated=tuple(one for one in changed if one not in made and one not in gone),
        deleted=tuple(one for one in gone if one not in made),
    )


OPERATIONS = ("created", "updated", "deleted")
PLAIN = ("id", "project", "token", "group", "user_id", "input_type", "status", "error", "note")


def run_to_row(run: Run, work: Work | None) -> dict[str, Any]:
    return {
        **{name: getattr(run, name) for name in PLAIN},
        "at": run.at.isoformat(),
        "ended_at": None if run.ended_at is None else run.ended_at.isoformat(),
        "operations": orjson.dumps({name: getattr(run, name) for name in OPERATIONS}).decode(),
        "work": None if work is None else _work_to_json(work),
    }


def run_from_row(row: Mapping[str, Any]) -> Run:
    operations: dict[str, Any] = {name: tuple(ids) for name, ids in orjson.loads(row["operations"]).items()}
    ended = row["ended_at"]
    return Run(
        **operations | {name: row[name] for name in PLAIN},
        at=datetime.fromisoformat(row["at"]),
        ended_at=None if ended is None else datetime.fromisoformat(ended),
    )


def _work_to_json(work: Work) -> str:
    fields = {
        "said": [[one.who, one.text, one.at.isoformat()] for one in work.said],
        "properties": dict(work.properties),
        "created_at": None if work.created_at is None else work.created_at.isoformat(),
        "lessons": work.lessons,
    }
    return orjson.dumps(fields).decode()


def work_from_json(text: str) -> Work:
    fields = orjson.loads(text)
    created = fields["created_at"]
    return Work(
        said=tuple(Spoken(who, said, datetime.fromisoformat(at)) for who, said, at in fields["said"]),
        properties=fields["properties"],
        created_at=None if created is None else datetime.fromisoformat(created),
        lessons=tuple(fields["lessons"]),
    )
