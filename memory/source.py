"""Active memories and their changes, as the vector index follows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory.errors import MemoryUnavailable
from memory.indexing import Indexable, IndexChange, SourceFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from memory.records import Changed
    from memory.store import MemoryStore

PAGE = 1000


class MemorySource:
    """What is superseded has no vector: it would crowd out what is true now. The past is found by words."""

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
