"""Memory inside the daemon: opened behind its start, kept in order, and handed to whoever needs it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import structlog

from memory.errors import MemoryUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gateway.agents import AgentPolicy
    from gateway.clock import Clock
    from memory.memory import Memories
    from memory.policy import MemoryPolicy

log = structlog.get_logger()

RETRY_S = 5.0
UPKEEP_S = 600.0
OPENING_WAIT_S = 30.0


class MemoryPart:
    """The memories of a daemon. SQLAlchemy and Alembic take half a second to import, so nobody waits for them."""

    def __init__(self, path: Path, clock: Clock, policy: MemoryPolicy, agents: Mapping[str, AgentPolicy]) -> None:
        self._path = path
        self._clock = clock
        self._policy = policy
        self._agents = agents
        self._memories: Memories | None = None
        self._opened = asyncio.Event()
        self._engine: Any = None
        self.problem: str | None = None

    async def open(self) -> Memories:
        """The memories, once they are open. Raises MemoryUnavailable when they cannot be opened."""
        if self._memories is None:
            if self.problem is not None:
                raise MemoryUnavailable(self.problem)
            try:
                async with asyncio.timeout(OPENING_WAIT_S):
                    await self._opened.wait()
            except TimeoutError as error:
                raise MemoryUnavailable("Memory is still being opened. Try again in a moment.") from error
        assert self._memories is not None  # noqa: S101
        return self._memories

    async def run(self) -> None:
        """Opens the records, then looks after them: what was purged leaves the files, old trash goes."""
        while True:
            try:
                await self._connect()
                await self._upkeep()
                self.problem = None
                await self._clock.sleep(UPKEEP_S)
            except Exception as error:
                self.problem = f"Memory cannot be used now ({_told(error)}). Replies go on without it."
                log.warning("memory.not_available", error=_told(error), kind=type(error).__name__)
                await self._clock.sleep(RETRY_S)

    async def stop(self) -> None:
        if self._engine is not None:
            await self._engine.dispose()

    async def _connect(self) -> None:
        if self._memories is not None:
            return
        opening = await asyncio.to_thread(_import_opening)
        self._engine, memories = await opening.open_memories(self._path, self._clock, self._policy)
        await opening.make_projects(memories, {p.project for p in self._agents.values() if p.project is not None})
        self._memories = memories
        self._opened.set()
        log.info("memory.opened")

    async def _upkeep(self) -> None:
        memories = await self.open()
        await memories.store.scrub()
        if self._policy.trash.days is not None:
            await memories.store.purge_old(self._clock.now() - timedelta(days=self._policy.trash.days))


def _told(error: Exception) -> str:
    """The words of the driver; statements and their values stay out of logs."""
    return str(getattr(error, "orig", None) or error)


def _import_opening() -> Any:
    import gateway.memory_opening

    return gateway.memory_opening
