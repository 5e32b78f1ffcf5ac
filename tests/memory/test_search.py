"""What is found is right whatever the index says, and nothing that has all the words is lost."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.database import open_database
from memory.corpus import MemoryCorpus, mild_weight
from memory.database import Records
from memory.embed import EmbeddingFailed, HashEmbedder
from memory.fulltext import FullText
from memory.index import IndexBroken, ListIndex, Near, Point, point_of
from memory.policy import MemoryPolicy, RecordsPolicy, SearchPolicy
from memory.recall import recalled_memory, row_of
from memory.records import Change, Draft, Filters, Memory, Source, TextHit, Viewer, Written, project_pool, user_pool
from memory.search import Found, search
from memory.source import MemorySource
from memory.store import MemoryStore
from memory.text import cut, cut_query
from tests.tables import make_tables

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
ANA = Viewer(user="ana", author="ana")
BOB = Viewer(user="bob", author="bob")
POLICY = SearchPolicy()
PLAIN = SearchPolicy(neighbour_weight=0, relevance=0)


class Lies:
    """An index that says what it is told to say."""

    def __init__(self, nears: Sequence[Near] = (), error: Exception | None = None) -> None:
        self.nears = nears
        self.error = error

    async def near(self, pools: Sequence[str], text: str, limit: int) -> list[Near]:
        if self.error is not None:
            raise self.error
        return list(self.nears)[:limit]


class Exact:
    """An index that is right."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts

    async def near(self, pools: Sequence[str], text: str, limit: int) -> list[Near]:
        embedder = HashEmbedder()
        (query,) = await embedder.embed_queries([text])
        rows = await embedder.embed_passages(list(self.texts.values()))
        scored = [
            Near(point_of(name, "user:ana", told), float(row @ query))
            for (name, told), row in zip(self.texts.items(), rows, strict=True)
        ]
        return sorted(scored, key=lambda near: -near.score)[:limit]


class Shelf:
    """A corpus as a dictionary: full text counts words in common."""

    def __init__(self, *, order: Sequence[str] = (), **texts: str) -> None:
        self.texts = texts
        self.order = order

    async def pools(self) -> Sequence[str]:
        return ["user:ana"]

    async def propose(self, words: str, limit: int) -> Sequence[TextHit]:
        wanted = set(cut_query(words))
        hits = [TextHit(name, float(len(wanted & set(cut(text))))) for name, text in self.texts.items()]
        return sorted((hit for hit in hits if hit.score), key=lambda hit: -hit.score)[:limit]

    async def confirm(self, ids: Sequence[str]) -> Sequence[Found[str]]:
        return [
            Found(id=name, pool="user:ana", text=self.texts[name], item=self.texts[name])
            for name in dict.fromkeys(ids)
            if name in self.texts
        ]

    def beside(self, text_id: str) -> Sequence[str]:
        if text_id not in self.order:
            return ()
        at = list(self.order).index(text_id)
        return [self.order[near] for near in (at - 1, at + 1) if 0 <= near < len(self.order)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MemoryStore]:
    await make_tables(tmp_path / "state.db")
    engine = await open_database(tmp_path / "state.db")
    records = Records(engine)
    await records.migrate()
    numbers = iter(range(1_000_000))
    yield MemoryStore(
        records, FullText(cut, cut_query), RecordsPolicy(), new_id=lambda: f"m{next(numbers):05}", now=lambda: NOW
    )
    await engine.dispose()


async def add(store: MemoryStore, viewer: Viewer, *texts: str) -> list[Memory]:
    drafts = [Draft(text=text, source=Source(origin="person")) for text in texts]
    return [written.memory for written in await store.add(viewer, drafts)]  # type: ignore[union-attr]


async def corpus(store: MemoryStore, viewer: Viewer, filters: Filters | None = None) -> MemoryCorpus:
    pools = await store.pools(viewer, filters or Filters())
    return MemoryCorpus(
        store, viewer, filters or Filters(), pools, lambda memory: mild_weight(memory, MemoryPolicy(), NOW)
    )


async def texts_of(
    store: MemoryStore, viewer: Viewer, words: str, vectors: Lies | None = None, filters: Filters | None = None
) -> list[str]:
    result = await search(await corpus(store, viewer, filters), vectors, words, policy=POLICY, limit=10)
    return [hit.found.text for hit in result.hits]


async def test_what_is_deleted_while_vectors_are_asked_is_not_shown() -> None:
    shelf = Shelf(kept="apples and pears", gone="apples and plums")

    class Slow:
        async def near(self, pools: Sequence[str], text: str, limit: int) -> list[Near]:
            del shelf.texts["gone"]
            return []

    result = await search(shelf, Slow(), "apples", policy=POLICY, limit=10)
    assert [hit.found.id for hit in result.hits] == ["kept"]


async def test_words_and_vectors_together_are_better_than_either() -> None:
    texts = {"rex": "our dog is called Rex", "walk": "the dog wants a walk", "name": "his name is on the collar"}
    found = await search(Shelf(**texts), Exact(**texts), "how is our dog called", policy=POLICY, limit=3)
    assert found.hits[0].found.id == "rex"
    assert found.problem is None
    only = await search(Shelf(**texts), Exact(**texts), "our dog", policy=PLAIN, limit=3, mode="vector")
    assert all(hit.keyword is None for hit in only.hits)
    words = await search(Shelf(**texts), Exact(**texts), "our dog", policy=PLAIN, limit=3, mode="keyword")
    assert all(hit.vector is None for hit in words.hits)


@pytest.mark.parametrize("error", [EmbeddingFailed("the model is down"), IndexBroken("being built")])
async def test_without_vectors_keywords_serve_and_the_reason_is_told(error: Exception) -> None:
    shelf = Shelf(rex="our dog is called Rex")
    found = await search(shelf, Lies(error=error), "dog", policy=POLICY, limit=3)
    assert [hit.found.id for hit in found.hits] == ["rex"]
    assert found.problem == str(error)
    assert (await search(shelf, None, "dog", policy=POLICY, limit=3)).hits == found.hits


async def test_a_model_that_hangs_costs_the_wait_and_no_more() -> None:
    class Hangs:
        async def near(self, pools: Sequence[str], text: str, limit: int) -> list[Near]:
            await asyncio.Event().wait()
            raise AssertionError

    policy = SearchPolicy(vectors_wait_s=0.05)
    found = await search(Shelf(rex="our dog is called Rex"), Hangs(), "dog", policy=policy, limit=3)
    assert [hit.found.id for hit in found.hits] == ["rex"]
    assert found.problem == "The embedding model took longer than 0.05 s."


async def test_an_exact_hit_is_not_dropped_by_any_threshold() -> None:
    filler = {f"f{number}": f"dog dog dog number {number} dog" for number in range(30)}
    texts = {**filler, "code": "the code of the gate: XK42"}
    vectors = Lies([Near(point_of(name, "user:ana", text), 0.9) for name, text in filler.items()])
    found = await search(Shelf(**texts), vectors, "XK42", policy=SearchPolicy(relevance=1), limit=40)
    assert "code" in [hit.found.id for hit in found.hits]


async def test_the_turn_beside_the_best_one_comes_in() -> None:
    texts = {"q": "what is our dog called", "a": "Rex", "other": "the weather is fine"}
    shelf = Shelf(order=("q", "a", "other"), **texts)
    found = await search(shelf, None, "dog called", policy=POLICY, limit=3)
    assert [hit.found.id for hit in found.hits] == ["q", "a"]


LIE = st.builds(
    Near,
    st.builds(
        Point,
        st.sampled_from(["dog", "cat", "bobs", "nobody", ""]),
        st.sampled_from(["", "0" * 12, point_of("dog", "user:ana", "our dog is called Rex").version]),
        st.sampled_from(["user:ana", "user:bob", ""]),
    ),
    st.floats(-1, 1),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(LIE, max_size=8))
async def test_whatever_the_index_says_only_present_texts_of_the_searcher_are_scored_by_it(lies: list[Near]) -> None:
    texts = {"dog": "our dog is called Rex", "cat": "the cat sleeps"}
    found = await search(Shelf(**texts), Lies(lies), "where does it bark", policy=PLAIN, limit=5)
    right = point_of("dog", "user:ana", texts["dog"])
    assert {hit.found.id for hit in found.hits} == ({"dog"} if right in [lie.point for lie in lies] else set())


async def test_vectors_of_others_of_former_texts_and_of_deleted_memories_show_nothing(store: MemoryStore) -> None:
    dog, key, old = await add(store, ANA, "Our dog is called Rex", "The key is under the mat", "We live in Brno")
    (secret,) = await add(store, BOB, "Bob wants to move out")
    await store.edit(ANA, old.id, Change(text="We live in Prague"))
    await store.trash(ANA, key.id)
    lies = Lies([Near(point_of(memory.id, str(memory.pool), memory.text), 0.9) for memory in (secret, key, old, dog)])
    assert await texts_of(store, ANA, "zzz", lies) == ["Our dog is called Rex"]
    assert await texts_of(store, Viewer(user=None, author="?"), "dog", lies) == []
    assert await texts_of(store, Viewer(user="ana", author="ana", delegated=True), "dog", lies) == []
    assert await texts_of(store, ANA, "zzz", lies, Filters(pools=(user_pool("bob"),))) == []
    assert await texts_of(store, ANA, "zzz", lies, Filters(pools=(project_pool("none"),))) == []


async def test_many_proposals_that_are_not_confirmed_do_not_hide_the_one_that_is(store: MemoryStore) -> None:
    (dog,) = await add(store, ANA, "Our dog is called Rex")
    foreign = [Near(Point(f"x{number}", "v", "user:ana"), 0.9) for number in range(300)]
    lies = Lies([*foreign, Near(point_of(dog.id, "user:ana", dog.text), 0.1)])
    assert await texts_of(store, ANA, "zzz", lies) == ["Our dog is called Rex"]


@pytest.mark.parametrize(("relevance", "hits"), [(0.0, 8), (1.0, 1)])
async def test_what_is_there_and_not_relevant_is_no_reason_to_ask_again(relevance: float, hits: int) -> None:
    texts = {f"t{number}": f"text number {number}" for number in range(40)}
    nears = [Near(point_of(name, "user:ana", told), 1 - row / 50) for row, (name, told) in enumerate(texts.items())]
    asked: list[int] = []

    class Counting(Lies):
        async def near(self, pools: Sequence[str], text: str, limit: int) -> list[Near]:
            asked.append(limit)
            return await super().near(pools, text, limit)

    policy = SearchPolicy(relevance=relevance)
    found = await search(Shelf(**texts), Counting(nears), "zzz", policy=policy, limit=8, mode="vector")
    assert (len(found.hits), len(asked)) == (hits, 1)


async def test_what_is_important_alive_and_new_comes_first_among_equals(store: MemoryStore) -> None:
    (memory,) = await add(store, ANA, "one")
    now = memory.created_at + timedelta(days=30)

    def weight(**change: object) -> float:
        from dataclasses import replace

        return mild_weight(replace(memory, **change), MemoryPolicy(), now)  # type: ignore[arg-type]

    assert weight(importance=10) > weight(importance=5) > weight(importance=1)
    assert weight(last_recalled_at=now) > weight()
    assert weight(valid_from=now) > weight()
    assert 1 < weight(importance=1) < weight(importance=10, last_recalled_at=now, valid_from=now) < 1.25


async def test_what_is_only_sorted_deleted_or_restored_keeps_its_date(store: MemoryStore) -> None:
    told = datetime(2024, 3, 1, tzinfo=UTC)
    (fact,) = await store.add(ANA, [Draft(text="Our dog is called Rex", created_at=told)])
    assert isinstance(fact, Written)
    moved = await store.edit(ANA, fact.memory.id, Change(importance=7))
    await store.trash(ANA, fact.memory.id)
    back = await store.restore(ANA, fact.memory.id)
    corrected = await store.edit(ANA, fact.memory.id, Change(text="Our dog is called Max"))
    undone = await store.undo_latest(ANA, fact.memory.id)
    for same in (moved.memory, back, undone[0]):
        assert (same.since, row_of(recalled_memory(same, None))["date"]) == (told, "2024-03-01")
        assert mild_weight(same, MemoryPolicy(), back.updated_at) < mild_weight(
            corrected.memory, MemoryPolicy(), back.updated_at
        )
    assert corrected.memory.since == corrected.memory.updated_at


async def test_the_source_of_the_index_tells_active_memories_and_what_becomes_of_them(store: MemoryStore) -> None:
    source = MemorySource(store)
    one, two = await add(store, ANA, "one", "two")
    pages = [page async for page in source.everything()]
    assert {(item.id, item.pool, item.text) for page in pages for item in page} == {
        (one.id, "user:ana", "one"),
        (two.id, "user:ana", "two"),
    }
    read = await source.latest()
    await store.trash(ANA, one.id)
    await store.edit(ANA, two.id, Change(text="three"))
    changes = {change.id: change.item for change in await source.changes(read, 10)}
    assert changes[one.id] is None
    assert changes[two.id] is not None
    assert [item.text for item in changes.values() if item is not None] == ["three"]


async def test_the_index_of_a_store_finds_by_vectors(store: MemoryStore) -> None:
    from memory.indexing import Indexer
    from memory.policy import IndexPolicy

    await add(store, ANA, "Our dog is called Rex", "Green tea without sugar")
    index = ListIndex()
    indexer = Indexer(
        embedder=HashEmbedder(), index=index, sources=[MemorySource(store)], policy=IndexPolicy(), sleep=asyncio.sleep
    )
    task = asyncio.create_task(indexer.run())
    await indexer.caught_up()
    result = await search(await corpus(store, ANA), indexer, "teas sugared", policy=PLAIN, limit=1, mode="vector")
    assert [hit.found.text for hit in result.hits] == ["Green tea without sugar"]
    task.cancel()
