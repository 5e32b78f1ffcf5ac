"""The one loop for everything timed: sleeps until something is due, in bounded steps, and is woken by changes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

import structlog

from gateway.clock import nap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from datetime import datetime

    from gateway.clock import Clock

LONGEST_SLEEP_S = 60.0
STILL_DUE_S = 0.25
FAILED_S = 30.0
JUMP_S = 5.0

log = structlog.get_logger()


class NotNow(Exception):
    """What is due cannot be done now: it is tried again after `FAILED_S`. The message says why."""


class Timed(Protocol):
    """Something with due times. It keeps them itself, so that a restart or a clock that is set loses none."""

    name: str

    def next_due(self, now: datetime) -> datetime | None:
        """When there is something to do, `now` or earlier for at once; None: nothing for now. Quick and pure."""
        ...

    async def run_due(self, now: datetime) -> None:
        """Does what is due, once, however late it is. Only one call runs at a time; others are not held up by it.

        Raises NotNow when it cannot.
        """
        ...


class Periodic:
    """Housekeeping at a steady pace: at `first_at`, then `every_s` after it last began.

    After three days of sleep it is done once; a clock that is set back makes nobody wait longer than `every_s`.
    """

    def __init__(
        self, name: str, every_s: float, work: Callable[[], Awaitable[object] | None], *, first_at: datetime
    ) -> None:
        self.name = name
        self._every = timedelta(seconds=every_s)
        self._work = work
        self._next_at = first_at

    def next_due(self, now: datetime) -> datetime | None:
        self._next_at = min(self._next_at, now + self._every)
        return self._next_at

    async def run_due(self, now: datetime) -> None:
        work = self._work()
        if work is not None:
            await work
        self._next_at = now + self._every


def next_due(things: Iterable[Timed], now: datetime) -> datetime | None:
    """When the first of them is due."""
    return min((at for thing in things if (at := thing.next_due(now)) is not None), default=None)


class Scheduler:
    """Runs things when they are due. `add` and `wake` may be called at any time, also before `run`.

    It believes no clock for longer than a minute: one that was set, or a machine that slept, is noticed at the next
    step. What is due several times over is still one call of `run_due`, which gets the time to decide by.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._things: list[Timed] = []
        self._running: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._changed = asyncio.Event()

    def add(self, thing: Timed) -> None:
        """Names are unique."""
        self._things.append(thing)
        self.wake()

    def wake(self) -> None:
        """Something is due at another time than before."""
        self._changed.set()

    @property
    def idle(self) -> bool:
        """Whether nothing runs, and everything that was due has been."""
        now = self._clock.now()
        due = next_due(self._free(), now)
        return not self._running and not self._changed.is_set() and (due is None or due > now)

    async def run(self) -> None:
        """Until it is cancelled; what runs is cancelled with it."""
        seen, ticks = self._clock.now(), self._clock.monotonic()
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                now = self._clock.now()
                jumped_s = (now - seen).total_seconds() - (self._clock.monotonic() - ticks)
                if abs(jumped_s) > JUMP_S:
                    log.warning("clock.jumped", seconds=round(jumped_s))
                seen, ticks = now, self._clock.monotonic()
                for thing in self._free():
                    due = thing.next_due(now)
                    if due is not None and due <= now:
                        self._running.add(thing.name)
                        group.create_task(self._run(thing, now), name=f"due {thing.name}")
                await nap(self._clock, self._sleep_s(now), self._changed)

    def _free(self) -> list[Timed]:
        ticks = self._clock.monotonic()
        return [
            thing
            for thing in self._things
            if thing.name not in self._running and self._not_before.get(thing.name, ticks) <= ticks
        ]

    def _sleep_s(self, now: datetime) -> float:
        waits = [LONGEST_SLEEP_S]
        at = next_due(self._free(), now)
        if at is not None:
            waits.append((at - now) / timedelta(seconds=1))
        ticks = self._clock.monotonic()
        waits += [until - ticks for name, until in self._not_before.items() if name not in self._running]
        return max(0.0, min(waits))

    async def _run(self, thing: Timed, now: datetime) -> None:
        pause_s = FAILED_S
        try:
            await thing.run_due(now)
            after = self._clock.now()
            due = thing.next_due(after)
            pause_s = STILL_DUE_S if due is not None and due <= after else 0.0
        except NotNow as error:
            log.warning("due.not_now", thing=thing.name, why=str(error), retry_s=FAILED_S)
        except Exception:
            log.exception("due.failed", thing=thing.name, retry_s=FAILED_S)
        finally:
            self._running.discard(thing.name)
        if pause_s:
            self._not_before[thing.name] = self._clock.monotonic() + pause_s
        else:
            self._not_before.pop(thing.name, None)
        self._changed.set()
