"""What a job has changed is taken back as far as nobody has changed it since."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gateway.clock import ManualClock
from memory.errors import MemoryConflict, NotThere
from memory.records import Change, Draft, ListQuery, TopicChange, TopicDraft, Viewer, user_pool
from memory.topics import MAX_TOPICS
from tests.memory.opened import opened, person

if TYPE_CHECKING:
    from pathlib import Path

    from memory.jobs import MemoryJob
    from memory.memory import Memories

ANA = person("ana")
TEXTS = ["Ana drinks tea", "Ana likes tea a lot", "Ana lives in Brno", "Ana has a dog"]
Seen = dict[str, tuple[str, str, int, str | None]]


async def state(memories: Memories) -> Seen:
    """What a person sees of each memory."""
    found: Seen = {}
    for where in ("active", "trashed", "superseded"):
        page, _ = await memories.page(ANA, query=ListQuery(state=where, limit=200))
        found |= {m.id: (m.text, m.state, m.importance, m.topic) for m in page}
    return found


async def begun(memories: Memories) -> tuple[MemoryJob, Viewer]:
    job, _ = await memories.store.jobs.begin("tidy", user_pool("ana"), asked={}, automatic=False)
    return job, Viewer(user=None, author="job", origin="consolidation", admin=True, job=job.id)


async def finished(memories: Memories, job: MemoryJob) -> None:
    await memories.store.jobs.put(dataclasses.replace(job, state="done"))


STEP = st.tuples(st.sampled_from(["text", "importance", "trash", "merge", "add"]), st.integers(0, 3), st.integers(0, 3))


async def step(memories: Memories, viewer: Viewer, ids: list[str], one: tuple[str, int, int], number: int) -> None:
    what, first, second = one
    if what == "add":
        await memories.add(viewer, Draft(text=f"added {number}", pool=user_pool("ana")))
        return
    active = [id_ for id_ in ids if (await memories.load(ANA, id_)).state == "active"]
    if not active:
        return
    chosen = active[first % len(active)]
    other = active[second % len(active)]
    if what == "text":
        await memories.update(viewer, chosen, Change(text=f"says {number}"))
    elif what == "importance":
        await memories.update(viewer, chosen, Change(importance=1 + number % 10))
    elif what == "trash":
        await memories.delete(viewer, chosen)
    elif chosen != other:
        await memories.merge(viewer, [chosen, other], f"merged {number}")


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # each example is a database: shrinking takes minutes
)
@given(st.lists(STEP, max_size=8), st.lists(STEP, max_size=2))
async def test_undone_each_memory_is_as_before_or_as_a_person_has_left_it(
    tmp_path: Path, steps: list[tuple[str, int, int]], person_does: list[tuple[str, int, int]]
) -> None:
    clock = ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
    async with opened(tmp_path / f"{uuid4()}.db", clock) as memories:
        ids = [(await memories.add(ANA, Draft(text=text))).memory.id for text in TEXTS]
        before = await state(memories)
        job, viewer = await begun(memories)
        for number, one in enumerate(steps):
            await step(memories, viewer, ids, one, number)
        after = await state(memories)
        for number, one in enumerate(person_does, 100):
            await step(memories, ANA, ids, one, number)
        meanwhile = await state(memories)
        await finished(memories, job)
        if not await memories.store.jobs.changes(ANA, job.id):
            with pytest.raises(MemoryConflict, match="nothing to undo"):
                await memories.undo_job(ANA, job.id)
            return
        undone = await memories.undo_job(ANA, job.id)
        now = await state(memories)
        if not person_does:
            assert undone.left == 0
            assert {id_: now[id_] for id_ in before} == before
            assert all(now[id_][1] == "trashed" for id_ in now.keys() - before.keys())
        for id_, seen in now.items():
            touched = meanwhile.get(id_) != after.get(id_)
            if touched:
                assert seen == meanwhile[id_], "what a person has changed stands"
            elif id_ in before:
                assert seen in (before[id_], after[id_])
        with pytest.raises(MemoryConflict, match="undone already"):
            await memories.undo_job(ANA, job.id)


async def test_only_the_owner_undoes_and_only_what_has_ended(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
    async with opened(tmp_path / "state.db", clock) as memories:
        job, _ = await begun(memories)
        with pytest.raises(MemoryConflict, match="still runs"):
            await memories.undo_job(ANA, job.id)
        await finished(memories, job)
        with pytest.raises(NotThere):
            await memories.undo_job(person("bob"), job.id)


async def test_what_was_deleted_for_good_since_stays_gone_and_the_history_says_nothing_of_it(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
    async with opened(tmp_path / "state.db", clock) as memories:
        tea = (await memories.add(ANA, Draft(text="Ana drinks tea"))).memory
        dog = (await memories.add(ANA, Draft(text="Ana has a dog"))).memory
        job, viewer = await begun(memories)
        await memories.update(viewer, tea.id, Change(text="Ana drinks green tea"))
        await memories.update(viewer, dog.id, Change(text="Ana has a big dog"))
        await finished(memories, job)
        told = await memories.store.jobs.changes(ANA, job.id)
        assert [(c.before["text"], c.after["text"]) for c in told if c.before and c.after] == [
            ("Ana drinks tea", "Ana drinks green tea"),
            ("Ana has a dog", "Ana has a big dog"),
        ]
        await memories.purge(ANA, [tea.id])
        undone = await memories.undo_job(ANA, job.id)
        assert ([memory.id for memory in undone.memories], undone.left) == ([dog.id], 1)
        told = await memories.store.jobs.changes(ANA, job.id)
        assert [(c.before is None, c.undone) for c in told if c.memory == tea.id] == [(True, False)]
        assert (await memories.load(ANA, dog.id)).text == "Ana has a dog"
        assert await memories.store.jobs.changes(person("bob"), job.id) == []


async def test_a_topic_that_a_run_has_deleted_comes_back_with_its_memories(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
    async with opened(tmp_path / "state.db", clock) as memories:
        pool = user_pool("ana")
        topic = await memories.topics.add_topic(ANA, pool, TopicDraft(name="plants", description="Plants"))
        fern = (await memories.add(ANA, Draft(text="Ana has a fern", topic="plants"))).memory
        job, viewer = await begun(memories)
        await memories.topics.delete_topic(dataclasses.replace(viewer, user="ana"), topic.id)
        await finished(memories, job)
        undone = await memories.undo_job(ANA, job.id)
        assert undone.left == 0
        assert (await memories.load(ANA, fern.id)).topic == topic.id
        assert topic.id in {one.id for one in await memories.topics.topics(ANA)}


async def test_no_undo_brings_back_more_topics_than_there_may_be(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
    async with opened(tmp_path / "state.db", clock) as memories:
        pool = user_pool("ana")
        topic = await memories.topics.add_topic(ANA, pool, TopicDraft(name="plants", description="Plants"))
        job, viewer = await begun(memories)
        await memories.topics.delete_topic(dataclasses.replace(viewer, user="ana"), topic.id)
        await finished(memories, job)
        for number in range(MAX_TOPICS - len(await memories.topics.topics(ANA))):
            await memories.topics.add_topic(ANA, pool, TopicDraft(name=f"topic {number}", description="More"))
        undone = await memories.undo_job(ANA, job.id)
        names = {one.name for one in await memories.topics.topics(ANA)}
        assert (undone.left, len(names), "plants" in names) == (1, MAX_TOPICS, False)


async def test_two_memories_go_back_into_a_topic_that_holds_one_now_or_stay(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
    async with opened(tmp_path / "state.db", clock) as memories:
        topic = await memories.topics.add_topic(ANA, user_pool("ana"), TopicDraft(name="plants", description="Plants"))
        texts = ("Ana has a fern", "Ana has a rose")
        ids = [(await memories.add(ANA, Draft(text=text, topic="plants"))).memory.id for text in texts]
        other = (await memories.add(ANA, Draft(text="Ana drinks tea"))).memory
        job, viewer = await begun(memories)
        for one in ids:
            await memories.update(viewer, one, Change(topic=None))
        await memories.update(viewer, other.id, Change(importance=9))
        await finished(memories, job)
        await memories.topics.edit_topic(ANA, topic.id, TopicChange(bounded=True))
        undone = await memories.undo_job(ANA, job.id)
        assert ([memory.id for memory in undone.memories], undone.left) == ([other.id], 2)


async def test_what_a_run_has_done_is_counted_as_it_is_told(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
    async with opened(tmp_path / "state.db", clock) as memories:
        ids = [(await memories.add(ANA, Draft(text=text))).memory.id for text in TEXTS]
        job, viewer = await begun(memories)
        await memories.merge(viewer, ids[:2], "Ana likes tea")
        await memories.update(viewer, ids[0], Change(importance=9))
        await memories.delete(viewer, ids[3])
        await memories.add(viewer, Draft(text="Ana has a cat", pool=user_pool("ana")))
        counts = {"added": 1, "changed": 1, "merged": 1, "deleted": 1}
        assert await memories.store.jobs.counts(job.id) == counts
        await finished(memories, job)
        await memories.purge(ANA, [ids[3]])
        assert await memories.store.jobs.counts(job.id) == {name: n for name, n in counts.items() if name != "deleted"}


async def test_the_newest_runs_of_a_pool_are_kept_and_those_that_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.job_store.KEPT_JOBS", 3)
    clock = ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
    async with opened(tmp_path / "state.db", clock) as memories:
        jobs = memories.store.jobs
        other, _ = await jobs.begin("tidy", user_pool("bob"), asked={}, automatic=False)
        await finished(memories, other)
        running, _ = await jobs.begin("sort", user_pool("ana"), asked={}, automatic=False)
        ids: list[str] = []
        for _ in range(5):
            job, _viewer = await begun(memories)
            await finished(memories, job)
            ids.append(job.id)
        last, _viewer = await begun(memories)
        assert [job.id for job in await jobs.page(ANA)] == [last.id, *reversed(ids[2:]), running.id]
        assert [job.id for job in await jobs.page(person("bob"))] == [other.id]
