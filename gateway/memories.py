"""Memory inside the daemon: opened behind its start, kept in order, and handed to whoever needs it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import structlog

from gateway.opening import Opening, told_by
from gateway.scheduler import NotNow
from memory.errors import MemoryUnavailable
from memory.records import UPKEEP, Filters, user_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import tzinfo
    from pathlib import Path

    from sqlalchemy.ext.asyncio import AsyncEngine

    from gateway.agents import AgentPolicy
    from gateway.clock import Clock
    from memory.memory import Memories
    from memory.policy import MemoryPolicy

log = structlog.get_logger()

RETRY_S = 5.0
OPENING_WAIT_S = 30.0


class MemoryPart:
    """The memories of a daemon. SQLAlchemy and Alembic take half a second to import, so nobody waits for them."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        policy: MemoryPolicy,
        agents: Mapping[str, AgentPolicy],
        identities: Mapping[str, Sequence[str]],
        zone: tzinfo,
    ) -> None:
        """`zone`: where a day begins for who says "yesterday"."""
        self._path = path
        self._clock = clock
        self._policy = policy
        self._agents = agents
        self._identities = identities
        self._zone = zone
        self._memories: Memories | None = None
        self._opened = asyncio.Event()
        self.when_opened: list[Callable[[Memories], None]] = []
        """Told of the memories before anybody else gets them."""
        self._opening = Opening("memory opening", self._load)
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
        """Opens the records, however often that fails, and tidies them up."""
        while True:
            try:
                await self._connect()
                await self.tidy()
            except Exception as error:
                log.warning("memory.not_available", error=told_by(error), kind=type(error).__name__)
                self._note(error)
                await self._clock.sleep(RETRY_S)
            else:
                return

    async def tidy(self) -> None:
        """What was purged leaves the files, old trash goes; nothing before they are open. Raises NotNow."""
        if self._memories is None:
            return
        try:
            await self._upkeep(self._memories)
        except Exception as error:
            self._note(error)
            raise NotNow(told_by(error)) from error
        self.problem = None

    def _note(self, error: Exception) -> None:
        self.problem = f"Memory cannot be used now ({told_by(error)}). Replies go on without it."

    async def stop(self) -> None:
        opened = await self._opening.settled()
        if opened is not None:
            await opened[0].dispose()

    async def _connect(self) -> None:
        if self._memories is None:
            _, memories = await self._opening.opened()
            for hook in self.when_opened:
                hook(memories)
            self._memories = memories
            self._opened.set()
            log.info("memory.opened")

    async def _load(self) -> tuple[AsyncEngine, Memories]:
        opening = await asyncio.to_thread(_import_opening)
        projects = {agent.project for agent in self._agents.values() if agent.project is not None}
        return await opening.open_memories(self._path, self._clock, self._policy, projects, self._zone)

    async def _upkeep(self, memories: Memories) -> None:
        if await memories.store.cut_anew():
            log.info("memory.cut_anew", why="texts are cut into words in another way")
        await memories.store.scrub()
        if self._policy.trash.days is not None:
            await memories.store.purge_old(self._clock.now() - timedelta(days=self._policy.trash.days))
        await self._tell_left_behind(memories)

    async def _tell_left_behind(self, memories: Memories) -> None:
        """Who writes in a direct chat has memories there before `sessions.identities` says which person that is."""
        for person, aliases in self._identities.items():
            for alias in aliases:
                pool, own = user_pool(alias), user_pool(person)
                count = await memories.store.count(UPKEEP, Filters(pools=(pool,)))
                if count:
                    move = f"sessiond memory export --pool {pool} -o FILE; sessiond memory import FILE --pool {own}"
                    move += "; then delete them there"
                    log.warning("memory.left_behind", pool=str(pool), memories=count, person=person, move=move)


def _import_opening() -> Any:
    import gateway.memory_opening

    return gateway.memory_opening
