"""Long work on many texts, with a turn for everybody else in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE = 10_000
"""Characters worked on before the loop goes on: some milliseconds. A thread would be no better, as it holds Python's
lock: one that cuts a hundred long texts kept the loop waiting for a third of a second."""


async def turn_by_turn(work: Callable[[T], R], items: Iterable[T], length: Callable[[T], int]) -> list[R]:
    """What comes of each, in their order; `length` in characters."""
    done: list[R] = []
    since = 0
    for item in items:
        done.append(work(item))
        since += length(item)
        if since >= AT_ONCE:
            since = 0
            await asyncio.sleep(0)
    return done
