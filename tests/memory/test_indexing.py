"""The index follows its sources, and says so only when it has counted."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.clock import ManualClock
from memory.chroma import ChromaIndex
from memory.embed import EmbeddingFailed, HashEmbedder
from memory.index import IndexBroken, IndexNotOpen, ListIndex, Point, point_of
from memory.indexing import ENDED_TWICE, RETRY_ROUNDS, RETRY_S, Indexable, IndexChange, Indexer, SourceFailed
from memory.policy import IndexPolicy
from tests.patience import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from memory.embed import Embedder, Fingerprint, Vectors
    from memory.index import Near, VectorIndex

POLICY = IndexPolicy(check_s=10)


class Texts:
    """A source as a dictionary, with its feed."""

    def __init__(self, **texts: str) -> None:
        self.items = {name: Indexable(name, "user:ana", text) for name, text in texts.items()}
        self.feed: list[IndexChange] = []
        self.failing = False

    def set(self, name: str, text: str | None) -> None:
        item = None if text is None else Indexable(name, "user:ana", text)
        if item is None:
            self.items.pop(name, None)
        else:
            self.items[name] = item
        self.feed.append(IndexChange(len(self.feed) + 1, name, item))

    async def everything(self) -> AsyncIterator[Sequence[Indexable]]:
        if self.failing:
            raise SourceFailed("state.db is locked")
        yield list(self.items.values())

    async def latest(self) -> int:
        return len(self.feed)

    async def changes(self, after: int, limit: int) -> Sequence[IndexChange]:
        if self.failing:
            raise SourceFailed("state.db is locked")
        return self.feed[after : after + limit]


class Picky:
    """HashEmbedder that refuses some texts, or all while it is down."""

    def __init__(self, refuses: str = "\0") -> None:
        self.inner = HashEmbedder()
        self.refuses = refuses
        self.down = False

    async def prepare(self) -> Fingerprint:
        return await self.inner.prepare()

    async def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return await self.embed_passages(texts)

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        if self.down or any(self.refuses in text for text in texts):
            raise EmbeddingFailed("refused")
        return await self.inner.embed_passages(texts)

    async def close(self) -> None:
        return


class Running:
    """An indexer that runs, on a clock that stands."""

    def __init__(self, index: VectorIndex, source: Texts, embedder: Embedder) -> None:
        self.clock = ManualClock(datetime(2026, 12, 1, tzinfo=UTC))
        self.index = index
        self.indexer = Indexer(embedder=embedder, index=index, sources=[source], policy=POLICY, sleep=self.clock.sleep)

    async def until(self, state: str, step_s: float = 0) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while self.indexer.status.state != state:
                    await asyncio.sleep(0.001)
                    await self.clock.advance(step_s)
        except TimeoutError:
            raise AssertionError(f"{self.indexer.status} instead of {state}") from None

    async def find(self, text: str) -> list[str]:
        await self.indexer.caught_up()
        return [near.point.id for near in await self.indexer.near(["user:ana"], text, 3)]


@asynccontextmanager
async def running(
    index: VectorIndex, source: Texts, embedder: Embedder | None = None, state: str = "serving"
) -> AsyncIterator[Running]:
    one = Running(index, source, embedder or HashEmbedder())
    task = asyncio.create_task(one.indexer.run())
    try:
        await one.until(state)
        yield one
    finally:
        task.cancel()
        await asyncio.wait([task])
        await index.close()


async def test_what_is_there_at_the_start_and_what_comes_later_is_found() -> None:
    source = Texts(dog="the dog is called Rex", tea="green tea without sugar")
    async with running(ListIndex(), source) as one:
        assert (await one.find("called dog"))[0] == "dog"
        source.set("car", "the car is red")
        source.set("dog", None)
        assert (await one.find("red car"))[0] == "car"
        assert "dog" not in await one.find("called dog")


async def test_a_text_that_changed_has_one_vector_and_the_new_one() -> None:
    source = Texts(a="the dog is called Rex")
    async with running(ListIndex(), source) as one:
        source.set("a", "the car is red")
        source.set("a", "the roof is new")
        await one.indexer.caught_up()
        assert await one.index.count() == 1
        (near,) = await one.indexer.near(["user:ana"], "the roof is new", 3)
        assert near.score == pytest.approx(1)


async def test_what_happened_while_the_daemon_was_down_is_made_good_at_the_start() -> None:
    index = ListIndex()
    source = Texts(stays="the dog", changes="the cat", goes="the horse")
    async with running(index, source):
        pass
    source.set("changes", "the cow")
    source.set("goes", None)
    source.set("new", "the goat")
    async with running(index, source) as one:
        assert {near.point.id for near in await one.indexer.near(["user:ana"], "x", 9)} == {"stays", "changes", "new"}
        assert await one.index.count() == 3


async def test_it_does_not_answer_before_it_is_whole() -> None:
    embedder = Picky()
    embedder.down = True
    async with running(ListIndex(), Texts(a="one", b="two"), embedder, "waiting") as one:
        with pytest.raises(IndexBroken, match="refused"):
            await one.indexer.near(["user:ana"], "one", 1)
        assert one.indexer.status.problem == "refused"
        embedder.down = False
        await one.until("serving", RETRY_S)
        assert one.indexer.status.problem is None
        assert one.indexer.status.done == 2


async def test_one_text_that_the_model_refuses_keeps_no_other_out_and_is_counted_and_tried_again() -> None:
    embedder = Picky("poison")
    source = Texts(a="one", b="poison", c="three")
    async with running(ListIndex(), source, embedder) as one:
        assert await one.index.count() == 2
        assert one.indexer.status.failed == 1
        embedder.refuses = "\0"
        for _ in range(RETRY_ROUNDS):
            await one.indexer.caught_up()
            one.indexer.wake()
        await one.indexer.caught_up()
        assert one.indexer.status.failed == 0
        assert await one.index.count() == 3


async def test_many_texts_that_the_model_refuses_keep_no_other_out() -> None:
    embedder = Picky("poison")
    texts = {f"t{n}": f"poison {n}" if 5 <= n < 15 else f"text {n}" for n in range(30)}
    source = Texts(**texts)
    async with running(ListIndex(), source, embedder) as one:
        assert (one.indexer.status.done, one.indexer.status.failed) == (20, 10)
        for n in range(10):
            source.set(f"more{n}", f"poison again {n}")
        source.set("good", "the car is red")
        assert (await one.find("red car"))[0] == "good"
        assert one.indexer.status.failed == 20


async def test_a_model_that_is_down_is_not_asked_for_every_text() -> None:
    asked: list[int] = []

    class Counting(Picky):
        async def embed_passages(self, texts: Sequence[str]) -> Vectors:
            asked.append(len(texts))
            return await super().embed_passages(texts)

    embedder = Counting()
    embedder.down = True
    async with running(ListIndex(), Texts(**{f"t{n}": f"text {n}" for n in range(100)}), embedder, "waiting"):
        assert len(asked) < 10


async def test_what_is_deleted_is_wiped_while_new_texts_wait_for_a_model_that_is_down() -> None:
    wiped: list[Sequence[str] | None] = []

    class Wiping(ListIndex):
        async def wipe(self, pools: Sequence[str] | None) -> None:
            wiped.append(pools)

    embedder, source = Picky(), Texts(dog="the dog is called Rex", tea="green tea without sugar")
    async with running(Wiping(), source, embedder) as one:
        wiped.clear()
        embedder.down = True
        for number in range(100):
            source.set(f"t{number}", f"text {number}")
        source.set("dog", None)
        one.indexer.wipe_soon(["user:ana"])
        one.indexer.wake()
        await one.until("waiting")
        await one.clock.advance(RETRY_S)
        await until(lambda: wiped == [["user:ana"]])
        assert [point for point in await one.index.points() if point.startswith("dog")] == []


async def test_texts_that_are_refused_for_good_let_the_others_have_their_turn() -> None:
    embedder = Picky("o")
    source = Texts(x="text", **{f"p{n}": f"poison {n}" for n in range(5)}, later="slow")
    async with running(ListIndex(), source, embedder) as one:
        assert one.indexer.status.failed == 6
        embedder.refuses = "poison"
        for _ in range(3 * RETRY_ROUNDS):
            await one.indexer.caught_up()
        assert one.indexer.status.failed == 5


async def test_points_that_vanish_or_appear_by_themselves_make_it_build_anew() -> None:
    index = ListIndex()
    source = Texts(a="one", b="two")
    async with running(index, source) as one:
        await index.remove([point_of("a", "user:ana", "one")])
        one.indexer.wake()
        await one.until("waiting")
        await one.until("serving", RETRY_S)
        assert await index.count() == 2
        (vector,) = await HashEmbedder().embed_passages(["three"])
        await index.put([Point("foreign", "1", "user:bob")], vector.reshape(1, -1))
        one.indexer.wake()
        await one.until("waiting")
        await one.until("serving", RETRY_S)
        assert "foreign#1" not in await index.points()


class Ending(ListIndex):
    """Whoever has it open may end, and then it must be opened again."""

    def __init__(self) -> None:
        super().__init__()
        self.open_now = False
        self.resets = 0

    async def open(self, fingerprint: Fingerprint) -> None:
        self.open_now = True
        await super().open(fingerprint)

    async def near(self, pools: Sequence[str] | None, vector: Vectors, limit: int) -> list[Near]:
        if not self.open_now:
            raise IndexNotOpen("ended")
        return await super().near(pools, vector, limit)

    async def count(self) -> int:
        if not self.open_now:
            raise IndexNotOpen("ended")
        return await super().count()

    async def reset(self) -> None:
        self.resets += 1
        await super().reset()


async def test_an_index_whose_process_ended_is_opened_again_and_made_anew_when_that_comes_twice() -> None:
    index = Ending()
    async with running(index, Texts(a="one", b="two")) as one:

        async def end() -> None:
            index.open_now = False
            with pytest.raises(IndexNotOpen):
                await one.indexer.near(["user:ana"], "one", 1)
            await one.until("serving", RETRY_S)
            assert await one.find("one") == ["a", "b"]

        await end()
        assert index.resets == 0
        for _ in range(ENDED_TWICE):
            await one.find("one")
        await end()
        assert index.resets == 0
        await end()
        assert index.resets == 1


async def test_searches_that_met_a_process_that_had_ended_cost_no_index() -> None:
    index = Ending()
    async with running(index, Texts(a="one")) as one:
        index.open_now = False
        told = await asyncio.gather(
            *(one.indexer.near(["user:ana"], "one", 1) for _ in range(5)), return_exceptions=True
        )
        assert all(isinstance(error, IndexBroken) for error in told)
        await one.until("serving", RETRY_S)
        await one.find("one")
        assert index.resets == 0


async def test_a_source_that_cannot_be_read_is_asked_again() -> None:
    source = Texts(a="one")
    source.failing = True
    async with running(ListIndex(), source, state="waiting") as one:
        assert one.indexer.status.problem == "state.db is locked"
        source.failing = False
        await one.until("serving", RETRY_S)
        source.failing = True
        one.indexer.wake()
        await one.until("waiting")
        source.failing = False
        await one.until("serving", RETRY_S)


async def test_a_rebuild_begins_with_nothing_and_ends_whole() -> None:
    source = Texts(a="one", b="two")
    async with running(ListIndex(), source) as one:
        one.indexer.rebuild()
        await asyncio.sleep(0.01)
        await one.until("serving")
        assert await one.index.count() == 2


async def test_the_folder_of_the_index_is_deleted_while_it_runs(tmp_path: Path) -> None:
    source = Texts(dog="the dog is called Rex", tea="green tea without sugar")
    index = ChromaIndex(tmp_path / "index")
    async with running(index, source) as one:
        assert (await one.find("called dog"))[0] == "dog"
        shutil.rmtree(tmp_path / "index")
        with pytest.raises(IndexBroken):
            await one.indexer.near(["user:ana"], "dog", 1)
        await one.until("serving", RETRY_S)
        assert (await one.find("called dog"))[0] == "dog"


STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.none() | st.sampled_from(["dog", "cat", "poison", "tea"])), max_size=12
)


@settings(max_examples=25, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=3))
async def test_after_any_changes_and_restarts_the_index_holds_exactly_the_texts(
    lives: list[list[tuple[str, str | None]]],
) -> None:
    index = ListIndex()
    source = Texts(a="one")
    for steps in lives:
        async with running(index, source) as one:
            for name, text in steps:
                source.set(name, text)
                if text == "cat":
                    await one.indexer.caught_up()
            await one.indexer.caught_up()
            nears: list[Near] = await one.indexer.near(["user:ana"], "x", 9)
            assert {near.point.id for near in nears} == source.items.keys()
            assert await index.count() == len(source.items)
