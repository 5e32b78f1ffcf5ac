"""Where what a conversation is shown of memory comes from: the agent's files, the topics that are always on, and the
session before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

import structlog

from memory.recall import MAX_QUERY, Recalled, fit, is_still, recalled_memory
from memory.records import Filters, ListQuery
from sessions.entries import SummaryEntry, UserEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Set

    from memory.memory import Memories
    from memory.records import Viewer
    from memory.search import SearchMode
    from sessions.session import Session
    from sessions.store import SessionStore

log = structlog.get_logger()

ALWAYS_LIMIT = 50
ALWAYS_BYTES = 20_000


class Previous(Protocol):
    """What the session before this one was about, as words; None without one. Raises StorageError and SessionGone."""

    async def __call__(self, session: Session) -> str | None: ...


class AgentFiles(Protocol):
    """An agent's workspace: what of it stands in every prompt, and what is found in it."""

    async def prefix(self, agent: str) -> str | None: ...
    async def find(
        self, agent: str, project: str | None, words: str, limit: int, mode: SearchMode = "hybrid"
    ) -> list[tuple[float, Recalled]]:
        """Pieces with their scores, the best first."""
        ...

    async def present(self, shown: Sequence[Recalled], project: str | None) -> set[str]:
        """The ids of those pieces that are still there; of projects, of this one only."""
        ...


def former_session(store: SessionStore) -> Previous:
    """Of the session that had the same key: its summary, or what was said last in one that never needed any."""

    async def load(session: Session) -> str | None:
        record = store.former(session.key)
        if record is None or record.session == session.id:
            return None
        entries = (await store.open(record.session)).entries
        opening = next((entry for entry in entries if isinstance(entry, SummaryEntry)), None)
        if opening is not None:
            return " ".join(_texts(opening.summary))
        said: list[str] = []
        for entry in reversed(entries):
            if isinstance(entry, UserEntry):
                said.append(entry.text)
            if sum(map(len, said)) >= MAX_QUERY:
                break
        return "\n".join(reversed(said)) or None

    return load


def _texts(value: object) -> Iterator[str]:
    """The texts inside of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in cast("dict[str, object]", value).values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in cast("list[object]", value):
            yield from _texts(one)


async def present_memories(
    memories: Memories, viewer: Viewer, shown: Sequence[Recalled], asked: Set[str] = frozenset()
) -> set[Recalled]:
    """Those that are still there, also in words that were corrected since, unless these were deleted for good.

    `asked` are ids a tool was asked for: also those count that are not recalled by themselves. Raises MemoryProblem.
    """
    ids = list(dict.fromkeys(one.id for one in shown))
    found = await memories.store.confirm([one for one in ids if one not in asked], viewer, Filters(recalled=True))
    found += await memories.store.confirm([one for one in ids if one in asked], viewer)
    known = {memory.id: memory for memory in found}
    there = {one for one in shown if one.id in known and is_still(one, known[one.id])}
    corrected = {(one.id, one.revision) for one in there if one.text != known[one.id].text}
    were = await memories.store.as_they_were(viewer, corrected) if corrected else {}
    return {
        one
        for one in there
        if (place := (one.id, one.revision)) not in corrected or (place in were and were[place].text == one.text)
    }


async def always_on(memories: Memories, viewer: Viewer) -> list[Recalled]:
    """The memories of topics that are always on, as many as fit: the most important, and of these the newest."""
    topics = {
        topic.id: topic.name
        for pool in await memories.store.pools(viewer)
        for topic in await memories.topics.topics(viewer, pool)
        if topic.always_on
    }
    if not topics:
        return []
    filters = Filters(topics=tuple(topics), recalled=True)
    found, more = await memories.page(viewer, filters, ListQuery(sort="importance", limit=ALWAYS_LIMIT))
    told = [recalled_memory(memory, topics.get(memory.topic or "")) for memory in found]
    shown = fit(told, seen=(), limit=ALWAYS_LIMIT, max_bytes=ALWAYS_BYTES)
    if more is not None or len(shown) < len(found):
        log.info("recall.always_on_cut", shown=len(shown), limit=ALWAYS_LIMIT, max_bytes=ALWAYS_BYTES)
    return shown
