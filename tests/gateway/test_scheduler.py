from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from gateway.clock import ManualClock
from gateway.scheduler import FAILED_S, NotNow, Periodic, Scheduler, next_due

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.scheduler import Timed

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Hourly:
    """Due at every full hour; remembers when it ran."""

    def __init__(self, clock: ManualClock, name: str = "hourly") -> None:
        self.name = name
        self._clock = clock
        self.due: datetime | None = clock.now() + HOUR
        self.ran: list[datetime] = []
        self.hang: asyncio.Event | None = None
        self.fail = False

    def next_due(self, now: datetime) -> datetime | None:
        return self.due

    async def run_due(self, now: datetime) -> None:
        if self.fail:
            raise RuntimeError("no")
        self.ran.append(self._clock.now())
        if self.hang is not None:
            await self.hang.wait()
        self.due = self._clock.now().replace(minute=0, second=0, microsecond=0) + HOUR


@asynccontextmanager
async def running(clock: ManualClock, *things: Timed) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(clock)
    for thing in things:
        scheduler.add(thing)
    task = asyncio.create_task(scheduler.run())
    await clock.advance(0)
    try:
        yield scheduler
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_the_first_due_time_counts() -> None:
    clock = ManualClock(START)
    soon, late, never = Hourly(clock), Hourly(clock), Hourly(clock)
    late.due, never.due = START + 5 * HOUR, None
    assert next_due([late, soon, never], START) == START + HOUR
    assert next_due([never], START) is None


async def test_things_run_when_they_are_due() -> None:
    clock = ManualClock(START)
    thing = Hourly(clock)
    async with running(clock, thing):
        await clock.advance(3599)
        assert thing.ran == []
        await clock.advance(2 * 3600)
    assert thing.ran == [START + HOUR, START + 2 * HOUR]


async def test_a_change_is_seen_at_once() -> None:
    clock = ManualClock(START)
    thing = Hourly(clock)
    async with running(clock, thing) as scheduler:
        thing.due = START
        scheduler.wake()
        await clock.advance(0)
        assert thing.ran == [START]


async def test_three_days_of_sleep_are_one_run() -> None:
    clock = ManualClock(START)
    thing = Hourly(clock)
    async with running(clock, thing):
        clock.set(START + timedelta(days=3))
        await clock.advance(61)
        assert len(thing.ran) == 1


async def test_a_clock_that_is_set_back_delays_nothing_for_longer_than_it_was_wrong() -> None:
    clock = ManualClock(START)
    thing = Hourly(clock)
    async with running(clock, thing):
        clock.set(START - timedelta(minutes=30))
        await clock.advance(3600)
        assert thing.ran == []
        await clock.advance(1801)
        assert len(thing.ran) == 1


async def test_a_thing_that_hangs_delays_no_other_and_runs_once_at_a_time() -> None:
    clock = ManualClock(START)
    stuck, other = Hourly(clock, "stuck"), Hourly(clock, "other")
    stuck.hang = asyncio.Event()
    async with running(clock, stuck, other):
        await clock.advance(3 * 3600)
        assert (len(stuck.ran), len(other.ran)) == (1, 3)
        stuck.hang.set()
        await clock.advance(3600)
        assert (len(stuck.ran), len(other.ran)) == (2, 4)


async def test_a_thing_that_fails_is_asked_again_later_and_stops_nobody() -> None:
    clock = ManualClock(START)
    broken, other = Hourly(clock, "broken"), Hourly(clock, "other")
    broken.fail = True
    async with running(clock, broken, other):
        await clock.advance(3600)
        broken.fail = False
        assert len(other.ran) == 1
        await clock.advance(FAILED_S - 1)
        assert broken.ran == []
        await clock.advance(1)
        assert len(broken.ran) == 1


async def test_a_thing_that_stays_due_does_not_spin() -> None:
    clock = ManualClock(START)

    class Stays(Hourly):
        async def run_due(self, now: datetime) -> None:
            self.ran.append(now)

    thing = Stays(clock)
    thing.due = START
    async with running(clock, thing):
        await clock.advance(10)
    assert 1 < len(thing.ran) <= 41


class Swept:
    """Housekeeping that remembers when it was done, and fails while it is told to."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.at: list[datetime] = []
        self.full = False

    async def sweep(self) -> None:
        if self.full:
            raise NotNow("the disk is full")
        self.at.append(self._clock.now())


async def test_housekeeping_comes_at_its_pace_once_after_a_sleep_and_soon_after_the_clock_was_set_back() -> None:
    clock = ManualClock(START)
    swept = Swept(clock)
    async with running(clock, Periodic("sweep", 3600, swept.sweep, first_at=START)):
        await clock.advance(2 * 3600)
        assert swept.at == [START, START + HOUR, START + 2 * HOUR]
        clock.set(START + timedelta(days=3))
        await clock.advance(61)
        assert len(swept.at) == 4
        clock.set(START - timedelta(days=300))
        await clock.advance(3661)
        assert len(swept.at) == 5


async def test_housekeeping_that_cannot_be_done_now_is_tried_again_soon_and_told_without_a_trace() -> None:
    clock = ManualClock(START)
    swept = Swept(clock)
    swept.full = True
    with capture_logs() as logs:
        async with running(clock, Periodic("sweep", 3600, swept.sweep, first_at=START)):
            await clock.advance(FAILED_S + 1)
            swept.full = False
            await clock.advance(FAILED_S)
    assert [(line["event"], line["why"]) for line in logs] == [("due.not_now", "the disk is full")] * 2
    assert swept.at == [START + timedelta(seconds=2 * FAILED_S)]
