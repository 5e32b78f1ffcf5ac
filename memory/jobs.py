"""Work on memory that goes on in the background: one job, what it has done so far, and how it ended."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from memory.records import Action, Audit, Memory, Pool

JobState = Literal["running", "done", "incomplete", "failed", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryJob:
    """One run of a kind of job. `pool` None: it concerns the whole instance, and is an administrator's.

    `place` is where it goes on after a kill, in the kind's own words; `asked` what it was started with.
    `done` only where nothing failed; what left something out is `incomplete`.
    """

    id: str
    kind: str
    pool: Pool | None
    state: JobState = "running"
    automatic: bool = False
    asked: Mapping[str, Any] = field(default_factory=dict[str, Any])
    place: Mapping[str, Any] = field(default_factory=dict[str, Any])
    started_at: datetime
    ended_at: datetime | None = None
    model: str | None = None
    done: int = 0
    total: int = 0
    failed: int = 0
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    problem: str | None = None
    undone_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobUndone:
    """What an undo of a job's changes came to. `left` memories or topics stay: somebody has changed them since."""

    job: MemoryJob
    memories: list[Memory]
    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """What a job did to one memory: before its first step, after its last. None: it was not there, or is gone for good.

    `undone`: this was taken back since.
    """

    memory: str
    action: Action
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    undone: bool


def changes_of(entries: Iterable[Audit]) -> list[JobChange]:
    """Of a job's audit entries, the oldest first; former versions that were only kept are left out."""
    found: dict[str, JobChange] = {}
    for entry in entries:
        first = entry.before or entry.after
        if first is not None and first["state"] == "superseded":
            continue
        known = found.get(entry.row)
        before = entry.before if known is None else known.before
        found[entry.row] = JobChange(
            memory=entry.row,
            action=entry.action,
            before=before,
            after=entry.after,
            undone=entry.undone_by is not None,
        )
    return list(found.values())


def count_changes(entries: Iterable[tuple[str, str | None, str | None]]) -> dict[str, int]:
    """How many memories were added, changed, merged into others, and deleted.

    Of a job's audit entries, the oldest first: each as row, state before and state after. Former versions that were
    only kept are left out, and what was deleted for good.
    """
    first: dict[str, str | None] = {}
    last: dict[str, str | None] = {}
    for row, before, after in entries:
        if (before or after) != "superseded":
            first.setdefault(row, before)
            last[row] = after
    counts: dict[str, int] = dict.fromkeys(("added", "changed", "merged", "deleted"), 0)
    for row, state in last.items():
        if state is not None:
            gone = {"superseded": "merged", "trashed": "deleted"}.get(state)
            counts[gone or ("added" if first[row] is None else "changed")] += 1
    return {name: count for name, count in counts.items() if count}


def ended(job: MemoryJob, now: datetime, **fields: Any) -> MemoryJob:
    """The job when its work has returned: what left something out is no success."""
    fields.setdefault("state", "incomplete" if job.failed else "done")
    return dataclasses.replace(job, ended_at=now, **fields)
