"""Waiting for something, but not for ever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from gateway.clock import Clock


async def within(clock: Clock, seconds: float, awaited: Awaitable[object]) -> bool:
    """Whether something ended within the time; the wait is cancelled when it did not. Its error is raised."""
    sleeper = asyncio.ensure_future(clock.sleep(seconds))
    waited = asyncio.ensure_future(awaited)
    try:
        await asyncio.wait({sleeper, waited}, return_when=asyncio.FIRST_COMPLETED)
        if waited.done():
            await waited
            return True
        return False
    finally:
        sleeper.cancel()
        waited.cancel()
