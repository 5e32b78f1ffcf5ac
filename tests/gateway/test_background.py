from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from gateway.background import PAUSE_S, TOLD_S, Background
from gateway.clock import ManualClock
from tests.patience import until


async def test_work_that_fails_is_told_and_begins_again_until_it_ends() -> None:
    clock = ManualClock(datetime(2026, 12, 1, tzinfo=UTC))
    background, begun = Background(clock), 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())

    async def fail() -> None:
        raise KeyError("a person's words")

    keeping = asyncio.create_task(background.keep("bees", work))
    await until(lambda: background.problem is not None)
    assert "bees (KeyError)" in (background.problem or "")
    assert "words" not in (background.problem or "")
    assert begun == 1
    await clock.advance(PAUSE_S)
    await keeping
    assert begun == 2
    await clock.advance(TOLD_S)
    assert background.problem is None


async def test_work_that_is_cancelled_ends() -> None:
    background = Background(ManualClock(datetime(2026, 12, 1, tzinfo=UTC)))
    keeping = asyncio.create_task(background.keep("bees", asyncio.Event().wait))
    await asyncio.sleep(0)
    keeping.cancel()
    await asyncio.wait({keeping})
    assert keeping.cancelled()
    assert background.problem is None
