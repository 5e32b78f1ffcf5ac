"""Deletes the sessions of runs when their time is over; the records of the runs stay."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from gateway.jobs.store import JobsClosed
from gateway.scheduler import NotNow
from sessions.files import StorageError
from sessions.keys import parse_key
from sessions.session import SessionGone

if TYPE_CHECKING:
    from gateway.clock import Clock
    from gateway.jobs.store import JobStore
    from gateway.jobs.values import Run
    from gateway.turns import Turns

log = structlog.get_logger()

EVERY_S = 300.0
AT_ONCE = 50
DEAD_KEPT = timedelta(days=30)


class Upkeep:
    """Sessions of runs go `retention` after the end, unless their reply is still to be delivered."""

    def __init__(self, *, store: JobStore, turns: Turns, clock: Clock, retention: timedelta | None) -> None:
        self._store = store
        self._turns = turns
        self._clock = clock
        self._retention = retention

    async def run(self) -> None:
        """Deletes what is over. Raises NotNow."""
        try:
            await self.tidy()
        except (JobsClosed, StorageError) as error:
            raise NotNow(str(error)) from error

    async def tidy(self) -> int:
        """Deletes what is over. Returns how many sessions went. Raises JobsClosed and StorageError."""
        now = self._clock.now()
        await self._store.forget_deliveries(now - DEAD_KEPT)
        gone = 0
        while self._retention is not None:
            expired = await self._store.expired_runs(now - self._retention, limit=AT_ONCE)
            for run in expired:
                gone += await self._delete(run)
            if len(expired) < AT_ONCE:
                break
        if gone:
            log.info("run_sessions.deleted", count=gone)
        return gone

    async def _delete(self, run: Run) -> bool:
        deleted = False
        if run.session is not None:
            try:
                await self._turns.forget(parse_key(run.key), [run.session])
                deleted = True
            except SessionGone:
                log.debug("run_session.gone", run=run.id)
        await self._store.let_go(run)
        return deleted
