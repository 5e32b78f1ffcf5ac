"""An application served from a thread of its own, for clients that block."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def served(build: Callable[[], web.Application]) -> Iterator[str]:
    """The base URL of the application, on a free port of the loopback address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="served", daemon=True)
    thread.start()

    async def start() -> web.AppRunner:
        runner = web.AppRunner(build(), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
