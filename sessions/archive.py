"""Keeps the full-text index up with the transcripts, behind the replies, and lets others look into it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import structlog

from sessions.files import StorageError
from sessions.follow import follow
from sessions.found import DamagedIndex, Place, SearchFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from sessions.files import Files
    from sessions.search import Cut, SearchIndex
    from sessions.store import SessionStore

DATABASE = "search.db"
BATCH = 64
PAGE = 500
PAUSE_S = 0.2
RETRY_S = 5.0
FRESH_WAIT_S = 1.0
OPEN_WAIT_S = 10.0
STEPS_AT_STOP = 50
REST_SHARE = 2
"""After a step of catching up, so many times as long nothing is done."""
PURGE_SHARE = 10
"""After clearing deleted bytes, which rewrites the file, so many times as long nothing is cleared again."""

log = structlog.get_logger()

T = TypeVar("T")


class ArchiveClock(Protocol):
    """What the archive needs of time."""

    def monotonic(self) -> float: ...
    def sleep(self, seconds: float) -> Awaitable[None]: ...


class Archive:
    """`search.db` and the loop that feeds it. A session that changes is named by the store; what is new in it is read
    from its transcript, from where the index stands. `after_step` hears when something was taken in, or out."""

    def __init__(self, data_dir: Path, files: Files, store: SessionStore, clock: ArchiveClock, cut: Cut) -> None:
        self._data_dir = data_dir
        self._path = data_dir / DATABASE
        self._files = files
        self._store = store
        self._clock = clock
        self._cut = cut
        self._index: SearchIndex | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self._changed: dict[str, None] = {}
        self._backlog: list[str] = []
        self._catching_up = 0
        self._unread: set[str] = set()
        self._damage: str | None = None
        self._next_purge = 0.0
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._opened = asyncio.Event()
        self._fresh = asyncio.Event()
        self._clean = asyncio.Event()
        self._whole = asyncio.Event()
        self._fresh.set()
        self._clean.set()
        self.problem: str | None = None
        self.after_step: list[Callable[[], None]] = []
        store.changed.append(self.mark)

    @property
    def waiting(self) -> int:
        """Sessions that have something to be taken in."""
        return len(self._changed) + len(self._backlog) + self._catching_up

    @property
    def complete(self) -> bool:
        """Whether everything older than a moment is in the index: not while it is built again."""
        return self._opened.is_set() and not self._backlog and not self._catching_up and not self._unread

    def mark(self, session: str) -> None:
        """A session has changed, or is gone."""
        self._changed[session] = None
        self._fresh.clear()
        self._wake.set()

    def check(self) -> None:
        """Looks whether the file is still there: to be called now and then."""
        self._wake.set()

    # --- the loop -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follows the transcripts. A damaged or missing index is built again; a full disk delays it; replies go on."""
        while True:
            try:
                await self._open()
                await self._follow()
            except DamagedIndex as error:
                log.warning("archive.built_again", reason=str(error))
                await self._discard()
            except (SearchFailed, StorageError) as error:
                self.problem = f"{error} {self.waiting} sessions wait."
                log.warning("archive.not_followed", error=str(error), waiting=self.waiting)
                await self._clock.sleep(RETRY_S)

    async def stop(self) -> None:
        """Takes in the rest, says that it is complete, and closes. What is missing is found at the next start."""
        try:
            for _ in range(STEPS_AT_STOP):
                if self._opened.is_set() and self._changed:
                    await self._step(self._changed)
            if self._opened.is_set() and not self.waiting and not self._unread:
                await self._in_thread(partial(self._set_mark, self._store.index.number))
        except (DamagedIndex, SearchFailed, StorageError) as error:
            log.warning("archive.not_complete", error=str(error))
        await self._close()
        self._thread.shutdown()

    async def _open(self) -> None:
        if self._opened.is_set():
            return
        index, new = await self._in_thread(self._open_index)
        self._damage = None
        if new:
            self._backlog = sorted(self._store.index.sessions())
        elif await self._in_thread(index.mark) != self._store.index.number:
            await self._compare(index)
        if await self._in_thread(index.wants_purge):
            self._clean.clear()
        await self._in_thread(partial(self._set_mark, None))
        if not self._backlog:
            self._whole.set()
        log.info("archive.opened", new=new, waiting=self.waiting)
        self._opened.set()

    def _open_index(self) -> tuple[SearchIndex, bool]:
        from sessions.search import SearchIndex

        if self._files.size(self._path) is None:
            self._remove_files()
            self._files.create(self._path, b"", sync=False)
        self._close_index()
        self._index, new = SearchIndex.open(self._path, self._cut)
        return self._index, new

    def _set_mark(self, number: int | None) -> None:
        assert self._index is not None  # noqa: S101
        with self._index.changing() as change:
            change.set_mark(number)

    async def _compare(self, index: SearchIndex) -> None:
        """After anything but a stop in order: which sessions are not in the index as they are, page by page."""
        sessions = sorted(self._store.index.sessions())
        for start in range(0, len(sessions), PAGE):
            page = sessions[start : start + PAGE]
            places = await self._in_thread(partial(index.places, page))
            covered = {session: self._store.index.covered(session) for session in page}
            self._backlog += [
                session for session, end in covered.items() if end is not None and Place(*end) != places.get(session)
            ]
        last = ""
        while page := await self._in_thread(partial(index.sessions_after, last, PAGE)):
            for session in page:
                if self._store.index.covered(session) is None:
                    self.mark(session)
            last = page[-1]

    async def _discard(self) -> None:
        """Removes the index; everything is to be taken in anew."""
        await self._close()
        self._backlog.clear()
        await self._in_thread(self._remove_files)
        self._clean.set()

    async def _close(self) -> None:
        self._opened.clear()
        self._whole.clear()
        await self._in_thread(self._close_index)

    def _close_index(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None

    def _remove_files(self) -> None:
        for suffix in ("-wal", "-shm", ""):
            self._files.remove(self._path.with_name(f"{self._path.name}{suffix}"))

    async def _follow(self) -> None:
        """Sessions that change come before those that were found to lag; in between, deleted text is cleared."""
        while True:
            await self._wait_for_work()
            if self._damage is not None:
                raise DamagedIndex(self._damage)
            if self._changed:
                await self._wait(self._hurry, PAUSE_S)
                await self._step(self._changed)
            if not self._clean.is_set() and self._clock.monotonic() >= self._next_purge:
                await self._purge()
            elif self._backlog and not self._changed:
                await self._catch_up()

    async def _catch_up(self) -> None:
        """Some of the sessions that lag, newest first; then a rest, so that replies hardly notice."""
        started = self._clock.monotonic()
        batch = dict.fromkeys(self._backlog[-BATCH:][::-1])
        self._catching_up = len(batch)
        del self._backlog[-BATCH:]
        try:
            await self._step(batch)
        finally:
            self._backlog += reversed(batch)
            self._catching_up = 0
        if not self._backlog:
            self._whole.set()
        if not self._changed:
            self._wake.clear()
            await self._wait(self._wake, REST_SHARE * (self._clock.monotonic() - started))

    async def _wait_for_work(self) -> None:
        """Until something has changed, is to be cleared, or somebody wants to know whether the file is still there."""
        if self._changed or self._backlog:
            return
        self._wake.clear()
        if self._clean.is_set():
            await self._wake.wait()
        else:
            await self._wait(self._wake, self._next_purge - self._clock.monotonic())
        if await self._in_thread(lambda: self._files.size(self._path)) is None:
            raise DamagedIndex("it was removed")

    async def _wait(self, event: asyncio.Event, seconds: float) -> None:
        """For an event, or so long."""
        if seconds <= 0 or event.is_set():
            return
        waits = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(event.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def _step(self, sessions: dict[str, None]) -> None:
        """Takes in what is new in some of these sessions; those with more, or all after an error, stay among them."""
        index = self._index
        assert index is not None  # noqa: S101
        batch = list(sessions)[:BATCH]
        wanted = [(session, self._store.index.find(session)) for session in batch]
        for session in batch:
            del sessions[session]
        left: Sequence[str] = batch
        try:
            done = await self._in_thread(lambda: follow(index, self._files, self._data_dir, wanted))
            left = done.unfinished
            if done.forgot:
                self._clean.clear()
            self._unread.update(done.unread)
            self._unread.difference_update(done.read)
            self.problem = f"{len(self._unread)} transcripts could not be read." if self._unread else None
        finally:
            sessions.update(dict.fromkeys(left))
        if not self._changed:
            self._fresh.set()
            self._hurry.clear()
        for hook in self.after_step:
            hook()

    async def _purge(self) -> None:
        index = self._index
        assert index is not None  # noqa: S101
        started = self._clock.monotonic()
        await self._in_thread(index.purge)
        self._next_purge = self._clock.monotonic() + PURGE_SHARE * (self._clock.monotonic() - started)
        self._clean.set()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # --- looking --------------------------------------------------------------------------------------------------

    async def look(self, work: Callable[[SearchIndex], T]) -> T:
        """What `work` finds in the index, in a thread of its own; what has just been said is in it. An index that is
        found to be gone is waited for a moment, which is enough for a small one.

        Raises SearchFailed.
        """
        for again in range(2):
            if not await _within(self._opened, OPEN_WAIT_S):
                raise SearchFailed(self.problem or "The archive is being opened. Try again in a moment.")
            if again:
                await _within(self._whole, FRESH_WAIT_S)
            await self.settled(FRESH_WAIT_S)
            index = self._index
            if index is None:
                continue
            try:
                return await asyncio.to_thread(self._looked, index, work)
            except DamagedIndex as error:
                self._report(str(error))
        raise SearchFailed("The archive is being built again. Try again in a moment.")

    def _looked(self, index: SearchIndex, work: Callable[[SearchIndex], T]) -> T:
        if self._files.size(self._path) is None:
            raise DamagedIndex("it was removed")
        return work(index)

    def _report(self, damage: str) -> None:
        self._damage = damage
        self._opened.clear()
        self._whole.clear()
        self._wake.set()

    async def settled(self, wait_s: float) -> bool:
        """Waits until what has changed so far is in the index; False when that takes longer."""
        if self._fresh.is_set():
            return True
        self._hurry.set()
        return await _within(self._fresh, wait_s)

    async def cleared(self, wait_s: float) -> bool:
        """Waits until nothing of what was deleted is in the files of the index; False when that takes longer: it is
        done all the same."""
        return await self.settled(wait_s) and await _within(self._clean, wait_s)


async def _within(event: asyncio.Event, wait_s: float) -> bool:
    if event.is_set():
        return True
    try:
        async with asyncio.timeout(wait_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
