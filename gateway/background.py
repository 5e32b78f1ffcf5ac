"""Work that replies do not need: where it fails in a way nobody foresaw, it begins again and takes nobody with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from memory.errors import innermost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.clock import Clock

log = structlog.get_logger()

PAUSE_S = 10.0
TOLD_S = 3600.0
"""How long a failure is told: work that lasts may not say by itself that it is well again."""


class Background:
    """Keeps such work going. What a part foresees it handles itself, and says itself what is wrong."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[str, tuple[float, str]] = {}

    @property
    def problem(self) -> str | None:
        """What has failed of late; the log has the traceback."""
        since = self._clock.monotonic() - TOLD_S
        told = [f"{name} ({why})" for name, (at, why) in self._failed.items() if at > since]
        return f"Failed and began again; the log says where: {', '.join(told)}." if told else None

    async def keep(self, name: str, run: Callable[[], Awaitable[object]]) -> None:
        """Runs until it ends by itself, or is cancelled."""
        while True:
            try:
                await run()
            except Exception as error:
                log.exception("background.failed", part=name, retry_s=PAUSE_S)
                self._failed[name] = self._clock.monotonic(), type(innermost(error)).__name__
                await self._clock.sleep(PAUSE_S)
            else:
                return
