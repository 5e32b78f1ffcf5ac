"""Daemons as processes of their own, forked from one that has imported everything: a start is a fifth of the work."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.crash.preloaded"])


class Forked:
    """`python -m gateway`, without its log: what is used here of an `asyncio.subprocess.Process`."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._process = CONTEXT.Process(target=_main, args=(list(arguments),), daemon=True)

    async def start(self) -> None:
        await asyncio.to_thread(self._process.start)

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> None:
        await asyncio.to_thread(self._process.join)


def _main(arguments: Sequence[str]) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    from gateway.cli import app

    app(arguments)
