from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

from gateway.clock import ManualClock, SystemClock
from tests.patience import PATIENCE_S

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)


def test_ids_of_the_system_clock_only_grow() -> None:
    clock = SystemClock()
    ids = [clock.new_id() for _ in range(5000)]
    assert ids == sorted(set(ids))
    assert {len(i) for i in ids} == {26}


def test_ids_grow_also_when_the_wall_clock_is_set_back() -> None:
    clock = ManualClock(NOON)
    first = clock.new_id()
    clock.set(NOON - timedelta(days=400))
    second = clock.new_id()
    clock.set(NOON + timedelta(days=1))
    assert first < second < clock.new_id()


def test_the_same_clock_gives_the_same_ids() -> None:
    assert [ManualClock(NOON).new_id() for _ in range(2)] == [ManualClock(NOON).new_id()] * 2


def test_now_is_in_utc_and_setting_it_moves_no_duration() -> None:
    clock = ManualClock(datetime(2026, 3, 29, 14, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == NOON
    assert clock.now().tzinfo is UTC
    clock.set(NOON + timedelta(days=3))
    assert clock.monotonic() == 0
    assert SystemClock().now().tzinfo is UTC


async def test_sleepers_wake_in_order_each_at_its_time() -> None:
    clock = ManualClock(NOON)
    woken: list[tuple[str, float, datetime]] = []

    async def sleeper(name: str, *waits: float) -> None:
        for wait in waits:
            await clock.sleep(wait)
            woken.append((name, clock.monotonic(), clock.now()))

    async with asyncio.TaskGroup() as group:
        group.create_task(sleeper("slow", 5))
        group.create_task(sleeper("twice", 2, 2))
        group.create_task(sleeper("at once", 0))
        await asyncio.sleep(0)
        await clock.advance(1)
        assert [name for name, _, _ in woken] == ["at once"]
        await clock.advance(10)
    assert [(name, at) for name, at, _ in woken[1:]] == [("twice", 2), ("twice", 4), ("slow", 5)]
    assert woken[-1][2] == NOON + timedelta(seconds=5)
    assert clock.monotonic() == 11
    assert clock.now() == NOON + timedelta(seconds=11)


async def test_a_cancelled_sleeper_wakes_nobody() -> None:
    clock = ManualClock(NOON)
    task = asyncio.ensure_future(clock.sleep(1))
    await asyncio.sleep(0)
    task.cancel()
    await clock.advance(2)
    assert task.cancelled()


async def test_a_sleep_begins_when_it_is_asked_for() -> None:
    """Also where the sleeper first runs after the clock was moved: it would sleep through what it waits for."""
    clock = ManualClock(NOON)
    sleeping = clock.sleep(60)
    await clock.advance(300)
    async with asyncio.timeout(PATIENCE_S):
        await sleeping
    assert clock.monotonic() == 300
