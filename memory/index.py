"""The vector index: points of a text's id, its pool and its vector, found by nearness; never the text itself."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory.embed import Fingerprint, Vectors

COLLECTIONS = 64


class IndexBroken(Exception):
    """The index is missing, damaged, or out of reach. It can be rebuilt; keyword search goes on meanwhile."""


class IndexAway(IndexBroken):
    """It could not be looked at: that says nothing about its files, which are kept."""


class IndexNotOpen(IndexBroken):
    """Whoever had it open has ended, for whatever reason: it is opened again, and looked at."""


@dataclass(frozen=True, slots=True)
class Point:
    """What a vector stands for: the id of a text, and which version of it (a hash of pool and text).

    So a vector of an older text is another point: it cannot be taken for the present one.
    """

    id: str
    version: str
    pool: str

    @property
    def key(self) -> str:
        return f"{self.id}#{self.version}"


@dataclass(frozen=True, slots=True)
class Near:
    """A proposal of the index; to be confirmed by whoever holds the text. `score` is the cosine, 1 is the same."""

    point: Point
    score: float


def point_of(text_id: str, pool: str, text: str) -> Point:
    """The point of a text."""
    told = f"{pool}\0{text}".encode("utf-8", "replace")
    return Point(text_id, hashlib.sha256(told).hexdigest()[:12], pool)


def parse_point(key: str, pool: str) -> Point:
    """The inverse of `Point.key`; what is no key of ours has a version that fits no text."""
    text_id, _, version = key.rpartition("#")
    return Point(text_id, version, pool)


def collection_number(pool: str) -> int:
    """Which of the collections holds a pool, the same on every machine."""
    return int.from_bytes(hashlib.sha256(pool.encode("utf-8", "replace")).digest()[:4], "big") % COLLECTIONS


class VectorIndex(Protocol):
    """An index of one fingerprint at a time. Every method but `close` raises IndexBroken."""

    async def open(self, fingerprint: Fingerprint) -> None:
        """Chooses the vectors of one model; cheap when they are chosen already."""
        ...

    async def put(self, points: Sequence[Point], vectors: Vectors) -> None: ...

    async def remove(self, points: Sequence[Point]) -> None:
        """Points that are not there are no error."""
        ...

    async def near(self, pools: Sequence[str] | None, vector: Vectors, limit: int) -> list[Near]:
        """The nearest points of the pools to one vector, best first; None: of all pools."""
        ...

    async def points(self) -> dict[str, str]:
        """Every point's key, with its pool."""
        ...

    async def count(self) -> int:
        """How many points there are."""
        ...

    async def wipe(self, pools: Sequence[str] | None) -> None:
        """Leaves no byte of removed points of these pools in any file; None: of all pools, and of dropped models."""
        ...

    async def reset(self) -> None:
        """Throws everything away and begins anew."""
        ...

    async def drop_others(self) -> None:
        """Throws away the vectors of every other model."""
        ...

    async def close(self) -> None: ...


class ListIndex:
    """An index in memory that compares with everything: exact, and fast enough for some ten thousand points."""

    def __init__(self) -> None:
        self._spaces: dict[str, dict[str, tuple[Point, Vectors]]] = {}
        self._space = ""

    async def open(self, fingerprint: Fingerprint) -> None:
        self._space = fingerprint.name
        self._spaces.setdefault(self._space, {})

    async def put(self, points: Sequence[Point], vectors: Vectors) -> None:
        self._here().update((point.key, (point, row)) for point, row in zip(points, vectors, strict=True))

    async def remove(self, points: Sequence[Point]) -> None:
        for point in points:
            self._here().pop(point.key, None)

    async def near(self, pools: Sequence[str] | None, vector: Vectors, limit: int) -> list[Near]:
        import numpy as np

        mine = [(point, row) for point, row in self._here().values() if pools is None or point.pool in pools]
        if not mine:
            return []
        scores = np.stack([row for _, row in mine]) @ vector
        best: list[int] = np.argsort(-scores, kind="stable")[:limit].tolist()
        return [Near(mine[at][0], float(scores[at])) for at in best]

    async def points(self) -> dict[str, str]:
        return {key: point.pool for key, (point, _) in self._here().items()}

    async def count(self) -> int:
        return len(self._here())

    async def wipe(self, pools: Sequence[str] | None) -> None:
        return

    async def reset(self) -> None:
        self._here().clear()

    async def drop_others(self) -> None:
        self._spaces = {self._space: self._here()}

    async def close(self) -> None:
        return

    def _here(self) -> dict[str, tuple[Point, Vectors]]:
        return self._spaces[self._space]


def by_collection(pools: Sequence[str]) -> Mapping[int, list[str]]:
    """The pools of each collection."""
    found: dict[int, list[str]] = {}
    for pool in dict.fromkeys(pools):
        found.setdefault(collection_number(pool), []).append(pool)
    return found
