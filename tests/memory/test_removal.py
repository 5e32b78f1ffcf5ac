"""What is deleted for good is gone from everywhere; what was taken back in time is not."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import sqlite3
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, get_args

import pytest

from gateway.clock import ManualClock
from gateway.database import BUSY_TIMEOUT_MS
from memory.errors import MemoryConflict, MemoryUnavailable, NotThere
from memory.records import Change, Draft, ListQuery, State, TopicDraft, user_pool
from memory.removal import purge_rows
from tests.memory.leftovers import files_with_text
from tests.memory.opened import opened, person
from tests.patience import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from memory.memory import Memories
    from memory.records import Memory, Viewer, Written
    from memory.removal import Purged

ANA = person("ana")
START = datetime(2026, 5, 1, 12, tzinfo=UTC)
STATES: tuple[State, ...] = get_args(State)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
async def memories(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Memories]:
    async with opened(tmp_path / "state.db", clock) as memories:
        yield memories


async def trashed(memories: Memories, text: str) -> Memory:
    fact = (await memories.add(ANA, Draft(text=text))).memory
    return await memories.delete(ANA, fact.id)


@asynccontextmanager
async def a_job_that_is_undone(memories: Memories) -> AsyncIterator[Viewer]:
    job, _ = await memories.store.jobs.begin("tidy", user_pool("ana"), asked={}, automatic=False)
    yield dataclasses.replace(ANA, origin="consolidation", job=job.id)
    await memories.store.jobs.put(dataclasses.replace(job, state="done"))
    await memories.undo_job(ANA, job.id)


async def waiting(memories: Memories, count: int) -> None:
    """Until so many writes wait for their turn."""
    writer = memories.store._records._writer
    await until(lambda: len(writer._waiters or ()) == count)


async def test_what_was_restored_before_the_trash_is_emptied_stays(memories: Memories) -> None:
    fact = await trashed(memories, "the only copy of a fact")
    async with memories.store._records.writing():
        restoring = asyncio.create_task(memories.restore(ANA, fact.id))
        await waiting(memories, 1)
        emptying = asyncio.create_task(memories.empty_trash(ANA))
        expiring = asyncio.create_task(memories.store.purge_old(START + timedelta(days=40)))
        await waiting(memories, 3)
    assert (await restoring).state == "active"
    assert (await emptying).memories == []
    assert await expiring == 0
    assert (await memories.load(ANA, fact.id)).text == "the only copy of a fact"


async def test_what_went_to_the_trash_again_stays_as_long_as_everything_else(
    memories: Memories, clock: ManualClock
) -> None:
    fact = await trashed(memories, "Ana drinks tea")
    await memories.restore(ANA, fact.id)
    await clock.advance(86_400)
    await memories.delete(ANA, fact.id)
    assert await memories.store.purge_old(START) == 0
    assert await memories.store.purge_old(clock.now()) == 1


async def test_all_that_is_due_goes_in_one_upkeep_and_others_write_meanwhile(
    memories: Memories, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.store.CHUNK", 10)
    for n in range(25):
        await trashed(memories, f"fact {n}")
    left: list[int] = []

    async def write(gone: Purged) -> None:
        if not left:
            writing.append(asyncio.create_task(memories.add(ANA, Draft(text="Ana drinks tea"))))
        found, _ = await memories.page(ANA, query=ListQuery(state="trashed"))
        left.append(len(found))

    writing: list[asyncio.Task[Written]] = []
    memories.store.after_purge.append(write)
    assert await memories.store.purge_old(clock.now()) == 25
    assert left == [15, 5, 0]
    assert writing[0].done()
    assert await memories.store.count(ANA) == 1


async def test_a_trash_that_two_empty_at_once_is_emptied_once(memories: Memories) -> None:
    for n in range(30):
        await trashed(memories, f"fact {n}")
    both = await asyncio.gather(memories.empty_trash(ANA), memories.empty_trash(ANA))
    assert sum(len(one.memories) for one in both) == 30


async def test_what_cannot_be_wiped_yet_is_deleted_told_and_wiped_later(memories: Memories, tmp_path: Path) -> None:
    told: list[Purged] = []

    async def hook(gone: Purged) -> None:
        told.append(gone)

    async def full() -> bool:
        raise MemoryUnavailable("Memory cannot be reached now (database or disk is full).")

    memories.store.after_purge.append(hook)
    fact = (await memories.add(ANA, Draft(text="the safe is in zanzibar"))).memory
    scrub = memories.store._records.scrub
    memories.store._records.scrub = full
    deleted = await memories.purge(ANA, [fact.id])
    memories.store._records.scrub = scrub
    assert ([one.id for one in deleted.memories], deleted.cleared) == ([fact.id], False)
    assert [one.texts for one in told] == [{"the safe is in zanzibar"}]
    with pytest.raises(NotThere):
        await memories.load(ANA, fact.id)
    assert await memories.store.scrub()
    assert files_with_text(tmp_path, "zanzibar") == []


async def test_a_purge_is_not_called_cleared_while_a_hook_has_something_left(memories: Memories) -> None:
    async def unfinished(_: Purged) -> bool:
        return False

    memories.store.after_purge.append(unfinished)
    fact = (await memories.add(ANA, Draft(text="the safe is in zanzibar"))).memory
    assert not (await memories.purge(ANA, [fact.id])).cleared


async def test_a_reader_that_holds_the_log_open_keeps_nobody_waiting_for_long(
    memories: Memories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.database.LOG_WAIT_MS", 1)
    fact = (await memories.add(ANA, Draft(text="the safe is in zanzibar"))).memory
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM memories").fetchone()
        assert not (await memories.purge(ANA, [fact.id])).cleared
        assert (await memories.add(ANA, Draft(text="the safe is open"))).outcome == "added"
    assert await memories.store.scrub()
    assert files_with_text(tmp_path, "zanzibar") == []
    async with memories.store._records._engine.connect() as connection:  # others are waited for as before
        assert (await connection.exec_driver_sql("PRAGMA busy_timeout")).scalar_one() == BUSY_TIMEOUT_MS


async def test_a_topic_deleted_beside_a_reader_leaves_the_log_at_the_next_upkeep(
    memories: Memories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.database.LOG_WAIT_MS", 1)
    topic = await memories.topics.add_topic(ANA, user_pool("ana"), TopicDraft(name="garden", description="rhubarb"))
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM memories").fetchone()
        await memories.topics.delete_topic(ANA, topic.id)
        assert files_with_text(tmp_path, "rhubarb")
    assert await memories.store.scrub()
    assert files_with_text(tmp_path, "rhubarb") == []


async def test_a_purge_while_another_is_wiped_is_wiped_too(memories: Memories, tmp_path: Path) -> None:
    facts = [(await memories.add(ANA, Draft(text=text))).memory for text in ("safe in zanzibar", "safe in timbuktu")]
    scrub = memories.store._records.scrub

    async def meanwhile() -> bool:
        done = await scrub()
        async with memories.store._operation(ANA) as operation:
            await purge_rows(operation, memories.store._fulltext, facts[1:])
        return done

    memories.store._records.scrub = meanwhile
    assert (await memories.purge(ANA, [facts[0].id])).cleared
    memories.store._records.scrub = scrub
    assert await memories.store.scrub()
    assert files_with_text(tmp_path, "safe in") == []


async def test_the_wording_of_a_merge_that_was_undone_goes_with_each_of_its_parts(
    memories: Memories, tmp_path: Path
) -> None:
    tea, pills = [
        (await memories.add(ANA, Draft(text=text))).memory for text in ("Ana likes tea", "Ana takes zolpidem")
    ]
    async with a_job_that_is_undone(memories) as tidying:
        await memories.merge(tidying, [tea.id, pills.id], "Ana likes tea and takes zolpidem")
        await memories.update(tidying, tea.id, Change(text="Ana likes tea, and zolpidem at night"))
    told: list[Purged] = []

    async def hook(gone: Purged) -> None:
        told.append(gone)

    memories.store.after_purge.append(hook)
    await memories.purge(ANA, [pills.id])
    assert files_with_text(tmp_path, "zolpidem") == []
    assert told[0].texts == {
        "Ana takes zolpidem",
        "Ana likes tea and takes zolpidem",
        "Ana likes tea, and zolpidem at night",
    }
    added = (await memories.history(ANA, tea.id))[-1]
    assert added.after is not None, "what the other one said by itself is still told"
    assert added.after["text"] == "Ana likes tea"


async def test_what_a_job_made_of_a_memory_goes_with_it_after_the_job_was_undone(
    memories: Memories, tmp_path: Path
) -> None:
    tea, pills = [
        (await memories.add(ANA, Draft(text=text))).memory for text in ("Ana likes tea", "Ana takes zolpidem")
    ]
    async with a_job_that_is_undone(memories) as tidying:
        await memories.update(tidying, pills.id, Change(text="Ana takes zolpidem pills"))
        await memories.merge(tidying, [tea.id, pills.id], "Ana likes tea and takes zolpidem pills")
    await memories.purge(ANA, [pills.id])
    assert files_with_text(tmp_path, "zolpidem") == []


async def test_a_memory_that_was_merged_goes_for_good_with_what_it_said_before(
    memories: Memories, tmp_path: Path
) -> None:
    tea, pills = [
        (await memories.add(ANA, Draft(text=text))).memory for text in ("Ana likes tea", "Ana takes zolpidem")
    ]
    await memories.update(ANA, pills.id, Change(text="Ana sleeps badly"))
    await memories.merge(ANA, [tea.id, pills.id], "Ana likes tea and sleeps badly")
    await memories.purge(ANA, [pills.id])
    assert files_with_text(tmp_path, "zolpidem") == []
    assert (await memories.load(ANA, tea.id)).text == "Ana likes tea and sleeps badly"


# --- in any order -----------------------------------------------------------------------------------------------------

NAMES = ("quince", "zander", "walnut", "jasper")


class Random:
    """Memories that each have a name of their own, which stands in every text that comes from them."""

    def __init__(self, memories: Memories, seed: int) -> None:
        self.memories = memories
        self.chance = random.Random(seed)
        self.viewer = ANA
        self.ids: dict[str, str] = {}
        self.number = 0

    async def fill(self) -> None:
        for name in NAMES:
            self.ids[name] = (await self.memories.add(ANA, Draft(text=f"{name} first"))).memory.id

    async def active(self) -> list[Memory]:
        return (await self.memories.page(ANA, query=ListQuery(sort="created")))[0]

    async def step(self) -> None:
        self.number += 1
        active = await self.active()
        self.chance.shuffle(active)
        what = self.chance.choice(("edit", "edit", "merge", "merge", "undo", "undo", "weigh", "trash", "restore"))
        try:
            if what == "undo":
                await self.undo()
            elif what == "restore":
                for one in (await self.memories.page(ANA, query=ListQuery(state="trashed")))[0]:
                    await self.memories.restore(ANA, one.id)
            elif what == "merge" and len(active) > 1:
                await self.memories.merge(self.viewer, [one.id for one in active[:2]], self.text(*active[:2]))
            elif what == "edit" and active:
                await self.memories.update(self.viewer, active[0].id, Change(text=self.text(active[0])))
            elif what == "weigh" and active:
                await self.memories.update(self.viewer, active[0].id, Change(importance=self.number % 10 + 1))
            elif what == "trash" and active:
                await self.memories.delete(self.viewer, active[0].id)
        except MemoryConflict:
            return

    async def undo(self) -> None:
        history = await self.memories.history(ANA, self.ids[self.chance.choice(NAMES)])
        left = [entry for entry in history if entry.undone_by is None and entry.action != "added"]
        if left:
            await self.memories.undo(ANA, left[self.chance.randrange(min(2, len(left)))].operation)

    def text(self, *sources: Memory) -> str:
        names = [name for name in NAMES if any(name in one.text for one in sources)]
        return f"{' and '.join(names)} as of {self.number}"

    async def run(self) -> None:
        """A job, which is undone in one of two cases."""
        job, _ = await self.memories.store.jobs.begin("tidy", user_pool("ana"), asked={}, automatic=False)
        self.viewer = dataclasses.replace(ANA, origin="consolidation", job=job.id)
        for _ in range(self.chance.randrange(4)):
            await self.step()
        self.viewer = ANA
        await self.memories.store.jobs.put(dataclasses.replace(job, state="done"))
        if self.chance.random() < 0.5:
            with contextlib.suppress(MemoryConflict):
                await self.memories.undo_job(ANA, job.id)


@pytest.mark.parametrize("seed", range(12))
async def test_after_any_changes_and_undos_nothing_of_what_is_deleted_for_good_is_left(
    tmp_path: Path, seed: int
) -> None:
    async with opened(tmp_path / "state.db", ManualClock(START)) as memories:
        one = Random(memories, seed)
        await one.fill()
        for _ in range(3):
            for _ in range(one.chance.randrange(4)):
                await one.step()
            await one.run()
        name = one.chance.choice(NAMES)
        assert (await memories.purge(ANA, [one.ids[name]])).cleared
        left = [
            memory
            for state in STATES
            for memory in (await memories.page(ANA, query=ListQuery(state=state, limit=500)))[0]
        ]
        for memory_id in {*one.ids.values(), *(memory.id for memory in left)}:
            for entry in await memories.history(ANA, memory_id):
                assert name not in f"{entry.before} {entry.after} {entry.why}"
        if not any(name in memory.text for memory in left):
            assert files_with_text(tmp_path, name) == []
