"""Runs and deliveries that were timed while the clock was years ahead, once it is put right."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from gateway.clock import ManualClock
from gateway.jobs.outbox import Outbox
from gateway.jobs.policy import DeliverPolicy, DeliverTo, JobsPolicy
from gateway.jobs.runs import LONGEST_SPREAD, Runs
from gateway.jobs.sender import Outcome
from gateway.jobs.store import JobStore, Mark
from gateway.jobs.values import Run
from tests.patience import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

NOW = datetime(2026, 12, 1, tzinfo=UTC)
AHEAD = datetime(2030, 1, 1, tzinfo=UTC)
UNUSED = cast("Any", None)


class Receiver:
    """Takes deliveries when it is up."""

    def __init__(self) -> None:
        self.up = False
        self.tries = 0

    async def send(self, target: DeliverTo, message_id: str, timestamp: int, body: bytes) -> Outcome:
        self.tries += 1
        return Outcome() if self.up else Outcome("down")


class Speechless:
    """Has nothing to say, so that its runs end at once."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def text_of(self, run: Run) -> str:
        raise ValueError("nothing to say")

    async def settle(self, run: Run) -> None:
        self.ended.append(run.id)


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[JobStore]:
    store = JobStore(folder / "state.db")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def going(loop: Runs | Outbox) -> AsyncGenerator[None]:
    task = asyncio.create_task(loop.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_delivery_that_failed_by_a_wrong_clock_is_tried_soon_and_given_up_in_its_time(tmp_path: Path) -> None:
    clock, receiver = ManualClock(AHEAD), Receiver()
    async with opened(tmp_path) as store:
        outbox = Outbox(
            store=store,
            sender=receiver,
            turns=UNUSED,
            sessions=UNUSED,
            clock=clock,
            policy=DeliverPolicy(),
            count=len,
            jitter=lambda: 0.0,
        )
        target = DeliverTo(url="https://example.org/x")
        first = outbox.draft(target, key="agent:main:main", kind="n", facts={}, notice="one")
        await store.save(deliveries=[first])
        async with going(outbox):
            await until(lambda: (outbox.next_due(AHEAD) or AHEAD) > AHEAD)
            clock.set(NOW)
            assert NOW < (outbox.next_due(NOW) or NOW) <= NOW + timedelta(minutes=66)
            outbox.wake()
            await until(lambda: receiver.tries == 2)
            await until(lambda: (outbox.next_due(NOW) or NOW) > NOW)
            kept = await store.delivery(first.id)
            assert kept is not None
            assert (kept.status, kept.give_up_at) == ("pending", NOW + timedelta(hours=24))
            receiver.up = True
            await clock.advance(60)
            await outbox.run_due(clock.now())
            await until(lambda: receiver.tries == 3)


async def test_a_run_that_was_to_start_by_a_wrong_clock_starts_now(tmp_path: Path) -> None:
    clock, owner = ManualClock(NOW), Speechless()
    async with opened(tmp_path) as store:
        runs = Runs(store=store, turns=UNUSED, clock=clock, policy=JobsPolicy(), cost=lambda _: None)
        runs.owners["job"] = owner
        base: dict[str, Any] = {"kind": "job", "name": "j", "due_at": NOW, "trigger": "schedule", "request": "r"}
        ahead = Run(id="1", owner="1", key="cron:1", start_at=AHEAD, **base)
        soon = Run(id="2", owner="2", key="cron:2", start_at=NOW + timedelta(seconds=5), **base)
        async with going(runs):
            runs.enter([ahead, soon])
            await until(lambda: owner.ended == ["1"])
            assert runs.next_due(NOW) == soon.start_at
            assert runs.next_due(NOW - timedelta(days=9)) == NOW - timedelta(days=9) + LONGEST_SPREAD


async def test_a_prefix_is_followed_since_it_was_first_named_and_anew_after_it_was_not(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        assert await store.follow(["a", "b"], NOW) == {"a": NOW, "b": NOW}
        later = NOW + timedelta(hours=1)
        assert await store.follow(["a"], later) == {"a": NOW}
        assert await store.follow(["a", "b"], later) == {"a": NOW, "b": later}
        await store.save(marks=[Mark("01J", 7)])
        assert await store.follow([], later) == {}
        assert await store.follow(["a"], later) == {"a": later}


async def test_what_an_older_version_followed_is_followed_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.save(marks=[Mark("01J", 7)])
        assert await store.follow(["a"], NOW) == {"a": datetime(1970, 1, 1, tzinfo=UTC)}
