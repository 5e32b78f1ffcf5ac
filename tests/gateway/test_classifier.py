"""Memories without a topic are sorted beside the replies."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from gateway.classifier import VIEWER
from gateway.clock import ManualClock
from gateway.ledger import UsageLedger
from gateway.memory_wiring import build_memory_work
from gateway.models.base import Finished, ModelBroken, TextDelta
from gateway.models.policy import ModelPolicy, RolesPolicy
from gateway.models.pool import ModelPool
from memory.policy import MemoryPolicy
from memory.records import Change, Draft, Filters, TopicChange, TopicDraft, user_pool
from tests.gateway.test_memory_tools import Opened, no_vectors
from tests.memory.opened import ROOT, opened, person
from tests.patience import until_equal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
    from pathlib import Path

    import pytest

    from gateway.classifier import Classifier
    from gateway.models.base import ModelEvent, ModelRequest
    from memory.memory import Memories

ANA = person("ana")


class Sorter:
    """A helper model that answers what it is told to, and remembers what it was asked."""

    name = model = "helper"
    window = None

    def __init__(self) -> None:
        self.replies: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.told: Callable[[], Awaitable[object]] | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.asked.append(orjson.loads(request.prompt.messages[0].text))
        if self.told is not None:
            await self.told()
        text = self.replies.pop(0) if self.replies else "{}"
        if text == "broken":
            raise ModelBroken("The helper model is away.")
        yield TextDelta(text)
        yield Finished(text=text, calls=(), finish="stop", usage=None, model="helper")

    async def close(self) -> None:
        """Nothing is open."""


@asynccontextmanager
async def sorting(path: Path, sorter: Sorter) -> AsyncIterator[tuple[Memories, ManualClock, Classifier]]:
    clock = ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
    async with opened(path / "state.db", clock) as memories:
        pool = ModelPool(
            policies={"helper": ModelPolicy(provider="offline", model="helper")},
            roles=RolesPolicy(helper="helper"),
            agents={},
            environ={},
            monotonic=clock.monotonic,
            count=len,
            load_blob=lambda _: b"",
        )
        pool.put(sorter)
        ledger = UsageLedger(path / "ledger.db", clock, lambda *_: None)
        part = Opened(path, memories)
        work = build_memory_work(
            memory=part,
            vectors=no_vectors(path, part, clock),
            models=pool,
            ledger=ledger,
            clock=clock,
            policy=MemoryPolicy(),
        )
        classifier = work.classifier
        task = asyncio.create_task(classifier.run())
        while memories.recategorize is None:
            await asyncio.sleep(0)
        try:
            yield memories, clock, classifier
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def asked(clock: ManualClock, sorter: Sorter, times: int) -> None:
    """Lets time pass until the model was asked so often."""
    while len(sorter.asked) < times:
        await clock.advance(1)
        await asyncio.sleep(0.001)


async def topic_of(memories: Memories, memory_id: str, wanted: str | None) -> bool:
    async def name() -> str | None:
        memory = await memories.load(ANA, memory_id)
        return (await memories.topic_names(ANA, [memory])).get(memory.topic or "")

    await until_equal(name, wanted)
    return True


async def test_a_new_memory_gets_its_topic_and_one_that_fits_nowhere_has_none(tmp_path: Path) -> None:
    sorter = Sorter()
    sorter.replies = ['Here: {"1": "preferences", "2": null}']
    async with sorting(tmp_path, sorter) as (memories, clock, _):
        tea = (await memories.add(ANA, Draft(text="Ana drinks tea"))).memory
        odd = (await memories.add(ANA, Draft(text="It rains"))).memory
        await asked(clock, sorter, 1)
        assert await topic_of(memories, tea.id, "preferences")
        assert (await memories.load(ANA, odd.id)).topic is None
        assert (await memories.history(ANA, tea.id))[0].origin == "recategorising"
        assert [set(one["facts"].values()) for one in sorter.asked] == [{"Ana drinks tea", "It rains"}]


async def test_what_a_person_has_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    sorter = Sorter()
    async with sorting(tmp_path, sorter) as (memories, clock, _):
        tea = (await memories.add(ANA, Draft(text="Ana drinks tea"))).memory
        await memories.update(ANA, tea.id, Change(topic="decisions"))
        sorter.replies = ['{"1": "preferences"}']
        await asked(clock, sorter, 1)
        coffee = (await memories.add(ANA, Draft(text="Ana drinks coffee"))).memory
        sorter.replies = ['{"1": "preferences"}']
        await asked(clock, sorter, 2)
        assert await topic_of(memories, coffee.id, "preferences")
        assert await topic_of(memories, tea.id, "decisions")


async def test_prose_is_asked_again_once_and_a_model_that_is_away_is_shown(tmp_path: Path) -> None:
    sorter = Sorter()
    async with sorting(tmp_path, sorter) as (memories, clock, classifier):
        sorter.replies = ["I cannot", '{"1": "preferences"}', "broken"]
        tea = (await memories.add(ANA, Draft(text="Ana drinks tea"))).memory
        await asked(clock, sorter, 2)
        assert await topic_of(memories, tea.id, "preferences")
        await memories.add(ANA, Draft(text="Ana drinks coffee"))
        await asked(clock, sorter, 3)
        while classifier.problem is None:
            await asyncio.sleep(0.001)
        assert "away" in classifier.problem


async def test_what_waited_when_the_daemon_ended_is_sorted_after_the_next_start(tmp_path: Path) -> None:
    async with opened(tmp_path / "state.db", ManualClock(datetime(2026, 4, 20, tzinfo=UTC))) as memories:
        await memories.add(ANA, Draft(text="Ana had an old bicycle"))
    async with opened(tmp_path / "state.db", ManualClock(datetime(2026, 5, 1, tzinfo=UTC))) as memories:
        tea = (await memories.add(ANA, Draft(text="Ana drinks tea"))).memory
    sorter = Sorter()
    sorter.replies = ['{"1": "preferences"}']
    async with sorting(tmp_path, sorter) as (memories, clock, _):
        await asked(clock, sorter, 1)
        assert await topic_of(memories, tea.id, "preferences")
        assert sorter.asked[0]["facts"] == {"1": "Ana drinks tea"}


async def test_what_could_not_be_written_stays_in_the_queue_and_is_sorted_without_another_write(tmp_path: Path) -> None:
    sorter = Sorter()
    sorter.replies = ['{"1": "preferences"}', '{"1": "preferences"}']
    async with sorting(tmp_path, sorter) as (memories, clock, _):
        tea = (await memories.add(ANA, Draft(text="Ana drinks tea"))).memory
        records = memories.store._records
        records._wait_s = 0.01
        async with records.writing():
            await asked(clock, sorter, 1)
            await asyncio.sleep(0.05)
        records._wait_s = 10
        await asked(clock, sorter, 2)
        assert await topic_of(memories, tea.id, "preferences")


async def test_what_the_queue_has_no_room_for_is_read_from_the_records_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.classifier.MOST", 10)
    monkeypatch.setattr("gateway.classifier.LEFT_MOST", 10)
    sorter = Sorter()
    async with sorting(tmp_path, sorter) as (memories, clock, classifier):
        long_ago = datetime(2020, 1, 1, tzinfo=UTC)
        drafts = [Draft(text=f"Ana likes number {number}", created_at=long_ago) for number in range(45)]
        await memories.add_many(ANA, drafts)
        sorter.replies = ["{}"] + [orjson.dumps({str(n): "preferences" for n in range(1, 11)}).decode()] * 5
        await asked(clock, sorter, 6)
        await until_equal(lambda: memories.store.count(ANA, Filters(no_topic=True)), 0)
        assert {text for one in sorter.asked for text in one["facts"].values()} == {draft.text for draft in drafts}
        await memories.add_many(ANA, [Draft(text=f"It rains on day {number}") for number in range(25)])
        while classifier._waiting or classifier._left or classifier._reading or len(sorter.asked) < 10:
            await clock.advance(1)
            await asyncio.sleep(0.001)
        await memories.add(ANA, Draft(text="Ana drinks tea"))
        await asked(clock, sorter, 11)
        assert list(sorter.asked[-1]["facts"].values()) == ["Ana drinks tea"]


async def test_what_was_imported_with_older_dates_is_sorted_after_the_next_start(tmp_path: Path) -> None:
    async with opened(tmp_path / "state.db", ManualClock(datetime(2026, 5, 1, tzinfo=UTC))) as memories:
        await memories.add(ANA, Draft(text="Ana drinks tea", created_at=datetime(2020, 1, 1, tzinfo=UTC)))
    sorter = Sorter()
    async with sorting(tmp_path, sorter) as (_, clock, _):
        await asked(clock, sorter, 1)
        assert sorter.asked[0]["facts"] == {"1": "Ana drinks tea"}


async def test_a_topic_that_needs_properties_or_belongs_to_a_project_is_offered_to_nobody_else(tmp_path: Path) -> None:
    sorter = Sorter()
    async with sorting(tmp_path, sorter) as (memories, clock, _):
        await memories.topics.put_project(ROOT, "bridge", name="Bridge", with_members=["ana"])
        for draft in (
            TopicDraft(name="customers", description="what customers want", scope_properties=("customer",)),
            TopicDraft(name="bridge", description="what Ana builds", project="bridge"),
        ):
            await memories.topics.add_topic(ANA, user_pool("ana"), draft)
        tea = (await memories.add(ANA, Draft(text="Ana drinks tea"))).memory
        await asked(clock, sorter, 1)
        assert [one["name"] for one in sorter.asked[0]["topics"]] == [
            "decisions",
            "preferences",
            "projects",
            "reference",
        ]
        assert await topic_of(memories, tea.id, None)


async def test_what_a_topic_does_not_take_stays_and_the_others_are_sorted(tmp_path: Path) -> None:
    sorter = Sorter()
    async with sorting(tmp_path, sorter) as (memories, clock, classifier):
        sorter.told = lambda: memories.topics.edit_topic(
            ANA, preferences.id, TopicChange(scope_properties=("customer",))
        )
        preferences = next(one for one in await memories.topics.topics(ANA) if one.name == "preferences")
        tea = (await memories.add(ANA, Draft(text="Ana drinks tea"))).memory
        book = (await memories.add(ANA, Draft(text="Ana reads the manual"))).memory
        sorter.replies = ['{"1": "preferences", "2": "reference"}']
        await asked(clock, sorter, 1)
        assert await topic_of(memories, book.id, "reference")
        assert await topic_of(memories, tea.id, None)
        assert classifier.problem is None


async def test_sorting_everything_again_leaves_what_is_bound_to_a_project(tmp_path: Path) -> None:
    sorter = Sorter()
    async with sorting(tmp_path, sorter) as (memories, _, classifier):
        await memories.topics.put_project(ROOT, "bridge", name="Bridge", with_members=["ana"])
        draft = TopicDraft(name="bridge", description="what Ana builds", project="bridge")
        await memories.topics.add_topic(ANA, user_pool("ana"), draft)
        pier = (await memories.add(ANA, Draft(text="The pier is cracked", topic="bridge"))).memory
        tea = (await memories.add(ANA, Draft(text="Ana drinks tea", topic="decisions"))).memory
        sorter.replies = ['{"1": "preferences", "2": "preferences"}']
        model = classifier._models.for_role("helper")
        assert model is not None
        assert await classifier._sorter.sort(memories, model, VIEWER, [pier, tea]) == 1
        assert sorter.asked[0]["facts"] == {"1": tea.text}
        assert await topic_of(memories, pier.id, "bridge")
