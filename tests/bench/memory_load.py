"""Rows 9 and 10: search in many memories beside Chroma's own query, and adding them; nothing is embedded.

`python -m tests.bench.memory_load` measures them alone."""

from __future__ import annotations

import asyncio
import gc
import random
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from gateway.cli.server import COLLECT
from gateway.database import open_database
from memory.chroma import ChromaIndex
from memory.corpus import MemorySearch
from memory.database import Records
from memory.embed import Fingerprint
from memory.fulltext import FullText
from memory.index import Near, collection_number, point_of
from memory.policy import MemoryPolicy
from memory.records import Draft, Filters, Viewer, user_pool
from memory.search import OVER_FETCH, OVER_FETCH_MORE
from memory.store import MemoryStore
from memory.text import cut, cut_query
from tests.bench.figures import figure, quantile, render_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory.embed import Vectors
    from memory.records import Memory
    from tests.bench.figures import Figure

DIMENSION = 384
ADMIN = Viewer(user="root", author="bench", admin=True)
WORDS = 5_000
BATCH = 500
WANTED = 10
ROUNDS = 5
PARTS = 5
TICK_S = 0.005


class Given:
    """The index, asked with vectors that cost nothing."""

    def __init__(self, index: ChromaIndex, draw: np.random.Generator) -> None:
        self.index = index
        self._draw = draw

    async def near(self, pools: Sequence[str], text: str, limit: int) -> list[Near]:
        return await self.index.near(pools, unit(self._draw, 1)[0], limit)

    async def by_condition(self, pool: str, limit: int) -> None:
        number, vector = collection_number(pool), unit(self._draw, 1)[0]
        await self.index._ask("_near_there", number, [pool], vector, limit)  # pyright: ignore[reportPrivateUsage]


def unit(draw: np.random.Generator, count: int) -> Vectors:
    rows = draw.standard_normal((count, DIMENSION)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def drafts(draw: random.Random, pools: int, count: int) -> list[Draft]:
    return [
        Draft(
            text=" ".join(f"w{draw.randrange(WORDS)}" for _ in range(10)) + f" {draw.random()}",
            pool=user_pool(f"u{number % pools}"),
        )
        for number in range(count)
    ]


async def measure(folder: Path, *, memories: int, pools: int, searches: int, added: int) -> list[Figure]:
    """All figures at one size, and what grows with it; Python looks for garbage as seldom as in the daemon."""
    gc.set_threshold(*COLLECT)
    folder.mkdir()
    numbers = iter(range(10**9))
    engine = await open_database(folder / "state.db")
    records = Records(engine)
    await records.migrate()
    store = MemoryStore(
        records,
        FullText(cut, cut_query),
        MemoryPolicy(),
        new_id=lambda: f"m{next(numbers):09}",
        now=lambda: datetime.now(UTC),
    )
    index = ChromaIndex(folder / "index")
    await index.open(Fingerprint(provider="bench", model="random", dimension=DIMENSION))
    draw, vectors = random.Random(1), np.random.default_rng(1)
    try:
        await _add(store, index, drafts(draw, pools, memories), vectors)
        given = Given(index, vectors)
        searcher = MemorySearch(store, MemoryPolicy(), lambda: datetime.now(UTC), given)
        found = await _search(searcher, given, draw, pools, searches)
        label = f"{memories:,} memories"
        rounds = [await _add(store, index, drafts(draw, pools, added), vectors) for _ in range(ROUNDS)]
        added_to, indexed, still = ([one[at] for one in rounds] for at in range(3))
        return [
            *_search_figures(label, *found),
            figure(10, f"memories added to {label}", added_to, "/s", goal=2_000, more_is_better=True),
            figure(10, f"their vectors put into Chroma, behind it, {label}", indexed, "/s", more_is_better=True),
            figure(10, f"the loop stands still for these, at most, {label}", still, "ms"),
        ]
    finally:
        await index.close()
        await engine.dispose()


async def _add(
    store: MemoryStore, index: ChromaIndex, batch: list[Draft], vectors: np.random.Generator
) -> tuple[float, float, float]:
    """Memories a second into the records with their full text; vectors a second into the index, which follows; and the
    milliseconds that anybody else waited for the loop meanwhile, at most."""
    rows = unit(vectors, len(batch))
    started = time.perf_counter()
    written: list[Memory] = []
    for at in range(0, len(batch), BATCH):
        outcomes = await store.add(ADMIN, batch[at : at + BATCH])
        written += [outcome.memory for outcome in outcomes]  # type: ignore[union-attr]
    between = time.perf_counter()
    points = [point_of(one.id, str(one.pool), one.text) for one in written]
    putting = asyncio.create_task(index.put(points, rows))
    still = 0.0
    while not putting.done():
        began = time.perf_counter()
        await asyncio.sleep(TICK_S)
        still = max(still, time.perf_counter() - began - TICK_S)
    await putting
    return len(batch) / (between - started), len(batch) / (time.perf_counter() - between), 1000 * still


async def _search(
    searcher: MemorySearch, given: Given, draw: random.Random, pools: int, searches: int
) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds of our searches; of Chroma's queries as the daemon puts them, with the keys of the pool; and of its
    own, with the pool as a condition. Taken in turn."""
    ours: list[float] = []
    theirs: list[float] = []
    conditions: list[float] = []
    for number in range(searches + pools // 10):
        user = f"u{draw.randrange(pools)}"
        words = " ".join(f"w{draw.randrange(WORDS)}" for _ in range(6))
        started = time.perf_counter()
        await searcher.search(
            Viewer(user=user, author=user),
            words,
            mode="hybrid",
            limit=WANTED,
            filters=Filters(pools=(user_pool(user),)),
        )
        between = time.perf_counter()
        await given.near([f"user:{user}"], words, WANTED * OVER_FETCH + OVER_FETCH_MORE)
        ended = time.perf_counter()
        await given.by_condition(f"user:{user}", WANTED * OVER_FETCH + OVER_FETCH_MORE)
        last = time.perf_counter()
        if number >= pools // 10:  # the first touch of a collection loads it
            ours.append(1000 * (between - started))
            theirs.append(1000 * (ended - between))
            conditions.append(1000 * (last - ended))
    return ours, theirs, conditions


def _search_figures(label: str, ours: list[float], theirs: list[float], conditions: list[float]) -> list[Figure]:
    parts = [tuple(quantile(one[at::PARTS], 0.5) for one in (ours, theirs, conditions)) for at in range(PARTS)]
    by_condition = [mine / chroma for mine, _, chroma in parts]
    return [
        figure(9, f"search in {label}, p50", [mine for mine, _, _ in parts], "ms", goal=5),
        figure(9, f"search in {label}, p95", [quantile(ours[at::PARTS], 0.95) for at in range(PARTS)], "ms", goal=12),
        figure(9, f"Chroma's own query in {label}, p50", [chroma for _, _, chroma in parts], "ms"),
        figure(9, f"Chroma's query as the daemon puts it in {label}, p50", [chroma for _, chroma, _ in parts], "ms"),
        figure(9, f"search in {label} / Chroma's own query", by_condition, "", goal=2, compared=median(by_condition)),
        figure(
            9, f"search in {label} / Chroma's query as the daemon puts it", [mine / near for mine, near, _ in parts], ""
        ),
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = measure(Path(folder) / "memories", memories=100_000, pools=1_000, searches=1_000, added=10_000)
        print(render_table(asyncio.run(whole)))


if __name__ == "__main__":
    main()
