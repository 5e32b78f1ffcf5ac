"""What somebody writes as a memory says when: words like yesterday get their dates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from gateway.clock import ManualClock
from memory.policy import MemoryPolicy
from memory.records import Change, Draft, Origin, Viewer
from tests.memory.opened import exported, opened, person, taken_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from memory.memory import Memories

ANA = person("ana")
EVENING = datetime(2026, 5, 6, 22, 30, tzinfo=UTC)
"""Of a Wednesday; in Prague it is Thursday."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(EVENING)


@pytest.fixture
async def memories(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Memories]:
    async with opened(tmp_path / "state.db", clock) as memories:
        yield memories


async def kept(memories: Memories, viewer: Viewer, draft: Draft) -> str:
    return (await memories.add(viewer, draft)).memory.text


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        ("person", "Ana moved yesterday (2026-05-05)"),
        ("tool", "Ana moved yesterday (2026-05-05)"),
        ("learning", "Ana moved yesterday"),
    ],
)
async def test_who_writes_a_memory_speaks_of_today_and_what_is_learnt_was_said_before(
    memories: Memories, origin: Origin, text: str
) -> None:
    assert await kept(memories, person("ana", origin=origin), Draft(text="Ana moved yesterday")) == text


async def test_the_day_is_that_of_the_zone(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path / "state.db", clock, zone=ZoneInfo("Europe/Prague")) as memories:
        assert await kept(memories, ANA, Draft(text="Ana moved yesterday")) == "Ana moved yesterday (2026-05-06)"


async def test_names_quotations_and_what_has_a_time_of_its_own_stay(memories: Memories) -> None:
    for text in ("Ana's favourite song is Yesterday", "The file is called today.md", 'The view is called "today"'):
        assert await kept(memories, ANA, Draft(text=text)) == text
    past = Draft(text="Ana starts tomorrow", valid_from=EVENING - timedelta(days=90))
    assert await kept(memories, ANA, past) == "Ana starts tomorrow"


async def test_a_text_with_no_room_for_the_date_is_kept_without(memories: Memories) -> None:
    longest = "Ana moved yesterday. ".ljust(MemoryPolicy().max_characters, "a")
    assert await kept(memories, ANA, Draft(text=longest)) == longest


async def test_a_correction_is_dated_but_for_words_that_were_said_another_day(
    memories: Memories, clock: ManualClock
) -> None:
    fact = (await memories.add(ANA, Draft(text="Ana lives in Brno"))).memory
    changed = await memories.store.edit(ANA, fact.id, Change(text="Ana moved to Zlin today"))
    assert changed.memory.text == "Ana moved to Zlin today (2026-05-06)"
    changed = await memories.store.edit(ANA, fact.id, Change(text="Ana moved to Zlin today (2026-05-06), to a flat"))
    assert changed.memory.text == "Ana moved to Zlin today (2026-05-06), to a flat"
    past = Draft(text="Ana bought a boat last week", valid_from=EVENING - timedelta(days=90))
    old = (await memories.add(ANA, past)).memory
    clock.set(clock.now() + timedelta(days=1))
    changed = await memories.store.edit(ANA, old.id, Change(text="Ana bought a red boat last week"))
    assert changed.memory.text == "Ana bought a red boat last week"
    merged = await memories.merge(ANA, [fact.id, old.id], "Ana moved and bought a boat last week")
    assert merged.memory.text == "Ana moved and bought a boat last week"


async def test_the_same_words_of_two_days_are_two_facts_and_an_export_comes_back_as_it_was(
    memories: Memories, clock: ManualClock
) -> None:
    for _ in range(2):
        await memories.add(ANA, Draft(text="Ana was ill today"))
        clock.set(clock.now() + timedelta(days=1))
    lines = await exported(memories, ANA)
    assert [f"Ana was ill today (2026-05-0{day})" in lines for day in (6, 7)] == [True, True]
    done = await taken_in(memories, ANA, lines.replace(" (2026-05-06)", ""))
    assert done.added == 1
    assert 'Ana was ill today"' in await exported(memories, ANA)
