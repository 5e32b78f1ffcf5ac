"""Where jobs, runs and deliveries are kept: `state.db`. What belongs together is written in one transaction."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from pydantic import ValidationError

from gateway.jobs.policy import REVEAL
from gateway.jobs.reading import job_aside, reason_of
from gateway.jobs.values import OPEN, Delivery, DeliveryStatus, Job, Run, RunKind
from gateway.opening import Opening, told_by

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
    from pathlib import Path

    from pydantic import TypeAdapter
    from sqlalchemy import Table
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

log = structlog.get_logger()

T = TypeVar("T", Job, Run, Delivery)
BATCH = 50
WAIT_S = 10.0
"""How long a write waits for those before it; as long as SQLite waits for other parts of the daemon."""
NOTED = ""  # names no key; with it the table says that nothing else is followed


@dataclass(frozen=True, slots=True)
class HookCall:
    """By which id a repeat of a call is recognised: the header that named it, and what it said."""

    hook: str
    kind: str
    value: str
    run: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Up to which seq the replies of a session are in the outbox."""

    session: str
    seq: int


class JobsClosed(Exception):
    """`state.db` cannot be used now; the message says what to do."""


@asynccontextmanager
async def in_turn(lock: asyncio.Lock, wait_s: float) -> AsyncGenerator[None]:
    """Writes come one after the other. Without a limit each would wait as long for a locked file as all before it.

    Raises JobsClosed.
    """
    try:
        async with asyncio.timeout(wait_s):
            await lock.acquire()
    except TimeoutError as error:
        raise JobsClosed("state.db is being written to by others for long now. Try again in a moment.") from error
    try:
        yield
    finally:
        lock.release()


class JobStore:
    """Opened behind the start of the daemon; whoever comes earlier waits. Raises JobsClosed."""

    def __init__(self, path: Path, *, wait_s: float = WAIT_S) -> None:
        self._path = path
        self.wait_s = wait_s
        self._engine: AsyncEngine | None = None
        self._opening = Opening("jobs opening", self._connect)
        self._opened = asyncio.Event()
        self._writing = asyncio.Lock()
        self._adapters: dict[type[Any], TypeAdapter[Any]] = {}
        self.problem: str | None = None
        self.unread: set[str] = set()
        self.after_save: list[Callable[[Sequence[Run], Sequence[Delivery]], None]] = []

    async def open(self) -> None:
        """Creates the tables that are missing. Raises JobsClosed."""
        try:
            self._engine = await self._opening.opened()
        except Exception as error:
            raise self._closed(error) from error
        self.problem = None
        self._opened.set()

    async def _connect(self) -> AsyncEngine:
        database = await asyncio.to_thread(_import_database)
        from gateway.jobs.tables import metadata

        return await database.open_database(self._path, metadata, synchronous="FULL")

    async def close(self) -> None:
        engine = await self._opening.settled()
        if engine is not None:
            await engine.dispose()

    def _closed(self, error: Exception) -> Exception:
        """Faults of ours stay what they are."""
        from sqlalchemy.exc import DBAPIError

        if not isinstance(error, DBAPIError | OSError):
            return error
        self.problem = f"state.db cannot be used now ({told_by(error)}). Try again; free space if it is full."
        return JobsClosed(self.problem)

    @asynccontextmanager
    async def _connected(self, *, write: bool = False) -> AsyncGenerator[AsyncConnection, None]:
        if self._engine is None and self.problem is not None:
            raise JobsClosed(self.problem)
        await self._opened.wait()
        assert self._engine is not None  # noqa: S101
        try:
            if write:
                async with in_turn(self._writing, self.wait_s), self._engine.begin() as connection:
                    yield connection
            else:
                async with self._engine.connect() as connection:
                    yield connection
        except Exception as error:
            raise self._closed(error) from error
        self.problem = None

    # --- writing --------------------------------------------------------------------------------------------------

    async def save(
        self,
        *,
        jobs: Sequence[Job] = (),
        removed: Sequence[str] = (),
        runs: Sequence[Run] = (),
        deliveries: Sequence[Delivery] = (),
        calls: Sequence[HookCall] = (),
        marks: Sequence[Mark] = (),
    ) -> None:
        """All or nothing, and on disk when it returns; then `after_save` is told. `removed`: ids of jobs."""
        from gateway.jobs.tables import calls_table, deliveries_table, jobs_table, marks_table, runs_table

        async with self._connected(write=True) as connection:
            if removed:
                await connection.execute(jobs_table.delete().where(jobs_table.c.id.in_(removed)))
            written: list[tuple[Table, Sequence[Any], Callable[[Any], dict[str, Any]]]] = [
                (jobs_table, jobs, self._job_row),
                (runs_table, runs, self._run_row),
                (deliveries_table, deliveries, self._delivery_row),
                (calls_table, calls, _call_row),
                (marks_table, marks, dataclasses.asdict),
            ]
            for table, values, row_of in written:
                for start in range(0, len(values), BATCH):
                    rows = [row_of(value) for value in values[start : start + BATCH]]
                    await connection.execute(_upsert(table), rows)
        for told in self.after_save:
            told(runs, deliveries)

    async def let_go(self, run: Run) -> None:
        """The session of a run that has ended is gone; nobody is told."""
        from gateway.jobs.tables import runs_table

        async with self._connected(write=True) as connection:
            row = self._run_row(dataclasses.replace(run, own_session=False))
            await connection.execute(_upsert(runs_table), [row])

    def _job_row(self, job: Job) -> dict[str, Any]:
        return {"id": job.id, "name": job.policy.name, "body": self._text(job)}

    def _run_row(self, run: Run) -> dict[str, Any]:
        return {
            "id": run.id,
            "kind": run.kind,
            "owner": run.owner,
            "status": run.status,
            "ended": None if run.ended_at is None else millis(run.ended_at),
            "own_session": int(run.own_session),
            "body": self._text(run),
        }

    def _delivery_row(self, delivery: Delivery) -> dict[str, Any]:
        return {
            "id": delivery.id,
            "line": line_of(delivery),
            "status": delivery.status,
            "next": millis(delivery.next_at),
            "run": delivery.run,
            "body": self._text(delivery),
        }

    # --- reading --------------------------------------------------------------------------------------------------

    async def jobs(self) -> list[Job]:
        """All jobs, in the order they were made. One that cannot be read here is among them, set aside."""
        from gateway.jobs.tables import jobs_table

        async with self._connected() as connection:
            rows = (await connection.execute(jobs_table.select().order_by(jobs_table.c.id))).all()
        return [self._job(row.id, row.name, row.body) for row in rows]

    def _job(self, job_id: str, name: str, body: str) -> Job:
        try:
            return self._adapter(Job).validate_json(body)
        except ValidationError as error:
            return job_aside(job_id, name, body, error)

    async def run(self, run_id: str) -> Run | None:
        from gateway.jobs.tables import runs_table

        found = await self._values(Run, runs_table, runs_table.select().where(runs_table.c.id == run_id))
        return found[0] if found else None

    async def runs(self, kind: RunKind, owner: str, *, limit: int, before: str | None = None) -> list[Run]:
        """Newest first; `before`: an id to go on after."""
        from gateway.jobs.tables import runs_table

        table = runs_table.c
        query = runs_table.select().where(table.kind == kind, table.owner == owner)
        if before is not None:
            query = query.where(table.id < before)
        return await self._values(Run, runs_table, query.order_by(table.id.desc()).limit(limit))

    async def open_runs(self) -> list[Run]:
        """Runs that wait or were going, oldest first."""
        from gateway.jobs.tables import runs_table

        query = runs_table.select().where(runs_table.c.status.in_(OPEN)).order_by(runs_table.c.id)
        return await self._values(Run, runs_table, query)

    async def expired_runs(self, ended_before: datetime, *, limit: int) -> list[Run]:
        """Runs whose own sessions are still there, with nothing left to deliver."""
        from gateway.jobs.tables import deliveries_table, runs_table

        table = runs_table.c
        undelivered = (
            deliveries_table.select()
            .with_only_columns(deliveries_table.c.run)
            .where(deliveries_table.c.status != "delivered", deliveries_table.c.run.is_not(None))
        )
        query = runs_table.select().where(
            table.own_session == 1, table.ended < millis(ended_before), table.id.not_in(undelivered)
        )
        return await self._values(Run, runs_table, query.order_by(table.ended).limit(limit))

    async def known_call(self, hook: str, ids: Iterable[tuple[str, str]]) -> Run | None:
        """The first run that was opened by a call with one of these (kind, id)."""
        from gateway.jobs.tables import calls_table

        async with self._connected() as connection:
            for kind, value in ids:
                row = _call_row(HookCall(hook, kind, value, ""))
                query = calls_table.select().where(
                    *(calls_table.c[name] == row[name] for name in ("hook", "kind", "value"))
                )
                found = (await connection.execute(query)).first()
                if found is not None:
                    return await self.run(found.run)
        return None

    async def delivery(self, delivery_id: str) -> Delivery | None:
        from gateway.jobs.tables import deliveries_table

        query = deliveries_table.select().where(deliveries_table.c.id == delivery_id)
        found = await self._values(Delivery, deliveries_table, query)
        return found[0] if found else None

    async def deliveries(
        self, *, status: DeliveryStatus | None, run: str | None = None, limit: int, before: str | None = None
    ) -> list[Delivery]:
        """Newest first."""
        from gateway.jobs.tables import deliveries_table

        table = deliveries_table.c
        query = deliveries_table.select()
        if status is not None:
            query = query.where(table.status == status)
        if run is not None:
            query = query.where(table.run == run)
        if before is not None:
            query = query.where(table.id < before)
        return await self._values(Delivery, deliveries_table, query.order_by(table.id.desc()).limit(limit))

    async def heads(self) -> list[Delivery]:
        """The oldest pending delivery of every line, the next ones that may be sent."""
        from sqlalchemy import func, select

        from gateway.jobs.tables import deliveries_table

        table = deliveries_table.c
        oldest = select(func.min(table.id)).where(table.status == "pending").group_by(table.line)
        query = deliveries_table.select().where(table.id.in_(oldest)).order_by(table.next)
        return await self._values(Delivery, deliveries_table, query)

    async def delivery_states(self, runs: Sequence[str]) -> dict[str, DeliveryStatus]:
        """How the deliveries of runs stand; runs without one are left out."""
        from sqlalchemy import select

        from gateway.jobs.tables import deliveries_table

        query = select(deliveries_table.c.run, deliveries_table.c.status).where(deliveries_table.c.run.in_(runs))
        async with self._connected() as connection:
            return {row[0]: row[1] for row in (await connection.execute(query)).all()}

    async def forget_deliveries(self, ended_before: datetime) -> None:
        """Deliveries that were sent, or given up, so long ago."""
        from gateway.jobs.tables import deliveries_table

        table = deliveries_table.c
        async with self._connected(write=True) as connection:
            await connection.execute(
                deliveries_table.delete().where(table.status != "pending", table.next < millis(ended_before))
            )

    async def mark(self, session: str) -> int | None:
        """Up to which seq the replies of a session are in the outbox."""
        from gateway.jobs.tables import marks_table

        async with self._connected() as connection:
            query = marks_table.select().where(marks_table.c.session == session)
            found = (await connection.execute(query)).first()
        return None if found is None else int(found.seq)

    async def follow(self, prefixes: Collection[str], now: datetime) -> dict[str, datetime]:
        """Since when each of these prefixes is followed: new ones from `now` on. Others are followed no longer.

        A database in which replies were followed before this was noted has followed them for ever.
        """
        from gateway.jobs.tables import follows_table, marks_table

        async with self._connected(write=True) as connection:
            known = {row.prefix: row.since for row in await connection.execute(follows_table.select())}
            older = not known and (await connection.execute(marks_table.select().limit(1))).first() is not None
            since = {prefix: known.get(prefix, 0 if older else millis(now)) for prefix in prefixes}
            rows = [{"prefix": prefix, "since": at} for prefix, at in (since | {NOTED: 0}).items()]
            await connection.execute(follows_table.delete())
            await connection.execute(follows_table.insert(), rows)
        return {prefix: datetime.fromtimestamp(at / 1000, UTC) for prefix, at in since.items()}

    async def _values(self, kind: type[T], table: Table, query: Any) -> list[T]:
        """What cannot be read is told, and left where it is."""
        async with self._connected() as connection:
            rows = (await connection.execute(query.with_only_columns(table.c.id, table.c.body))).all()
        values: list[T] = []
        for row in rows:
            try:
                values.append(self._adapter(kind).validate_json(row.body))
            except ValidationError as error:
                self._tell_unread(f"{table.name} {row.id}", error)
        return values

    def _tell_unread(self, place: str, error: ValidationError) -> None:
        if place not in self.unread:
            self.unread.add(place)
            log.error("jobs.row_not_read", place=place, why=reason_of(error))

    def _text(self, value: Job | Run | Delivery) -> str:
        return self._adapter(type(value)).dump_json(value, exclude_defaults=True, context=REVEAL).decode()

    def _adapter(self, kind: type[Any]) -> TypeAdapter[Any]:
        from pydantic import TypeAdapter

        if kind not in self._adapters:
            self._adapters[kind] = TypeAdapter(kind)
        return self._adapters[kind]


def _import_database() -> Any:
    import gateway.database

    return gateway.database


@cache
def _upsert(table: Table) -> Any:
    from sqlalchemy.dialects.sqlite import insert

    statement = insert(table)
    keys = [column.name for column in table.primary_key]
    changed = {column.name: statement.excluded[column.name] for column in table.columns if column.name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=changed)


def _call_row(call: HookCall) -> dict[str, Any]:
    """Ids are senders' texts of any length; what is kept of them is a hash."""
    value = hashlib.sha256(call.value.encode("utf-8", "replace")).hexdigest()
    return {"hook": call.hook, "kind": call.kind, "value": value, "run": call.run}


def line_of(delivery: Delivery) -> str:
    """What is sent in order: everything from one session to one target."""
    target = delivery.target.url or delivery.target.session
    return hashlib.sha256(f"{delivery.key}\n{target}".encode()).hexdigest()


def millis(at: datetime) -> int:
    """Milliseconds since 1970."""
    return int(at.timestamp() * 1000)
