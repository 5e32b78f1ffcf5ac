"""Index changes, written behind the replies: a full disk delays them, and the transcripts are the truth."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, TypeVar

import structlog

from sessions.files import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sessions.index import Index

RETRY_S = 1.0

log = structlog.get_logger()

T = TypeVar("T")


class InThread(Protocol):
    """Runs work on files in a thread."""

    async def __call__(self, work: Callable[[], T]) -> T: ...


class IndexWriter:
    """The one who writes an index to disk."""

    def __init__(
        self, index: Index, in_thread: InThread, sleep: Callable[[float], Awaitable[None]], *, sync: bool
    ) -> None:
        self._index = index
        self._in_thread = in_thread
        self._sleep = sleep
        self._sync = sync
        self._dirty = asyncio.Event()
        self._clearing = False
        self._waiting: list[asyncio.Future[None]] = []

    def soon(self) -> None:
        """Something has changed; nobody waits for it."""
        self._dirty.set()

    async def written(self) -> None:
        """Waits until all changes so far are on disk, synced. Raises StorageError."""
        written = asyncio.get_running_loop().create_future()
        self._waiting.append(written)
        self._dirty.set()
        await written

    def clear_deleted(self) -> None:
        """Sees to it that no deleted session is named on disk."""
        if self._index.holds_deleted:
            self._clearing = True
            self._dirty.set()

    async def run(self) -> None:
        """Writes until it is cancelled; who waits for a change is told when it is on disk, or why it is not."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            waiting, self._waiting = self._waiting, []
            try:
                await self.flush(sync=self._sync and bool(waiting))
                if self._index.needs_snapshot or self._clearing:
                    await self._snapshot(clean=False)
                    self._clearing = False
            except StorageError as error:
                log.warning("index.not_written", error=str(error), retry_s=RETRY_S)
                _settle(waiting, error)
                self._dirty.set()
                await self._sleep(RETRY_S)
            except asyncio.CancelledError:
                self._waiting = waiting + self._waiting
                self._dirty.set()
                raise
            _settle(waiting, None)

    async def flush(self, *, sync: bool) -> None:
        """Raises StorageError."""
        await self._in_thread(lambda: self._index.flush(sync=sync))

    async def close(self) -> None:
        """Leaves a snapshot that the next start can trust."""
        try:
            await self._snapshot(clean=True)
        except StorageError as error:
            log.warning("index.no_snapshot", error=str(error))

    async def _snapshot(self, *, clean: bool) -> None:
        snapshot = self._index.prepare_snapshot(clean=clean)
        await self._in_thread(lambda: self._index.commit_snapshot(snapshot))


def _settle(waiting: Sequence[asyncio.Future[None]], error: StorageError | None) -> None:
    for future in waiting:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
