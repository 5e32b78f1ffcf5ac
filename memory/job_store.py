"""Jobs on memory as rows: what was started is known after a kill, and its owner alone sees it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, insert, select, update

from memory.access import INSTANCE, own_scope, readable
from memory.errors import MemoryConflict, NotThere
from memory.jobs import JobUndone, MemoryJob, changes_of, count_changes
from memory.operation import Operation, count_rows
from memory.records import parse_pool
from memory.rows import audit_from_row, memory_from_row, millis, owner_name, time_of, whole
from memory.tables import audit, jobs, memories
from memory.topic_history import bring_back_topics, topic_counts, undo_job_topics
from memory.undo import undo_job_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy.ext.asyncio import AsyncConnection

    from memory.database import Records
    from memory.fulltext import FullText
    from memory.jobs import JobChange
    from memory.records import Memory, Pool, Viewer

KEPT_JOBS = 500
PLAIN = "id kind state automatic asked place model done total failed counts problem".split()


class JobStore:
    """The jobs of everybody, read through a viewer, with what they have done to memories."""

    def __init__(
        self, records: Records, fulltext: FullText, *, new_id: Callable[[], str], now: Callable[[], datetime]
    ) -> None:
        self._records = records
        self._fulltext = fulltext
        self._new_id = new_id
        self._now = now

    async def begin(
        self, kind: str, pool: Pool | None, *, asked: Mapping[str, Any], automatic: bool
    ) -> tuple[MemoryJob, bool]:
        """A new job, and True; or the one of its kind and pool that runs already, and False."""
        same = jobs.c.kind == kind, jobs.c.pool == owner_name(pool), jobs.c.state == "running"
        async with self._records.writing() as connection:
            row = (await connection.execute(select(jobs).where(*same))).mappings().first()
            if row is not None:
                return job_from_row(row), False
            job = MemoryJob(
                id=self._new_id(),
                kind=kind,
                pool=pool,
                asked=dict(asked),
                automatic=automatic,
                started_at=whole(self._now()),
            )
            await connection.execute(insert(jobs).values(job_to_row(job)))
            await _forget_oldest(connection, pool)
        return job, True

    async def put(self, job: MemoryJob) -> None:
        """Writes how far a job is."""
        async with self._records.writing() as connection:
            await put_job(connection, job)

    async def load(self, viewer: Viewer, job_id: str) -> MemoryJob:
        """Raises NotThere."""
        async with self._records.reading() as connection:
            return await load_job(connection, viewer, job_id)

    async def page(
        self, viewer: Viewer, *, kind: str | None = None, pool: Pool | None = None, limit: int = 50
    ) -> list[MemoryJob]:
        """The newest first; those of a pool, where one is named."""
        meant = own_scope(viewer, jobs.c.pool) if pool is None else jobs.c.pool == str(pool)
        query = select(jobs).where(readable(viewer, jobs.c.pool), meant).order_by(jobs.c.id.desc()).limit(limit)
        if kind is not None:
            query = query.where(jobs.c.kind == kind)
        async with self._records.reading() as connection:
            return [job_from_row(row) for row in (await connection.execute(query)).mappings()]

    async def running(self) -> list[MemoryJob]:
        """What a daemon that ended has left, the oldest first. For upkeep only."""
        query = select(jobs).where(jobs.c.state == "running").order_by(jobs.c.id)
        async with self._records.reading() as connection:
            return [job_from_row(row) for row in (await connection.execute(query)).mappings()]

    async def last(self, kind: str, pool: Pool | None) -> MemoryJob | None:
        """The newest job of its kind, whatever came of it. For upkeep only."""
        same = jobs.c.kind == kind, jobs.c.pool == owner_name(pool)
        async with self._records.reading() as connection:
            row = (await connection.execute(select(jobs).where(*same).order_by(jobs.c.id.desc()))).mappings().first()
        return None if row is None else job_from_row(row)

    # --- what jobs have done to memories ------------------------------------------------------------------------------

    async def changes(self, viewer: Viewer, job_id: str, *, limit: int = 5000) -> list[JobChange]:
        """What a job did to each memory, in the order in which it came to them."""
        wanted = audit.c.job == job_id, readable(viewer, audit.c.pool)
        query = select(audit).where(*wanted).order_by(audit.c.id).limit(limit)
        async with self._records.reading() as connection:
            return changes_of([audit_from_row(row) for row in (await connection.execute(query)).mappings()])

    async def counts(self, job_id: str) -> dict[str, int]:
        """How many memories and topics a job has added, changed, merged into others and deleted. For upkeep only."""
        states = (side["state"].as_string() for side in (audit.c.before, audit.c.after))
        query = select(audit.c.row, *states).where(audit.c.job == job_id).order_by(audit.c.id)
        counts = await self._records.read(
            lambda connection: count_changes((row[0], row[1], row[2]) for row in connection.execute(query))
        )
        async with self._records.reading() as connection:
            return counts | await topic_counts(connection, job_id)

    async def undo(self, viewer: Viewer, job_id: str) -> JobUndone:
        """Takes back what a job has changed, but for what somebody has changed since; all in one transaction.

        Raises NotThere, and MemoryConflict for a job that runs or was undone before.
        """
        async with self._records.writing() as connection:
            operation = Operation(connection, self._fulltext, viewer, name=self._new_id(), now=self._now())
            job = await load_job(connection, viewer, job_id)
            if job.state == "running":
                raise MemoryConflict("This job still runs. Stop it first.")
            if job.undone_at is not None:
                raise MemoryConflict("This job was undone already.")
            topics_back, not_back = await bring_back_topics(connection, job_id)
            back, left = await undo_job_changes(operation, self._fulltext, job_id)
            topics_undone, topics_left = await undo_job_topics(operation, job_id)
            left += topics_left + not_back
            if not back and not left and not topics_back and not topics_undone:
                raise MemoryConflict("This run has changed nothing, so there is nothing to undo.")
            job = dataclasses.replace(job, undone_at=operation.now)
            await put_job(connection, job)
        return JobUndone(job, back, left)

    async def unchecked(self, pool: Pool, job: MemoryJob, *, limit: int) -> tuple[list[Memory], int]:
        """Some of the memories that a job has not looked at yet, and how many there are. For upkeep only.

        What somebody has written since the job began is left to the next one.
        """
        touched = select(audit.c.memory).where(audit.c.job == job.id)
        fresh = (
            memories.c.pool == str(pool),
            memories.c.state == "active",
            memories.c.checked_at.is_(None),
            memories.c.updated_at <= millis(job.started_at),
            memories.c.id.not_in(touched),
            memories.c.id.not_in(list(job.place.get("failed", ()))),
        )
        query = select(memories).where(*fresh).order_by(memories.c.topic, memories.c.number).limit(limit)
        async with self._records.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
            return [memory_from_row(row) for row in rows], await count_rows(connection, *fresh)

    async def mark_checked(self, viewer: Viewer, read: Sequence[Memory]) -> None:
        """Marks memories that are still as they were read. Nothing else of them changes, so it is no change."""
        async with self._records.writing() as connection:
            for memory in read:
                same = memories.c.id == memory.id, memories.c.revision == memory.revision
                mine = readable(viewer, memories.c.pool), memories.c.state == "active"
                await connection.execute(update(memories).where(*same, *mine).values(checked_at=millis(self._now())))


async def _forget_oldest(connection: AsyncConnection, pool: Pool | None) -> None:
    """Of a pool's jobs that have ended `KEPT_JOBS` stay; what they changed stays in the history of the memories."""
    mine = jobs.c.pool == owner_name(pool), jobs.c.state != "running"
    oldest = select(jobs.c.id).where(*mine).order_by(jobs.c.id.desc()).offset(KEPT_JOBS).limit(1)
    last = (await connection.execute(oldest)).scalar()
    if last is not None:
        await connection.execute(delete(jobs).where(*mine, jobs.c.id <= last))


async def put_job(connection: AsyncConnection, job: MemoryJob) -> None:
    await connection.execute(update(jobs).where(jobs.c.id == job.id).values(job_to_row(job)))


async def load_job(connection: AsyncConnection, viewer: Viewer, job_id: str) -> MemoryJob:
    """Raises NotThere."""
    query = select(jobs).where(jobs.c.id == job_id, readable(viewer, jobs.c.pool))
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise NotThere("job")
    return job_from_row(row)


def job_to_row(job: MemoryJob) -> dict[str, Any]:
    plain = {name: getattr(job, name) for name in PLAIN}
    times = {name: getattr(job, name) for name in ("started_at", "ended_at", "undone_at")}
    return {
        **plain,
        **{name: None if at is None else millis(at) for name, at in times.items()},
        "pool": owner_name(job.pool),
        "asked": dict(job.asked),
        "place": dict(job.place),
        "counts": dict(job.counts),
    }


def job_from_row(row: Mapping[Any, Any]) -> MemoryJob:
    plain: dict[str, Any] = {name: row[name] for name in PLAIN}
    times: dict[str, Any] = {
        name: None if row[name] is None else time_of(row[name]) for name in ("started_at", "ended_at", "undone_at")
    }
    return MemoryJob(**plain, **times, pool=None if row["pool"] == INSTANCE else parse_pool(row["pool"]))
