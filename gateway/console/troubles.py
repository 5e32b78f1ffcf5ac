"""What needs a person: failed jobs, dead deliveries, failed summaries, damaged files."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compaction.triggers import CompactionState
from gateway.http.auth import may_see
from gateway.jobs.store import JobsClosed
from sessions.entries import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.http.auth import Caller
    from gateway.jobs.values import Delivery, Job
    from gateway.parts import Parts
    from sessions.record import SessionRecord

MOST = 10
WAIT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """`kind` is a text of the overview; `path` is where it can be put right, below /console, in parts."""

    kind: str
    name: str
    detail: str
    path: tuple[str, ...]


async def troubles(parts: Parts, caller: Caller, records: Sequence[SessionRecord]) -> list[Trouble]:
    """At most MOST of a kind; jobs and deliveries for administrators only."""
    return [
        *(await _of_jobs(parts) if caller.role == "admin" else []),
        *of_summaries(records),
        *of_files([one for one in parts.store.damaged() if may_see(caller, one.key, one.owner)]),
    ]


async def _of_jobs(parts: Parts) -> list[Trouble]:
    """Nothing while `state.db` cannot be read: the page says so of the parts."""
    try:
        async with asyncio.timeout(WAIT_S):
            jobs = await parts.jobs.book.all()
            dead = await parts.jobs.store.deliveries(status="dead", limit=MOST)
    except (JobsClosed, TimeoutError):
        return []
    return [*of_jobs(jobs), *of_deliveries(dead)]


def of_jobs(jobs: Sequence[Job]) -> list[Trouble]:
    """Jobs that were switched off after failures, and those whose last run failed."""
    failed = [job for job in jobs if job.disabled is not None or job.failures]
    return [
        Trouble(
            kind="trouble_job", name=job.policy.name, detail=job.disabled or f"{job.failures}×", path=("jobs", job.id)
        )
        for job in failed[:MOST]
    ]


def of_deliveries(dead: Sequence[Delivery]) -> list[Trouble]:
    return [
        Trouble(
            kind="trouble_delivery",
            name=one.target.shown,
            detail=one.error or "",
            path=("jobs?status=dead#deliveries",),
        )
        for one in dead
    ]


def of_summaries(records: Sequence[SessionRecord]) -> list[Trouble]:
    """Sessions whose last summaries failed."""
    found = [(record, CompactionState.from_json(record.compaction)) for record in records if record.compaction]
    return [
        Trouble(
            kind="trouble_summary",
            name=record.title or record.key,
            detail=state.error or "",
            path=("sessions", record.key),
        )
        for record, state in found
        if state.failures
    ][:MOST]


def of_files(records: Sequence[SessionRecord]) -> list[Trouble]:
    return [
        Trouble(kind="trouble_file", name=record.title or record.key, detail="", path=("sessions", record.key))
        for record in records[:MOST]
    ]


def summarised_on(days: Sequence[str]) -> Callable[[bytes], bool]:
    """Whether a row may be of a session that was summarised on one of these UTC days, or whose last summary failed;
    told by its bytes, since there are very many."""
    marks = [b'"at":"%b' % day.encode() for day in days]
    return lambda row: b'"compaction":' in row and (b'"failures":0' not in row or any(mark in row for mark in marks))


def summaries_on(records: Sequence[SessionRecord], day: str) -> int:
    """How many of these sessions were summarised last on a UTC day."""
    states = [CompactionState.from_json(record.compaction) for record in records if record.compaction]
    return sum(state.at is not None and not state.failures and format_time(state.at)[:10] == day for state in states)
