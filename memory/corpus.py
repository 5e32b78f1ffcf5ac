"""Memories as a viewer may search them: what the one search for all texts asks of the records."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol

from memory.records import ListQuery
from memory.search import Found, search
from memory.vitality import vitality

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from memory.policy import MemoryPolicy
    from memory.records import Filters, Memory, Mode, Pool, TextHit, Viewer
    from memory.search import NearTexts
    from memory.store import MemoryStore

HALF_NEW = timedelta(days=30)
NAMED_POOLS = 50
"""So few pools are named in the query, which is a shorter one then."""


@dataclass(frozen=True, slots=True)
class MemoryHit:
    """A memory that was found. Scores order one search, and mean nothing beside those of another."""

    memory: Memory
    score: float


@dataclass(frozen=True, slots=True)
class Findings:
    """The hits, best first. `problem` says why vectors were wanted and not used."""

    hits: tuple[MemoryHit, ...]
    problem: str | None = None


class Searcher(Protocol):
    """What finds memories for a viewer. Everything it returns was confirmed by the store."""

    vectors: NearTexts | None

    async def search(self, viewer: Viewer, query: str, *, mode: Mode, limit: int, filters: Filters) -> Findings: ...


class MemoryCorpus:
    """The records, as one viewer may see them under some filters. `pools` are those it may look into: asked once."""

    def __init__(
        self,
        store: MemoryStore,
        viewer: Viewer,
        filters: Filters,
        pools: Sequence[Pool],
        weight: Callable[[Memory], float],
    ) -> None:
        self._store = store
        self._viewer = viewer
        self._filters = filters
        self._pools = pools
        self._weight = weight

    async def pools(self) -> Sequence[str]:
        return [str(pool) for pool in self._pools]

    async def propose(self, words: str, limit: int) -> Sequence[TextHit]:
        return await self._store.text_hits(words, self._viewer, self._filters, limit=limit, pools=self._pools)

    async def confirm(self, ids: Sequence[str]) -> Sequence[Found[Memory]]:
        return [self._found(memory) for memory in await self._store.confirm(ids, self._viewer, self._filters)]

    def _found(self, memory: Memory) -> Found[Memory]:
        return Found(id=memory.id, pool=str(memory.pool), text=memory.text, item=memory, weight=self._weight(memory))

    def beside(self, text_id: str) -> Sequence[str]:
        """Facts stand alone."""
        return ()


class MemorySearch:
    """What is true now, or was at a time, by words, and by vectors where there are some. `fetch` ranks nothing: the
    newest come first."""

    def __init__(
        self, store: MemoryStore, policy: MemoryPolicy, now: Callable[[], datetime], vectors: NearTexts | None = None
    ) -> None:
        self._store = store
        self._policy = policy
        self._now = now
        self.vectors = vectors

    async def search(self, viewer: Viewer, query: str, *, mode: Mode, limit: int, filters: Filters) -> Findings:
        filters = dataclasses.replace(filters, current=filters.as_of is None)
        if mode == "fetch":
            found, _ = await self._store.page(viewer, filters, ListQuery(limit=limit))
            return Findings(tuple(MemoryHit(memory, 0.0) for memory in found))
        now = self._now()
        pools = await self._store.pools(viewer, filters)
        if len(pools) <= NAMED_POOLS:
            filters = dataclasses.replace(filters, pools=tuple(pools))
        weight = partial(mild_weight, policy=self._policy, now=now)
        corpus = MemoryCorpus(self._store, viewer, filters, pools, weight)
        result = await search(corpus, self.vectors, query, policy=self._policy.search, limit=limit, mode=mode)
        return Findings(tuple(MemoryHit(hit.found.item, hit.score) for hit in result.hits), result.problem)


def mild_weight(memory: Memory, policy: MemoryPolicy, now: datetime) -> float:
    """What importance, vitality and being new add to a score; 1 and a little more."""
    newness = 0.5 ** (max(timedelta(0), now - memory.since) / HALF_NEW)
    return (
        1
        + policy.search.importance_weight * memory.importance / 10
        + policy.search.vitality_weight * vitality(memory, now, policy.retention) / 100
        + policy.search.recency_weight * newness
    )
