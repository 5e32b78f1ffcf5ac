"""Tidying as a job: cut, stopped and undone at every step each memory is as before or as after."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from gateway.clock import ManualClock
from gateway.consolidation_gates import CONVERSATIONS, SETTING
from gateway.ledger import UsageLedger
from gateway.memory_wiring import MemoryWork, build_memory_work
from gateway.models.policy import ModelPolicy, RolesPolicy
from gateway.models.pool import ModelPool
from memory.policy import ConsolidationPolicy, MemoryPolicy
from memory.records import Change, Draft, ListQuery, TopicDraft, Viewer, Written, user_pool
from sessions.entries import UserEntry
from tests.gateway.test_memory_tools import Opened, no_vectors
from tests.journeys.helpers import Helper
from tests.memory.opened import opened, person
from tests.patience import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from gateway.clock import Clock
    from memory.jobs import MemoryJob
    from memory.memory import Memories

ANA = person("ana")
LEARNT = dataclasses.replace(ANA, origin="learning")
POOL = user_pool("ana")
START = datetime(2026, 5, 1, tzinfo=UTC)
LONG = (
    "Ana said, when somebody asked her about it, that she really wants answers to be short, and that answers be short"
)
Seen = dict[str, tuple[str, str, int, str | None]]


def tidy(question: dict[str, Any]) -> str:
    """Merges the tea, sorts the boat under a topic of its own, shortens, and throws the weather away."""
    by_text = {m["text"]: m["id"] for m in question["memories"]}
    boat = [m["id"] for m in question["memories"] if "Vega" in m["text"] and m["topic"] != "sailing"]
    changes: list[dict[str, Any]] = [{"op": "update", "id": one, "topic": "sailing"} for one in boat]
    if {"Ana drinks green tea", "Ana drinks tea without sugar"} <= by_text.keys():
        ids = [by_text["Ana drinks green tea"], by_text["Ana drinks tea without sugar"]]
        changes.insert(0, {"op": "merge", "ids": ids, "text": "Ana drinks green tea without sugar"})
    if LONG in by_text:
        changes.append({"op": "update", "id": by_text[LONG], "text": "Ana wants answers to be short, she said"})
    if "It rained on Monday" in by_text:
        changes.append({"op": "delete", "id": by_text["It rained on Monday"]})
    topics = [{"op": "add", "name": "sailing", "description": "The boat and where it is"}]
    return "Certainly:\n" + json.dumps({"changes": changes, "topics": topics})


async def fill(memories: Memories) -> None:
    for text, topic in (
        ("Ana drinks green tea", "preferences"),
        ("Ana drinks tea without sugar", "preferences"),
        ("Ana's boat is called Vega", None),
        ("The boat Vega lies in Split", None),
        ("Ana lives in Brno", None),
    ):
        await memories.add(ANA, Draft(text=text, topic=topic))
    for text in (LONG, "It rained on Monday"):
        await memories.add(LEARNT, Draft(text=text))


async def seen(memories: Memories) -> Seen:
    """What a person sees of each memory that is not a former version."""
    found: Seen = {}
    for state in ("active", "trashed", "superseded"):
        page, _ = await memories.page(ANA, query=ListQuery(state=state, limit=200))
        names = await memories.topic_names(ANA, page)
        found |= {m.id: (m.text, m.state, m.importance, names.get(m.topic or "")) for m in page}
    return found


async def topics(memories: Memories) -> set[str]:
    return {topic.name for topic in await memories.topics.topics(ANA)}


@asynccontextmanager
async def tidying(
    path: Path, helper: Helper, clock: Clock | None = None, **policy: Any
) -> AsyncIterator[tuple[Memories, MemoryWork, asyncio.Task[None]]]:
    clock = clock or ManualClock(START)
    async with opened(path / "state.db", clock) as memories:
        pool = ModelPool(
            policies={"tidy": ModelPolicy(provider="openai", model="tidy")},
            roles=RolesPolicy(consolidation="tidy"),
            agents={},
            environ={},
            monotonic=clock.monotonic,
            count=len,
            load_blob=lambda _: b"",
        )
        pool.put(helper)
        ledger = UsageLedger(path / "ledger.db", clock, lambda *_: None)
        settings = MemoryPolicy(consolidation=ConsolidationPolicy(**policy))
        part = Opened(path, memories)
        work = build_memory_work(
            memory=part, vectors=no_vectors(path, part, clock), models=pool, ledger=ledger, clock=clock, policy=settings
        )
        task = asyncio.create_task(work.jobs.run())
        await work.jobs._begun.wait()
        try:
            yield memories, work, task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def ended(memories: Memories, job: MemoryJob) -> MemoryJob:
    async with asyncio.timeout(PATIENCE_S):
        while (found := await memories.store.jobs.load(ANA, job.id)).state == "running":
            await asyncio.sleep(0.002)
    return found


async def run(memories: Memories, work: MemoryWork) -> MemoryJob:
    return await ended(memories, (await work.jobs.start(ANA, "consolidate"))[0])


async def test_a_pool_is_tidied_told_and_taken_back(tmp_path: Path) -> None:
    helper = Helper(tidy, "tidy")
    async with tidying(tmp_path, helper) as (memories, work, _):
        await fill(memories)
        before = await seen(memories)
        job = await run(memories, work)
        assert (job.state, job.done, job.total, job.failed, job.model) == ("done", 7, 7, 0, "tidy")
        assert job.counts == {"changed": 4, "merged": 1, "deleted": 1, "topics_added": 1}
        active, _ = await memories.page(ANA)
        names = await memories.topic_names(ANA, active)
        assert {m.text: names.get(m.topic or "") for m in active} == {
            "Ana drinks green tea without sugar": "preferences",
            "Ana's boat is called Vega": "sailing",
            "The boat Vega lies in Split": "sailing",
            "Ana lives in Brno": None,
            "Ana wants answers to be short, she said": None,
        }
        assert {m.text for m in active if m.checked_at is not None} == {"Ana lives in Brno"}
        told = await memories.store.jobs.changes(ANA, job.id)
        assert {(c.before["text"], c.after["text"], c.after["state"]) for c in told if c.before and c.after} >= {
            ("Ana drinks green tea", "Ana drinks green tea without sugar", "active"),
            ("Ana drinks tea without sugar", "Ana drinks tea without sugar", "superseded"),
            ("It rained on Monday", "It rained on Monday", "trashed"),
        }
        undone = await memories.undo_job(ANA, job.id)
        assert undone.left == 0
        after = await seen(memories)
        assert {id_: after[id_] for id_ in before} == before
        assert after.keys() == before.keys()
        assert "sailing" not in await topics(memories)
        again = await run(memories, work)
        assert (again.total, again.counts) == (0, {}), "what a person has undone is left alone"


async def test_what_was_looked_at_is_not_asked_about_again_until_a_person_edits_it(tmp_path: Path) -> None:
    helper = Helper(lambda _: '{"changes": []}', "tidy")
    async with tidying(tmp_path, helper) as (memories, work, _):
        await fill(memories)
        assert (await run(memories, work)).total == 7
        assert (await run(memories, work)).total == 0
        (brno,) = [m for m in (await memories.page(ANA))[0] if "Brno" in m.text]
        await memories.update(ANA, brno.id, Change(text="Ana lives in Praha"))
        assert (await memories.load(ANA, brno.id)).checked_at is None
        assert (await run(memories, work)).total == 1
        assert len(helper.asked) == 2


STEPS = range(1, 6)


@pytest.mark.parametrize("step", STEPS)
async def test_ended_after_any_write_it_goes_on_and_comes_to_the_same(tmp_path: Path, step: int) -> None:
    helper = Helper(tidy, "tidy")
    async with tidying(tmp_path, helper) as (memories, work, task):
        await fill(memories)
        before = await seen(memories)
        writes = 0

        def cut(_: object) -> None:
            nonlocal writes
            writes += 1
            if writes == step:
                task.cancel()

        memories.after_write.append(cut)
        job, _ = await work.jobs.start(ANA, "consolidate")
        await asyncio.gather(task, return_exceptions=True)
        middle = await seen(memories)
    async with tidying(tmp_path, helper) as (memories, work, task):
        done = await ended(memories, job)
        assert (done.state, done.failed) == ("done", 0)
        assert done.counts == {"changed": 4, "merged": 1, "deleted": 1, "topics_added": 1}
        after = await seen(memories)
        current = {id_: one for id_, one in after.items() if id_ in before}
        for id_, one in middle.items():
            if id_ in before:
                assert one in (before[id_], current[id_])
        await memories.undo_job(ANA, job.id)
        assert {id_: one for id_, one in (await seen(memories)).items() if id_ in before} == before


@pytest.mark.parametrize("step", STEPS)
async def test_stopped_after_any_write_each_memory_is_as_before_or_after_and_goes_back(
    tmp_path: Path, step: int
) -> None:
    helper = Helper(tidy, "tidy")
    async with tidying(tmp_path, helper) as (memories, work, _):
        await fill(memories)
        before = await seen(memories)
        job: list[MemoryJob] = []
        writes = 0

        def stop(_: object) -> None:
            nonlocal writes
            writes += 1
            if writes == step:
                work.jobs._running[job[0].id].stop()

        memories.after_write.append(stop)
        helper.going.clear()
        job.append((await work.jobs.start(ANA, "consolidate"))[0])
        helper.going.set()
        stopped = await ended(memories, job[0])
        assert stopped.state == "stopped"
        assert sum(n for name, n in stopped.counts.items() if name != "topics_added") == step + 1  # a merge is two
        await memories.undo_job(ANA, job[0].id)
        assert {id_: one for id_, one in (await seen(memories)).items() if id_ in before} == before
        assert "sailing" not in await topics(memories)


async def test_what_a_person_does_meanwhile_stands_before_and_after_the_undo(tmp_path: Path) -> None:
    helper = Helper(tidy, "tidy")
    async with tidying(tmp_path, helper) as (memories, work, _):
        await fill(memories)
        by_text = {m.text: m for m in (await memories.page(ANA))[0]}
        helper.going.clear()
        job, _ = await work.jobs.start(ANA, "consolidate")
        while not helper.asked:
            await asyncio.sleep(0.002)
        sugar, split = by_text["Ana drinks tea without sugar"], by_text["The boat Vega lies in Split"]
        await memories.update(ANA, sugar.id, Change(text="Ana drinks tea with honey"))
        await memories.delete(ANA, split.id)
        helper.going.set()
        done = await ended(memories, job)
        assert done.state == "done"
        assert (await memories.load(ANA, sugar.id)).text == "Ana drinks tea with honey"
        assert (await memories.load(ANA, by_text["Ana drinks green tea"].id)).text == "Ana drinks green tea"
        assert (await memories.load(ANA, split.id)).state == "trashed"
        vega = by_text["Ana's boat is called Vega"]
        await memories.update(ANA, vega.id, Change(importance=9))
        undone = await memories.undo_job(ANA, job.id)
        assert undone.left == 2, "the boat that was changed since, and so its topic"
        kept = await memories.load(ANA, vega.id)
        assert kept.importance == 9
        assert "sailing" in await topics(memories)
        assert (await memories.load(ANA, by_text[LONG].id)).text == LONG


def enriched(text: str) -> Callable[[dict[str, Any]], str]:
    """Puts what another memory says into the one about Brno."""

    def says(question: dict[str, Any]) -> str:
        change = {"op": "update", "text": text}
        return json.dumps({"changes": [change | {"id": m["id"]} for m in question["memories"] if "Brno" in m["text"]]})

    return says


@pytest.mark.parametrize(
    "text", ["Ana lives in Brno and takes zolpidem", "Ana lives in Brno near the river, with zolpidem"]
)
@pytest.mark.parametrize("how", ["purged", "trashed", "edited"])
async def test_what_is_deleted_while_the_model_is_asked_comes_back_in_no_other_memory(
    tmp_path: Path, text: str, how: str
) -> None:
    helper = Helper(enriched(text), "tidy")
    async with tidying(tmp_path, helper) as (memories, work, _):
        await memories.add(LEARNT, Draft(text="Ana lives in Brno near the river"))
        pills = (await memories.add(ANA, Draft(text="Ana takes zolpidem"))).memory
        helper.going.clear()
        job, _ = await work.jobs.start(ANA, "consolidate")
        await until(lambda: helper.asked)
        if how == "purged":
            await memories.purge(ANA, [pills.id])
        elif how == "trashed":
            await memories.delete(ANA, pills.id)
        else:
            await memories.update(ANA, pills.id, Change(text="Ana sleeps well"))
        helper.going.set()
        assert (await ended(memories, job)).counts == {}
        assert not [m.text for m in (await memories.page(ANA))[0] if "zolpidem" in m.text]


async def test_what_is_deleted_between_two_writes_comes_back_in_no_other_memory(tmp_path: Path) -> None:
    def says(question: dict[str, Any]) -> str:
        by_text = {m["text"]: m["id"] for m in question["memories"]}
        first = {"op": "update", "id": by_text[LONG], "text": "Ana wants answers to be short, she said"}
        second = {"op": "update", "id": by_text["Ana lives in Brno"], "text": "Ana lives in Brno and takes zolpidem"}
        return json.dumps({"changes": [first, second]})

    helper = Helper(says, "tidy")
    async with tidying(tmp_path, helper) as (memories, work, _):
        for text in (LONG, "Ana lives in Brno"):
            await memories.add(LEARNT, Draft(text=text))
        pills = (await memories.add(ANA, Draft(text="Ana takes zolpidem"))).memory
        write = memories.update

        async def and_then_purged(viewer: Viewer, memory_id: str, change: Change) -> Written:
            done = await write(viewer, memory_id, change)
            memories.update = write
            await memories.purge(ANA, [pills.id])
            return done

        memories.update = and_then_purged
        assert (await run(memories, work)).counts == {"changed": 1}
        assert {m.text for m in (await memories.page(ANA))[0]} == {
            "Ana wants answers to be short, she said",
            "Ana lives in Brno",
        }


async def test_what_a_step_of_the_run_has_changed_may_still_be_a_source_of_the_next(tmp_path: Path) -> None:
    def says(question: dict[str, Any]) -> str:
        by_text = {m["text"]: m["id"] for m in question["memories"]}
        away = {"op": "delete", "id": by_text["Ana takes zolpidem"]}
        into = {"op": "update", "id": by_text["Ana lives in Brno"], "text": "Ana lives in Brno and takes zolpidem"}
        return json.dumps({"changes": [away, into]})

    async with tidying(tmp_path, Helper(says, "tidy")) as (memories, work, _):
        for text in ("Ana lives in Brno", "Ana takes zolpidem"):
            await memories.add(LEARNT, Draft(text=text))
        await run(memories, work)
        assert [m.text for m in (await memories.page(ANA))[0]] == ["Ana lives in Brno and takes zolpidem"]


async def test_a_topic_a_person_has_made_stays_and_one_of_its_own_goes_when_nothing_needs_it(tmp_path: Path) -> None:
    helper = Helper(tidy, "tidy")
    async with tidying(tmp_path, helper) as (memories, work, _):
        await fill(memories)
        await memories.topics.add_topic(ANA, POOL, TopicDraft(name="garden", description="The garden"))
        await run(memories, work)
        boats = [m for m in (await memories.page(ANA))[0] if "Vega" in m.text]
        for memory in boats:
            await memories.update(ANA, memory.id, Change(topic="projects"))
        drop = [{"op": "delete", "name": name} for name in ("garden", "sailing", "decisions")]
        helper.says = lambda _: json.dumps({"changes": [], "topics": drop})
        second = await run(memories, work)
        assert second.counts == {"topics_deleted": 1}
        assert {"garden", "decisions"} <= await topics(memories)
        assert "sailing" not in await topics(memories)
        await memories.undo_job(ANA, second.id)
        assert "sailing" in await topics(memories)


@pytest.mark.parametrize("bad", ["I cannot do that.", "", "down"])
async def test_a_model_that_gives_nothing_changes_nothing_and_is_no_success(tmp_path: Path, bad: str) -> None:
    helper = Helper(lambda _: bad, "tidy")
    async with tidying(tmp_path, helper) as (memories, work, _):
        await fill(memories)
        before = await seen(memories)
        job = await run(memories, work)
        assert (job.state, job.failed, job.done, job.counts) == ("incomplete", 7, 0, {})
        assert job.problem
        assert await seen(memories) == before
        assert all(m.checked_at is None for m in (await memories.page(ANA))[0])


# --- by itself --------------------------------------------------------------------------------------------------------


class Chat:
    def __init__(self, name: str) -> None:
        self.id = name


def say(work: MemoryWork, session: str, user: str = "ana") -> None:
    entry = UserEntry(seq=1, at=START, text="hi", user=user, turn="t")  # pyright: ignore[reportCallIssue]
    work.gates.spoken(Chat(session), [entry])  # pyright: ignore[reportArgumentType]


async def runs(memories: Memories) -> list[MemoryJob]:
    return await memories.store.jobs.page(ANA, kind="consolidate")


async def test_by_itself_it_waits_for_both_gates_and_for_the_person(tmp_path: Path) -> None:
    clock = ManualClock(START)
    helper = Helper(lambda _: '{"changes": []}', "tidy")
    async with tidying(tmp_path, helper, clock) as (memories, work, _):
        await fill(memories)
        for number in range(5):
            say(work, f"s{number}")
        await work.gates.run_due(clock.now())
        assert await runs(memories) == [], "off by default"
        await memories.store.settings.put(ANA, None, SETTING, True)
        for number in (1, 2, 3, 3, 4):
            say(work, f"s{number}")
            say(work, f"s{number}", "bob")
        await work.gates.run_due(clock.now())
        assert await runs(memories) == [], "four conversations"
        say(work, "s5")
        await work.gates.run_due(clock.now())
        (first,) = await runs(memories)
        assert first.automatic
        await ended(memories, first)
        for number in range(6, 12):
            say(work, f"s{number}")
        clock.set(START + timedelta(hours=23, minutes=59))
        await work.gates.run_due(clock.now())
        assert len(await runs(memories)) == 1, "not 24 hours"
    async with tidying(tmp_path, helper, clock) as (memories, work, _):
        clock.set(START + timedelta(hours=24))
        await work.gates.run_due(clock.now())
        assert len(await runs(memories)) == 2, "counted through a restart"
        assert await memories.store.jobs.page(person("bob")) == []
        by_hand = await run(memories, work)
        assert not by_hand.automatic or by_hand.state == "done"
        await work.gates.run_due(clock.now())
        assert (await memories.store.settings.everybody(CONVERSATIONS))[POOL] == []


async def test_run_now_asks_for_no_gate(tmp_path: Path) -> None:
    async with tidying(tmp_path, Helper(tidy, "tidy")) as (memories, work, _):
        await fill(memories)
        first, second = await run(memories, work), await run(memories, work)
        assert first.id != second.id
