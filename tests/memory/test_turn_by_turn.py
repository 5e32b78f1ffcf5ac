"""Long work leaves everybody else their turn."""

from __future__ import annotations

import asyncio

from memory.turn_by_turn import AT_ONCE, turn_by_turn


async def turns_beside(texts: list[str]) -> int:
    """How often another task had its turn while the texts were worked on."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    assert await turn_by_turn(str.upper, texts, len) == [text.upper() for text in texts]
    beside.cancel()
    return turns


async def test_others_have_their_turn_between_long_texts() -> None:
    assert await turns_beside(["a" * AT_ONCE] * 5) == 5
    assert await turns_beside(["a" * (AT_ONCE // 10)] * 50) == 5


async def test_short_texts_are_worked_on_at_once() -> None:
    assert await turns_beside(["a", "b"]) == 0
