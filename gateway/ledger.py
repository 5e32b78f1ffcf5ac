"""The usage ledger: one row for every model call, written behind the replies, never lost with a session."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import structlog

from gateway.opening import Opening, told_by
from sessions.usage import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from pathlib import Path

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from gateway.clock import Clock
    from gateway.replies import CallNote

log = structlog.get_logger()

PICO = 10**12
FLUSH_S = 0.5
RETRY_S = 5.0

UsageGroup = Literal["day", "model", "user", "agent", "key", "session", "role"]
USAGE_GROUPS: tuple[UsageGroup, ...] = ("day", "model", "user", "agent", "key", "session", "role")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """The spend of one group of calls. `cost` covers the calls with a known price; `unpriced` counts the others."""

    group: dict[str, str | None]
    calls: int
    usage: Usage
    cost: Decimal | None
    unpriced: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFilter:
    """Which rows a report covers; None: all."""

    since: datetime | None = None
    until: datetime | None = None
    key: str | None = None
    user: str | None = None
    session: str | None = None
    keys: Callable[[str], bool] | None = None


class LedgerClosed(Exception):
    """The ledger could not be opened yet; try again in a moment."""


class UsageLedger:
    """Opens `state.db` behind the start of the daemon: SQLAlchemy takes a third of a second to import."""

    def __init__(self, path: Path, clock: Clock, price: Callable[[str, str, Usage], Decimal | None]) -> None:
        self._path = path
        self._clock = clock
        self._price = price
        self._engine: AsyncEngine | None = None
        self._opened = asyncio.Event()
        self._pending: list[tuple[int, CallNote]] = []
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._opening = Opening("ledger opening", self._connect)
        self.problem: str | None = None

    def cost(self, model_name: str, model: str, usage: Usage) -> Decimal | None:
        """The price of one call; None when it is unknown, never 0 for that."""
        return self._price(model_name, model, usage)

    def note(self, call: CallNote, *, at: datetime | None = None) -> None:
        """Queues one row; noting the same call id again changes nothing."""
        moment = self._clock.now() if at is None else at
        self._pending.append((_millis(moment), call))
        self._wake.set()

    async def run(self) -> None:
        """Writes queued rows in batches. A locked or full database delays them; replies go on."""
        while True:
            try:
                await self._opening.opened()
                await self._wake.wait()
                self._wake.clear()
                await self.flush()
                self.problem = None
                await self._clock.sleep(FLUSH_S)
            except OSError as error:
                await self._pause(error)
            except Exception as error:
                if not _is_database_error(error):
                    raise
                await self._pause(error)

    async def _pause(self, error: Exception) -> None:
        self.problem = f"state.db cannot be written ({type(error).__name__}); {len(self._pending)} usage rows wait."
        log.warning("ledger.not_written", error=told_by(error), waiting=len(self._pending))
        self._wake.set()
        await self._clock.sleep(RETRY_S)

    async def _connect(self) -> AsyncEngine:
        database = await asyncio.to_thread(_import_database)
        engine: AsyncEngine = await database.open_database(self._path)
        self._engine = engine
        self._opened.set()
        return engine

    async def flush(self) -> None:
        """Writes what is queued; rows stay queued when that fails."""
        async with self._writing:
            await self._flush()

    async def _flush(self) -> None:
        if not self._pending or self._engine is None:
            return
        from sqlalchemy.dialects.sqlite import insert

        from gateway.database import cause_table, usage_table

        batch = self._pending[:500]
        causes = [{"id": call.id, "cause": call.cause} for _, call in batch if call.cause is not None]
        async with self._engine.begin() as connection:
            await connection.execute(
                insert(usage_table).on_conflict_do_nothing(), [_row(at, call) for at, call in batch]
            )
            if causes:
                await connection.execute(insert(cause_table).on_conflict_do_nothing(), causes)
        del self._pending[: len(batch)]
        if self._pending:
            self._wake.set()

    async def stop(self) -> None:
        """Writes the rest and closes. What cannot be written is taken from the transcripts at the next start."""
        try:
            if self._pending or self._opening.begun:
                await self._opening.opened()
            while self._pending:
                await self.flush()
        except Exception as error:
            if not isinstance(error, OSError) and not _is_database_error(error):
                raise
            log.warning("ledger.not_written", error=told_by(error), waiting=len(self._pending))
        if self._engine is not None:
            await self._engine.dispose()

    async def latest(self) -> datetime | None:
        """When the newest row was written; None when there is none. Raises LedgerClosed."""
        await self._opened_here()  # before the imports: in this thread they would wait for those of the opening
        from sqlalchemy import func, select

        from gateway.database import usage_table

        async with self._reading() as connection:
            newest = (await connection.execute(select(func.max(usage_table.c.at)))).scalar()
        return None if newest is None else datetime.fromtimestamp(newest / 1000, UTC)

    async def report(self, by: Sequence[UsageGroup], wanted: UsageFilter) -> list[UsageRow]:
        """Spend in groups, in the order of their names. Days are UTC days. Raises LedgerClosed."""
        from sqlalchemy import func, select

        from gateway.database import usage_table

        table = usage_table.c
        day = func.strftime("%Y-%m-%d", table.at / 1000, "unixepoch")
        columns = [(day if name == "day" else table[name]).label(name) for name in by]
        sums = [func.coalesce(func.sum(table[name]), 0) for name in _COUNTERS]
        query = select(
            *columns,
            func.count(),
            *sums,
            func.sum(table.cost_pico),
            func.count(table.cost_pico),
            func.min(table.reported),
        ).group_by(*columns)
        async with self._reading() as connection:
            conditions = await _conditions(connection, wanted)
            rows = (await connection.execute(query.where(*conditions))).all()
        return _told(by, rows)

    async def causes(self, wanted: UsageFilter) -> dict[str, int]:
        """Calls by why the provider's cache broke; `none`: it did not. Raises LedgerClosed."""
        from sqlalchemy import func, select

        from gateway.database import cause_table, usage_table

        cause = cause_table.c
        query = select(cause.cause, func.count()).where(usage_table.c.id == cause.id).group_by(cause.cause)
        async with self._reading() as connection:
            conditions = await _conditions(connection, wanted)
            rows = (await connection.execute(query.where(*conditions))).all()
        return {str(name): int(calls) for name, calls in rows}

    async def _opened_here(self) -> AsyncEngine:
        """Raises LedgerClosed when the database is known not to open."""
        if self.problem is not None and self._engine is None:
            raise LedgerClosed(self.problem)
        await self._opened.wait()
        assert self._engine is not None  # noqa: S101
        return self._engine

    @asynccontextmanager
    async def _reading(self) -> AsyncGenerator[AsyncConnection, None]:
        """A connection that sees every row noted so far. Raises LedgerClosed, also for a full or broken disk."""
        engine = await self._opened_here()
        try:
            while self._pending:
                await self.flush()
            async with engine.connect() as connection:
                yield connection
        except Exception as error:
            if not _is_database_error(error):
                raise
            raise LedgerClosed(
                f"state.db cannot be used now ({told_by(error)}). Try again; free space if it is full."
            ) from error


_COUNTERS = ("input_total", "cached_read", "cache_write", "output", "reasoning")


def _import_database() -> Any:
    import gateway.database

    return gateway.database


def _is_database_error(error: Exception) -> bool:
    from sqlalchemy.exc import DBAPIError

    return isinstance(error, DBAPIError)


def _millis(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _row(at: int, call: CallNote) -> dict[str, Any]:
    return {
        "id": call.id,
        "at": at,
        "session": call.session,
        "key": call.key,
        "user": call.user,
        "agent": call.agent,
        "role": call.role,
        "model_name": call.model_name,
        "model": call.model,
        **{name: getattr(call.usage, name) for name in _COUNTERS},
        "reported": call.usage.reported,
        "cost_pico": None if call.cost is None else int(call.cost * PICO),
        "duration_s": call.duration_s,
    }


async def _conditions(connection: AsyncConnection, wanted: UsageFilter) -> list[Any]:
    """What holds of the rows a report covers. The keys somebody may know of are chosen before anything is counted:
    counted key by key, a year of many chats would be a million rows."""
    from sqlalchemy import func, select

    from gateway.database import usage_table

    table = usage_table.c
    out: list[Any] = []
    if wanted.since is not None:
        out.append(table.at >= _millis(wanted.since))
    if wanted.until is not None:
        out.append(table.at < _millis(wanted.until))
    for name in ("key", "user", "session"):
        value = getattr(wanted, name)
        if value is not None:
            out.append(table[name] == value)
    if wanted.keys is not None:
        every = (await connection.execute(select(table.key).where(*out).distinct())).scalars()
        among = json.dumps([key for key in every if wanted.keys(key)])
        out.append(table.key.in_(select(func.json_each(among).table_valued("value").c.value)))
    return out


def _told(by: Sequence[UsageGroup], rows: Sequence[Any]) -> list[UsageRow]:
    """Groups as values, in the order of their names."""
    at = len(by)
    out: list[UsageRow] = []
    for row in sorted(rows, key=lambda row: tuple(str(part) for part in row[:at])):
        calls, *sums = (int(value) for value in row[at : at + 1 + len(_COUNTERS)])
        pico, priced, reported = row[at + 1 + len(_COUNTERS) :]
        out.append(
            UsageRow(
                group=dict(zip(by, row[:at], strict=True)),
                calls=calls,
                usage=Usage(**dict(zip(_COUNTERS, sums, strict=True)), reported=bool(reported)),
                cost=Decimal(int(pico)) / PICO if priced else None,
                unpriced=calls - int(priced),
            )
        )
    return out
