"""Vectors inside the daemon: a model that is not there yet, and purges that reach every file vectors are in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import pytest

import gateway.vectors
from gateway.clock import ManualClock, SystemClock
from gateway.vectors import RETRY_S, VectorPart
from memory.embed import EmbeddingFailed
from memory.policy import MemoryPolicy
from memory.removal import Purged
from tests.patience import until

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from gateway.vectors import Opener
    from memory.guarded import GuardedEmbedder
    from memory.indexing import Indexer
    from memory.memory import Memories


class Unopened:
    """Memory nobody asks for here."""

    async def open(self) -> Memories:
        raise AssertionError


@pytest.mark.parametrize(("name", "told"), [("hash", "is being loaded"), (None, "set roles.embedding")])
async def test_a_model_that_is_not_loaded_yet_is_told_apart_from_none(
    tmp_path: Path, name: str | None, told: str
) -> None:
    clock = SystemClock()
    part = VectorPart(
        name=name, models={}, policy=MemoryPolicy(), environ={}, data_dir=tmp_path, memory=Unopened(), clock=clock
    )
    with pytest.raises(EmbeddingFailed, match=told):
        await part.near(None, "bees", 3)


class Wiped:
    def __init__(self) -> None:
        self.pools: set[str] = set()

    def wipe_soon(self, pools: Iterable[str]) -> None:
        self.pools.update(pools)

    async def wipe(self, pools: Iterable[str]) -> None:
        self.pools.update(pools)


class Locked:
    def __init__(self) -> None:
        self.locked = True
        self.forgotten: set[str] = set()

    async def forget(self, texts: Iterable[str]) -> None:
        if self.locked:
            raise EmbeddingFailed("Kept vectors cannot be removed now (database is locked).")
        self.forgotten.update(texts)


class Due:
    """Which purges have to be remembered."""

    def __init__(self, *purges: int) -> None:
        self.purges = set(purges)

    async def to_forget(self) -> list[int]:
        return sorted(self.purges)

    async def forgotten(self, purges: Collection[int]) -> None:
        self.purges -= set(purges)


async def test_a_locked_cache_keeps_nothing_in_the_index_and_is_told_and_cleared_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway.vectors, "CLEAR_WAIT_S", 0.05)
    clock = ManualClock(datetime(2026, 12, 1, tzinfo=UTC))
    part = VectorPart(
        name="x",
        models={},
        policy=MemoryPolicy(),
        environ={},
        data_dir=tmp_path,
        memory=cast("Opener", None),
        clock=clock,
    )
    index, cache = Wiped(), Locked()
    part.indexer, part._embedder = cast("Indexer", index), cast("GuardedEmbedder", cache)
    gone, due = Purged(frozenset({"secret"}), frozenset({"user:ana"}), 7), Due(7)
    assert await part.purged(gone, due) is False
    assert index.pools == {"user:ana"}
    assert due.purges == {7}
    cache.locked = False
    await clock.advance(RETRY_S)
    await until(lambda: cache.forgotten == {"secret"})
    await until(lambda: not due.purges)
    assert await part.purged(gone, due)
