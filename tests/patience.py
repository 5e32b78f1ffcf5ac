"""Waiting in tests for what other tasks, threads and processes do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PATIENCE_S = 60.0
"""A shared machine may stand still for many seconds; where all is well nothing takes nearly as long."""


async def until(ready: Callable[[], object], step_s: float = 0.01) -> None:
    """Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE_S):
        while not ready():
            await asyncio.sleep(step_s)


async def until_equal(ask: Callable[[], Awaitable[object]], wanted: object, step_s: float = 0.02) -> None:
    """Asks until the answer is as wanted; raises TimeoutError with the last one."""
    found: object = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (found := await ask()) != wanted:
                await asyncio.sleep(step_s)
    except TimeoutError:
        raise TimeoutError(f"{found} instead of {wanted}") from None
