"""Memories, as the search and the vector index see them."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING

from memory.errors import MemoryUnavailable
from memory.indexing import Indexable, IndexChange, SourceFailed
from memory.records import Filters
from memory.search import Found
from memory.vitality import vitality

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime

    from memory.policy import SearchPolicy
    from memory.records import Changed, Memory, TextHit, Viewer
    from memory.store import MemoryStore
    from memory.vitality import RetentionPolicy

RECENT = timedelta(days=30)
PAGE = 1000


class MemoryCorpus:
    """The memories one viewer may see that fit the filters."""

    def __init__(
        self,
        store: MemoryStore,
        viewer: Viewer,
        filters: Filters | None = None,
        *,
        policy: SearchPolicy,
        retention: RetentionPolicy,
        now: datetime,
    ) -> None:
        self._store = store
        self._viewer = viewer
        self._filters = filters or Filters()
        self._policy = policy
        self._retention = retention
        self._now = now

    async def pools(self) -> Sequence[str]:
        return [str(pool) for pool in await self._store.pools(self._viewer, self._filters)]

    async def proposals(self, words: str, limit: int) -> Sequence[TextHit]:
        return await self._store.text_hits(words, self._viewer, self._filters, limit=limit)

    async def confirm(self, ids: Sequence[str]) -> Sequence[Found[Memory]]:
        return [
            Found(id=memory.id, pool=str(memory.pool), text=memory.text, item=memory, weight=self._weight(memory))
            for memory in await self._store.confirm(ids, self._viewer, self._filters)
        ]

    def beside(self, text_id: str) -> Sequence[str]:
        return ()

    def _weight(self, memory: Memory) -> float:
        return weight_of(memory, self._policy, self._retention, self._now)


def weight_of(memory: Memory, policy: SearchPolicy, retention: RetentionPolicy, now: datetime) -> float:
    """Mild: an ordinary memory of some weeks has about 1, and no weight turns a poor hit into a good one."""
    importance = (memory.importance - 5) / 5
    alive = (vitality(memory, now, retention) - 50) / 50
    recent = 0.5 ** (max(timedelta(0), now - memory.updated_at) / RECENT)
    weight = (
        1
        + policy.importance_weight * importance
        + policy.vitality_weight * alive
        + policy.recency_weight * (2 * recent - 1)
    )
    return max(0.1, weight) if math.isfinite(weight) else 1.0


class MemorySource:
    """Active memories and their changes, for the index.

    What is superseded has no vector: it would crowd out what is true now. Questions about the past find it by words.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def everything(self) -> AsyncIterator[Sequence[Indexable]]:
        number = 0
        while changed := await self._changed(number, PAGE):
            yield [item for one in changed if (item := _item(one)) is not None]
            number = changed[-1].number

    async def latest(self) -> int:
        try:
            return await self._store.last_change()
        except MemoryUnavailable as error:
            raise SourceFailed(str(error)) from error

    async def changes(self, after: int, limit: int) -> Sequence[IndexChange]:
        return [IndexChange(one.number, one.id, _item(one)) for one in await self._changed(after, limit)]

    async def _changed(self, after: int, limit: int) -> list[Changed]:
        try:
            return await self._store.changes_since(after, limit=limit)
        except MemoryUnavailable as error:
            raise SourceFailed(str(error)) from error


def _item(changed: Changed) -> Indexable | None:
    memory = changed.memory
    if memory is None or memory.state != "active":
        return None
    return Indexable(memory.id, str(memory.pool), memory.text)
