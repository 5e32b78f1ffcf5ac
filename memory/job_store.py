"""Jobs on memory as rows: what was started is known after a kill, and its owner alone sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select, update

from memory.access import INSTANCE, own_scope, readable
from memory.errors import NotThere
from memory.jobs import MemoryJob
from memory.records import parse_pool
from memory.rows import millis, owner_name, time_of, whole
from memory.tables import jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from sqlalchemy.ext.asyncio import AsyncConnection

    from memory.database import Records
    from memory.records import Pool, Viewer

PLAIN = "id kind state automatic asked place model done total failed counts problem".split()


class JobStore:
    """The jobs of everybody, read through a viewer."""

    def __init__(self, records: Records, *, new_id: Callable[[], str], now: Callable[[], datetime]) -> None:
        self._records = records
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
