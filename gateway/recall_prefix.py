"""What stands in the prefix of a session: made when it begins, and the same words for as long as it goes on."""

from __future__ import annotations

import dataclasses
import sqlite3
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from gateway import shared_chats
from gateway.recall_sources import always_on, present_memories
from gateway.recall_state import Prefix
from gateway.viewers import viewer_of_chat
from memory.recall import recalled_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from gateway.agents import AgentPolicy
    from gateway.kept_prefixes import KeptMemory, KeptPrefix, KeptPrefixes
    from gateway.recall_sources import AgentFiles
    from gateway.vectors import Opener
    from memory.recall import Recalled
    from memory.records import Viewer
    from sessions.session import Session

log = structlog.get_logger()

T = TypeVar("T")


class Prefixes:
    """Makes prefixes, and keeps what they were made of. `goes_on` says whether a session is in use."""

    def __init__(
        self,
        *,
        memory: Opener,
        agents: Mapping[str, AgentPolicy],
        files: AgentFiles | None = None,
        kept: KeptPrefixes | None = None,
        goes_on: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._memory = memory
        self._agents = agents
        self._files = files
        self._kept = kept
        self._goes_on = goes_on

    async def begun(self, session: Session, owner: Viewer | None) -> Prefix:
        """The prefix of a session that has come into memory: what it was before, or a new one.

        Raises MemoryProblem: then the next turn asks again.
        """
        former = await self._former(session)
        return await self._made(session, owner) if former is None else await self.checked(former, owner)

    async def checked(self, known: Prefix, owner: Viewer | None) -> Prefix:
        """What was deleted leaves it; what came or changed waits for the next session. For another person it is made
        anew. Raises MemoryProblem."""
        if known.owner != owner:
            return Prefix(owner, known.notes, await self._always(owner))
        if owner is None or not known.always:
            return known
        there = await present_memories(await self._memory.open(), owner, known.always)
        always = tuple(one for one in known.always if one in there)
        return known if always == known.always else dataclasses.replace(known, always=always)

    async def always(self, viewer: Viewer) -> list[Recalled]:
        """What is always on for a person. Raises MemoryProblem."""
        if viewer.user is None or viewer.delegated:
            return []
        memories = await self._memory.open()
        return await always_on(memories, viewer) if memories.may_find(viewer) else []

    async def _made(self, session: Session, owner: Viewer | None) -> Prefix:
        notes = None if self._files is None else await self._files.prefix(session.record.agent)
        return Prefix(owner, notes, await self._always(owner))

    async def _always(self, owner: Viewer | None) -> tuple[Recalled, ...]:
        return () if owner is None else tuple(await self.always(owner))

    # --- over restarts ----------------------------------------------------------------------------------------------

    async def keep(self, session: str, prefix: KeptPrefix) -> None:
        if self._kept is not None:
            await _guarded(self._kept.save(session, prefix))

    async def forget(self, sessions: Sequence[str]) -> None:
        if self._kept is not None and sessions:
            await _guarded(self._kept.forget(sessions))

    async def forget_ended(self) -> None:
        """What a kill has left of sessions that have ended, and what went to the archive."""
        known = None if self._kept is None else await _guarded(self._kept.sessions())
        await self.forget([session for session in known or () if not self._goes_on(session)])

    async def _former(self, session: Session) -> Prefix | None:
        kept = None if self._kept is None else await _guarded(self._kept.load(session.id))
        if kept is None:
            return None
        if session.key.type in shared_chats.TYPES:
            return Prefix(None, kept.notes)
        owner = viewer_of_chat(session.key, kept.owner, self._agents)
        return Prefix(owner, kept.notes, await self._as_it_was(owner, kept.always))

    async def _as_it_was(self, viewer: Viewer, kept: Sequence[KeptMemory]) -> tuple[Recalled, ...]:
        """The same words, but for what was deleted for good since."""
        if not kept:
            return ()
        memories = await self._memory.open()
        were = await memories.store.as_they_were(viewer, {(one.id, one.revision) for one in kept})
        known = [(one, were.get((one.id, one.revision))) for one in kept]
        return tuple(
            recalled_memory(memory, one.topic)
            for one, memory in known
            if memory is not None and memory.created_at == one.created_at
        )


async def _guarded(work: Coroutine[Any, Any, T]) -> T | None:
    """Losing what is kept costs a prompt that is not cached, and no turn."""
    try:
        return await work
    except (OSError, sqlite3.Error) as error:
        log.warning("recall.prefixes_not_kept", error=str(error), kind=type(error).__name__)
        return None
