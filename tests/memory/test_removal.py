"""What is deleted for good is gone from everywhere; what was taken back in time is not."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from gateway.clock import ManualClock
from memory.errors import MemoryUnavailable, NotThere
from memory.records import Draft
from memory.removal import purge_rows
from tests.memory.leftovers import files_with_text
from tests.memory.opened import opened, person
from tests.patience import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from memory.memory import Memories
    from memory.records import Memory
    from memory.removal import Purged

ANA = person("ana")
START = datetime(2026, 5, 1, 12, tzinfo=UTC)


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
