"""The loop that delivers, beside its table."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from gateway.clock import ManualClock
from gateway.jobs.outbox import Outbox
from gateway.jobs.policy import DeliverPolicy, DeliverTo
from gateway.jobs.sender import Outcome
from gateway.jobs.store import JobStore
from tests.patience import until

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.jobs.values import Delivery

NOW = datetime(2026, 12, 1, tzinfo=UTC)
UNUSED = cast("Any", None)
TARGET = DeliverTo(url="https://example.org/x")


class Receiver:
    """Takes everything, once it may."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.got: list[str] = []

    async def send(self, target: DeliverTo, message_id: str, timestamp: int, body: bytes) -> Outcome:
        self.got.append(message_id)
        await self.may.wait()
        return Outcome()


class SlowStore(JobStore):
    """What was read is told later."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.read = 0
        self.tell = asyncio.Event()
        self.tell.set()

    async def heads(self) -> list[Delivery]:
        heads = await super().heads()
        self.read += 1
        await self.tell.wait()
        return heads


async def test_what_ends_while_the_table_is_read_is_not_sent_again(tmp_path: Path) -> None:
    store, receiver = SlowStore(tmp_path / "state.db"), Receiver()
    await store.open()
    outbox = Outbox(
        store=store,
        sender=receiver,
        turns=UNUSED,
        sessions=UNUSED,
        clock=ManualClock(NOW),
        policy=DeliverPolicy(),
        count=len,
        jitter=lambda: 0.0,
    )
    first, second = (outbox.draft(TARGET, key="agent:main:main", kind="n", facts={}, notice=t) for t in ("one", "two"))
    await store.save(deliveries=[first, second])
    running = asyncio.create_task(outbox.run())
    await until(lambda: receiver.got == [first.id])
    store.tell.clear()
    read = store.read
    outbox.wake()
    await until(lambda: store.read > read)
    receiver.may.set()
    await until(lambda: not outbox._busy)
    store.tell.set()
    await until(lambda: len(receiver.got) >= 2 and not outbox._busy)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    kept = [await store.delivery(one.id) for one in (first, second)]
    await store.close()
    assert receiver.got == [first.id, second.id]
    assert [one.attempts for one in kept if one is not None] == [1, 1]
