"""When memories are tidied by themselves: for whom, and whether enough has happened since the last time."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import structlog

from gateway.consolidation import Consolidation
from gateway.scheduler import NotNow
from memory.errors import InvalidMemory, MemoryProblem, MemoryUnavailable
from memory.records import Viewer, user_pool
from sessions.entries import UserEntry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from gateway.memory_jobs import MemoryJobs
    from gateway.vectors import Opener
    from memory.memory import Memories
    from memory.policy import ConsolidationPolicy
    from memory.records import Pool
    from sessions.entries import Entry
    from sessions.session import Session

log = structlog.get_logger()

SETTING = "consolidation.enabled"
CONVERSATIONS = "consolidation.conversations"
"""The sessions in which a person has spoken since the last run, as far as they have to be counted."""
EVERY = timedelta(minutes=15)


class ConsolidationGates:
    """A thing of the scheduler. Conversations are counted as they happen, and kept in the records."""

    name = "consolidation"

    def __init__(self, memory: Opener, jobs: MemoryJobs, policy: ConsolidationPolicy) -> None:
        self._memory = memory
        self._jobs = jobs
        self._policy = policy
        self._next_at: datetime | None = None
        self._spoken: dict[Pool, dict[str, None]] = {}
        self._begun: set[Pool] = set()

    def spoken(self, session: Session, written: Sequence[Entry]) -> None:
        """A hook for what is appended to transcripts."""
        for entry in written:
            if isinstance(entry, UserEntry) and entry.user is not None and (pool := _pool_of(entry.user)) is not None:
                self._spoken.setdefault(pool, {})[session.id] = None

    def begun(self, pool: Pool) -> None:
        """A run has begun: conversations are counted from now on."""
        self._begun.add(pool)
        self._spoken.pop(pool, None)
        self._next_at = None

    # --- when and what --------------------------------------------------------------------------------------------

    def next_due(self, now: datetime) -> datetime | None:
        """A clock that was set back makes nobody wait longer than usual."""
        return now if self._next_at is None else min(self._next_at, now + EVERY)

    async def run_due(self, now: datetime) -> None:
        self._next_at = now + EVERY
        try:
            memories = await self._memory.open()
            chosen = await memories.store.settings.everybody(SETTING)
            known = await memories.store.settings.everybody(CONVERSATIONS)
            known = await self._counted(memories, chosen, known)
            for pool, sessions in known.items():
                if self._wanted(pool, chosen) and len(sessions) >= self._policy.conversations_since:
                    await self._start(memories, pool, now)
            if self._policy.conversations_since == 0:
                for pool in chosen.keys() - known.keys():
                    if self._wanted(pool, chosen):
                        await self._start(memories, pool, now)
        except MemoryUnavailable as error:
            self._next_at = None
            raise NotNow(str(error)) from error

    def _wanted(self, pool: Pool, chosen: dict[Pool, Any]) -> bool:
        return bool(chosen.get(pool, self._policy.enabled))

    async def _counted(
        self, memories: Memories, chosen: dict[Pool, Any], known: dict[Pool, list[str]]
    ) -> dict[Pool, list[str]]:
        """The conversations of each pool; what was heard since the last time is written down."""
        begun, self._begun = self._begun, set()
        spoken, self._spoken = self._spoken, {}
        most = max(1, self._policy.conversations_since)
        for pool in begun | spoken.keys():
            if not self._wanted(pool, chosen) and pool not in known:
                continue
            former = [] if pool in begun else known.get(pool, [])
            now = list(dict.fromkeys([*former, *spoken.get(pool, {})]))[:most]
            if now != known.get(pool, []):
                viewer = Viewer(user=pool.id, author="sessiond", origin="upkeep")
                await memories.store.settings.put(viewer, pool, CONVERSATIONS, now)
                known[pool] = now
        return known

    async def _start(self, memories: Memories, pool: Pool, now: datetime) -> None:
        last = await memories.store.jobs.last(Consolidation.name, pool)
        if last is not None and now - last.started_at < timedelta(hours=self._policy.hours_since):
            return
        viewer = Viewer(user=pool.id, author="sessiond", origin="upkeep")
        try:
            job, fresh = await self._jobs.start(viewer, Consolidation.name, pool, automatic=True)
        except MemoryUnavailable:
            raise
        except MemoryProblem as error:
            log.warning("consolidation.not_started", error=str(error))
            return
        if fresh:
            log.info("consolidation.started", run=job.id)


def _pool_of(user: str) -> Pool | None:
    try:
        return user_pool(user)
    except InvalidMemory:
        return None
