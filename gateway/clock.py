"""The one source of time, ids and waiting."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ulid import ULID

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine
    from pathlib import Path

T = TypeVar("T")

ENDING_S = 5.0
"""Real seconds for work that was ended to notice; nobody waits longer for it."""


class Clock(Protocol):
    def now(self) -> datetime:
        """An aware time in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for durations."""
        ...

    def sleep(self, seconds: float) -> Awaitable[None]: ...
    def new_id(self) -> str:
        """A ULID, larger than every one before it."""
        ...


async def nap(clock: Clock, seconds: float, wake: asyncio.Event) -> None:
    """Sleeps until somebody wakes it, or the time is over."""
    waits = [asyncio.ensure_future(clock.sleep(seconds)), asyncio.ensure_future(wake.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


class SystemClock:
    """The machine's clock."""

    def __init__(self) -> None:
        self._last = 0

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def new_id(self) -> str:
        value = max(int(ULID()), self._last + 1)
        self._last = value
        return str(ULID.from_int(value))


class ManualClock:
    """A clock that moves only when told to: for showing what a day does in a second."""

    def __init__(self, at: datetime) -> None:
        self._now = at.astimezone(UTC)
        self._elapsed = 0.0
        self._ids = 0
        self._last = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed

    def set(self, at: datetime) -> None:
        """Sets the wall clock, as a person or a time server does; nobody wakes."""
        self._now = at.astimezone(UTC)

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Its time begins with the call, not when the sleeper is first run: the clock may be moved in between."""
        if seconds <= 0:
            return asyncio.sleep(0)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ids += 1
        heapq.heappush(self._sleepers, (self._elapsed + seconds, self._ids, future))
        return future

    async def advance(self, seconds: float) -> None:
        """Lets time pass, waking sleepers in order; each runs until it waits again before the next one wakes."""
        await _settle()
        target = self._elapsed + seconds
        while self._sleepers and self._sleepers[0][0] <= target:
            due, _, future = heapq.heappop(self._sleepers)
            self._now += timedelta(seconds=due - self._elapsed)
            self._elapsed = due
            if not future.done():
                future.set_result(None)
            await _settle()
        self._now += timedelta(seconds=target - self._elapsed)
        self._elapsed = target

    def new_id(self) -> str:
        self._last = max((int(self._now.timestamp() * 1000) << 80) + 1, self._last + 1)
        return str(ULID.from_int(self._last))


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns. Raises TimeoutError once that many seconds of this clock have passed, after ending it."""
    task = asyncio.create_task(work)
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise TimeoutError(f"more than {seconds:g} s")
    finally:
        timer.cancel()
        task.cancel()
        await asyncio.wait({task, timer}, timeout=ENDING_S)


async def _settle() -> None:
    """Lets tasks run until they wait, for as many steps as tests of ours need between two waits."""
    for _ in range(20):
        await asyncio.sleep(0)


def machine_zone(name: str | None, localtime: Path) -> ZoneInfo:
    """The zone of this machine: `TZ`, else what /etc/localtime links to, else UTC."""
    resolved = str(localtime.resolve()) if localtime.is_symlink() else ""
    for candidate in (name, resolved.partition("/zoneinfo/")[2]):
        if candidate:
            with contextlib.suppress(ZoneInfoNotFoundError, ValueError, OSError):
                return ZoneInfo(candidate.lstrip(":"))
    return ZoneInfo("UTC")
