from __future__ import annotations

import asyncio

import pytest

from gateway.opening import Opening


class Door:
    """Opens slowly; `broken` times it fails."""

    def __init__(self, broken: int = 0) -> None:
        self.tries = 0
        self.broken = broken
        self.key = asyncio.Event()

    async def open(self) -> str:
        self.tries += 1
        await self.key.wait()
        if self.tries <= self.broken:
            raise OSError("stuck")
        return f"room {self.tries}"


async def test_it_is_opened_once_for_all_who_wait() -> None:
    door = Door()
    opening = Opening("door", door.open)
    waiting = [asyncio.create_task(opening.opened()) for _ in range(3)]
    await asyncio.sleep(0)
    door.key.set()
    assert await asyncio.gather(*waiting) == ["room 1"] * 3
    assert await opening.opened() == "room 1"


async def test_an_opening_whose_waiter_is_cancelled_goes_on_and_can_be_closed() -> None:
    door = Door()
    opening = Opening("door", door.open)
    waiting = asyncio.create_task(opening.opened())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    asyncio.get_running_loop().call_later(0.01, door.key.set)
    assert await opening.settled() == "room 1"


async def test_a_failed_opening_is_told_and_tried_again() -> None:
    door = Door(broken=1)
    door.key.set()
    opening = Opening("door", door.open)
    with pytest.raises(OSError, match="stuck"):
        await opening.opened()
    assert not opening.begun
    assert await opening.opened() == "room 2"


async def test_nothing_that_was_opened_is_nothing_to_close() -> None:
    door = Door(broken=1)
    door.key.set()
    opening = Opening("door", door.open)
    assert await opening.settled() is None
    with pytest.raises(OSError, match="stuck"):
        await opening.opened()
    assert await opening.settled() is None
