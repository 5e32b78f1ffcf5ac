"""The daily sweep of memories that are nearly forgotten; a thing of the scheduler."""

from __future__ import annotations

from datetime import time
from typing import TYPE_CHECKING

import structlog

from gateway.scheduler import NotNow
from memory.errors import MemoryUnavailable
from sessions.resets import next_boundary

if TYPE_CHECKING:
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from gateway.vectors import Opener
    from memory.memory import Memories
    from memory.policy import RetentionPolicy

log = structlog.get_logger()

NEXT_SWEEP = "next sweep"


class Retention:
    """Sweeps once a day, and again when the cap leaves room for what is due still. The time of the next sweep is kept
    in the records: a restart changes nothing, and a sweep that fell into a time without a daemon is made up for."""

    name = "retention"

    def __init__(self, memory: Opener, policy: RetentionPolicy, zone: ZoneInfo) -> None:
        self._memory = memory
        self._policy = policy
        self._zone = zone
        self._next_at: datetime | None = None

    def next_due(self, now: datetime) -> datetime | None:
        if not self._policy.enabled:
            return None
        return now if self._next_at is None else min(self._next_at, self._boundary(now))

    async def run_due(self, now: datetime) -> None:
        try:
            memories = await self._memory.open()
            if self._next_at is None:
                self._next_at = await self._load(memories, now)
            if self._next_at <= now:
                await self._sweep(memories, now)
        except MemoryUnavailable as error:
            raise NotNow(str(error)) from error

    async def _load(self, memories: Memories, now: datetime) -> datetime:
        """When the next sweep is due; a new store has its first at the next time of day."""
        known = await memories.store.noted(NEXT_SWEEP)
        if known is None:
            known = self._boundary(now)
            await memories.store.note(NEXT_SWEEP, known)
        return min(known, self._boundary(now))

    async def _sweep(self, memories: Memories, now: datetime) -> None:
        swept = await memories.sweep(self._policy)
        boundary = self._boundary(now)
        next_at = boundary if swept.more_at is None else min(boundary, max(swept.more_at, now))
        await memories.store.note(NEXT_SWEEP, next_at)
        self._next_at = next_at
        if swept.trashed:
            log.info("retention.swept", memories=len(swept.trashed), next_at=next_at.isoformat())

    def _boundary(self, now: datetime) -> datetime:
        return next_boundary(time.fromisoformat(self._policy.daily_at), self._zone, now)
