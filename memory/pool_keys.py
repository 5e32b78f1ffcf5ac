"""Which points of a collection are of which pool. Chroma looks that up beside each point: 2 to 3 ms where a pool has a
hundred, 300 ms where it has 20,000 (chromadb 1.5.9). It need not be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memory.index import Point


class PoolKeys:
    """Of one collection, which nobody else changes."""

    def __init__(self, points: Iterable[tuple[str, str]]) -> None:
        """Key and pool of each."""
        self._keys: dict[str, set[str]] = {}
        for key, pool in points:
            self._keys.setdefault(pool, set()).add(key)

    def put(self, points: Sequence[Point]) -> None:
        for point in points:
            self._keys.setdefault(point.pool, set()).add(point.key)

    def remove(self, points: Sequence[Point]) -> None:
        for point in points:
            keys = self._keys.get(point.pool, set())
            keys.discard(point.key)
            if not keys:
                self._keys.pop(point.pool, None)

    def count(self, pools: Sequence[str] | None) -> int:
        """How many points these pools have; None: all pools."""
        return sum(len(self._keys.get(pool, ())) for pool in (self._keys if pools is None else pools))

    def of(self, pools: Sequence[str] | None) -> list[str]:
        return [key for pool in (self._keys if pools is None else pools) for key in self._keys.get(pool, ())]

    def pool_of(self, key: str, pools: Sequence[str] | None) -> str | None:
        """None: the point is of none of these pools."""
        return next(
            (pool for pool in (self._keys if pools is None else pools) if key in self._keys.get(pool, ())), None
        )
