"""The life of a daemon: starts its parts in order, and stops them in the opposite order."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from gateway.http.app import build_app
from gateway.http.runner import ProblemRunner
from gateway.parts import Parts
from gateway.refill import refill
from sessions.files import DirectoryLock, load_boot_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from gateway.config import Config

log = structlog.get_logger()


class CannotListen(OSError):
    """The address is taken, or not one of this machine."""


class Daemon:
    """A running sessiond. `run` returns when `stop` was asked for and everything is on disk."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.url = ""
        self.ready = asyncio.Event()
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ends the daemon: no new turns, running ones get `shutdown.grace_s`."""
        self._stop.set()

    async def run(self) -> None:
        """Serves until stopped. A loop that dies ends the daemon. Raises AlreadyRunning, CannotListen, StorageError."""
        parts = self.parts
        parts.files.make_folder(parts.data_dir)
        lock = DirectoryLock.acquire(
            parts.data_dir / "lock", pid=os.getpid(), boot_id=load_boot_id(), started_at=parts.clock.now()
        )
        try:
            await parts.learnt.load()
            report = await parts.store.start()
            log.info("store.started", sessions=report.sessions, clean=report.clean, reread=len(report.reread))
            await self._serve()
        except ExceptionGroup as group:
            refused = group.subgroup(CannotListen)
            if refused is None:
                raise
            raise refused.exceptions[0] from None
        finally:
            lock.release()

    async def _serve(self) -> None:
        parts = self.parts
        turns_stop = asyncio.Event()
        async with asyncio.TaskGroup() as loops:
            background = [
                loops.create_task(parts.store.run(), name="index"),
                loops.create_task(parts.compactor.run(), name="compactor"),
                loops.create_task(parts.recall.run(), name="recall"),
            ]
            turns = loops.create_task(parts.turns.run(turns_stop, grace_s=parts.config.shutdown.grace_s), name="turns")
            await asyncio.sleep(0)
            runner = ProblemRunner(build_app(parts), access_log=None, shutdown_timeout=1)
            await runner.setup()
            try:
                resumed = await parts.turns.resume_open()
                await self._listen(runner)
                log.info("ready", url=self.url, resumed=resumed)
                self.ready.set()
                # what imports large packages comes last: in their threads they would slow down everything above
                background += [
                    *(
                        loops.create_task(parts.background.keep(name, run), name=name)
                        for name, run in housekeeping(parts)
                    ),
                    loops.create_task(parts.scheduler.run(), name="scheduler"),
                    loops.create_task(parts.jobs.run(), name="jobs"),
                ]
                await self._stop.wait()
            finally:
                log.info("stopping")
                turns_stop.set()
                await turns
                parts.bus.close()
                await runner.cleanup()
                for task in background:
                    task.cancel()
        await parts.jobs.close()
        await asyncio.gather(parts.said.stop(), parts.vectors.stop())
        await parts.workspaces.stop()
        await parts.kept_prefixes.close()
        await parts.engram_book.stop()
        await parts.memory.stop()
        await parts.ledger.stop()
        await parts.learnt.save()
        await parts.archive.stop()
        await parts.store.stop()
        await parts.models.close()

    async def _listen(self, runner: web.AppRunner) -> None:
        server = self.parts.config.server
        site = web.TCPSite(runner, server.host, server.port, reuse_address=True)
        try:
            await site.start()
        except OSError as error:
            raise CannotListen(error.errno, os.strerror(error.errno or 0).lower()) from error
        host, port = runner.addresses[0][:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def housekeeping(parts: Parts) -> list[tuple[str, Callable[[], Awaitable[object]]]]:
    """What replies go on without, by its name in the log and in `/readyz`."""
    return [
        ("tokens", parts.tokens.load),
        ("memory", parts.memory.run),
        ("classifier", parts.classifier.run),
        ("memory jobs", parts.memory_jobs.run),
        ("learning", parts.remember.run),
        ("engram", parts.engram_learning.run),
        ("vectors", parts.vectors.run),
        ("vectors of messages", parts.said.run),
        ("workspace files", parts.workspaces.run),
        ("model", parts.models.warm),
        ("ledger", parts.ledger.run),
        ("ledger refill", lambda: refill(parts)),
        ("archive", parts.archive.run),
    ]


async def serve(config: Config, data_dir: Path) -> int:
    """Runs a daemon until SIGTERM or SIGINT. Returns the exit code."""
    os.umask(0o077)  # Chroma makes its files itself
    daemon = Daemon(Parts(config, data_dir, environ=os.environ))
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, daemon.stop)
    await daemon.run()
    return 0
