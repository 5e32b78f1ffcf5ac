"""Workspace files kept in the index: a watcher wakes, a comparison with the disk decides; and how they are searched."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from memory.cache_file import is_damage
from memory.chunk import chunk, lines_of
from memory.chunks import searched_text
from memory.errors import InvalidMemory, NotThere, innermost
from memory.indexing import Indexable, IndexChange, SourceFailed
from memory.recall import Recalled
from memory.search import Found, SearchResult, search
from memory.workspace import OF_PROJECT, ROOT_FILE, UNUSABLE_NAME, is_folder, is_hidden, read, scan, spoken, stamp_now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from memory.chunks import ChunkDatabase, FileChunk
    from memory.policy import FilesPolicy, SearchPolicy
    from memory.records import TextHit
    from memory.search import NearTexts, SearchMode
    from memory.workspace import Content

T = TypeVar("T")

WATCH_STEP_MS = 50
WATCH_QUIET_MS = 200
WATCH_BEGUN_MS = 1000
RETRY_S = 2.0
WIPE_GATHER_S = 1.0
WIPE_REST = 20
"""After the files were wiped, so many times as long until the next time."""
LONGEST_REST_S = 0.1
PAGE = 500
REMOVED_AT_ONCE = 200
POOL = "files:"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesStatus:
    """How far the files are. `problems`: (shelf, file, why) of those that cannot be used, or not wholly."""

    files: int
    waiting: int
    problems: tuple[tuple[str, str, str], ...]
    problem: str | None


class WorkspaceFiles:
    """Shelves are folders with MEMORY.md and memory/**/*.md: one of each agent, and of each project's documents.

    `roots` are the folders the shelves lie in, by the word before their names, as in `agent` for `agent:main`.
    """

    def __init__(
        self,
        roots: Mapping[str, Path],
        database: ChunkDatabase,
        policy: FilesPolicy,
        *,
        count: Callable[[str], int],
        sleep: Callable[[float], Awaitable[None]],
        on_change: Callable[[], None] = lambda: None,
        on_removed: Callable[[set[str]], None] = lambda pools: None,
        on_renewed: Callable[[], object] = lambda: None,
    ) -> None:
        self._roots = roots
        self._database = database
        self._policy = policy
        self._count = count
        self._sleep = sleep
        self._on_change = on_change
        self._on_removed = on_removed
        self._on_renewed = on_renewed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="workspace-files")
        self._wake = asyncio.Event()
        self._rewatch = asyncio.Event()
        self._removed = asyncio.Event()
        self._compared = asyncio.Condition()
        self._rounds = 0
        self._waiting = 0
        self._files = 0
        self._filled: set[str] | None = None
        self._folders: set[str] | None = None
        self._gone: set[str] = set()
        self._left_out: tuple[tuple[str, str, str], ...] = ()
        self._unfollowed: str | None = None
        self._unwatched: str | None = None
        self._unwiped: str | None = None
        self.troubled = 0
        """Files that cannot be used, or not wholly; `status` says which."""

    @property
    def problem(self) -> str | None:
        """Why files are not followed, or more slowly than they should be."""
        return self._unfollowed or self._unwatched or self._unwiped

    # --- keeping up -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Watches, and compares when woken, until cancelled. A watcher that fails is started again; comparing goes on
        without."""
        await self._in_thread(self._make_folders)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(), name="files watcher")
            group.create_task(self._compare_for_ever(), name="files compared")
            group.create_task(self._wipe_for_ever(), name="files wiped")

    def check(self) -> None:
        """Compares now: to be called now and then, for what the watcher did not see."""
        self._wake.set()

    async def close(self) -> None:
        await self._in_thread(self._database.close)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def status(self) -> FilesStatus:
        problems = (*await self._in_thread(self._database.problems), *self._left_out)
        return FilesStatus(files=self._files, waiting=self._waiting, problems=problems, problem=self.problem)

    async def settled(self) -> None:
        """Returns when everything that is on disk now is indexed."""
        async with self._compared:
            wanted = self._rounds + 2
            self._wake.set()
            while self._rounds < wanted:
                self._wake.set()
                await self._compared.wait()

    async def _watch(self) -> None:
        from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType]

        while True:
            self._rewatch.clear()
            try:
                folders = [folder for folder in self._roots.values() if folder.is_dir()]
                begun = False
                async for changes in awatch(
                    *folders,
                    step=WATCH_STEP_MS,
                    debounce=WATCH_QUIET_MS,
                    watch_filter=None,
                    stop_event=self._rewatch,
                    rust_timeout=WATCH_BEGUN_MS,
                    yield_on_timeout=True,
                ):
                    self._unwatched = None
                    if changes or not begun:  # what happened before it watched is found by the comparison
                        self._wake.set()
                    begun = True
            except Exception as error:  # watchfiles has errors of its own, in groups
                self._unwatched = (
                    f"The folders cannot be watched ({_why(error)}); they are compared every {RETRY_S:g} s."
                )
            self._wake.set()
            if not self._rewatch.is_set():
                await self._sleep(RETRY_S)

    async def _watch_new(self, folders: set[str]) -> None:
        """Watchers add new folders by themselves, and say nothing when they cannot: a new watcher would."""
        known, self._folders = self._folders, folders
        if known is None or self._unwatched is not None or not (new := sorted(folders - known)):
            return
        if not await asyncio.to_thread(_can_watch, new):
            self._rewatch.set()

    async def _compare_for_ever(self) -> None:
        while True:
            self._wake.clear()
            try:
                if await self._compare():
                    self._unfollowed = None
                    async with self._compared:
                        self._rounds += 1
                        self._compared.notify_all()
            except (OSError, sqlite3.Error) as error:
                self._unfollowed = f"Workspace files are not followed now: {_why(error)}."
                if is_damage(error):
                    await self._in_thread(self._database.renew)
                    self._on_renewed()
                await self._sleep(RETRY_S)
                self._wake.set()
            await self._wake.wait()

    async def _wipe_for_ever(self) -> None:
        """Soon after a text was removed it is in no file of the index; several removals are one."""
        while True:
            await self._removed.wait()
            await self._sleep(WIPE_GATHER_S)
            self._removed.clear()
            started = time.perf_counter()
            try:
                done, self._unwiped = await self._in_thread(self._database.wipe), None
            except (OSError, sqlite3.Error) as error:
                done, self._unwiped = False, f"Removed texts are still in the index: {error}."
            if not done:
                self._removed.set()
            await self._sleep(max(RETRY_S, WIPE_REST * (time.perf_counter() - started)))

    async def _compare(self) -> bool:
        """Takes over every difference, the newest files first. False: something changed meanwhile, look again."""
        present, self._left_out, folders = await self._in_thread(self._scan)
        await self._watch_new(folders)
        self._files = sum(len(files) for files in present.values())
        self._filled = {shelf for shelf, files in present.items() if files}
        changed, gone = await self._in_thread(lambda: self._differences(present))
        for shelf, paths in gone.items():
            for at in range(0, len(paths), REMOVED_AT_ONCE):  # searches come in between
                part = paths[at : at + REMOVED_AT_ONCE]
                await self._in_thread(lambda s=shelf, p=part: self._database.remove(s, p))
        if gone:
            self._gone |= {POOL + shelf for shelf in gone}
            self._on_change()
        self._waiting = len(changed)
        complete = True
        for shelf, path, stamp in changed:
            started = time.perf_counter()
            await self._in_thread(lambda s=shelf, p=path, t=stamp: self._take(s, p, t))
            self._on_change()
            self._waiting -= 1
            # chunking holds the interpreter: as much rest as work leaves room for replies
            await self._sleep(min(LONGEST_REST_S, 2 * (time.perf_counter() - started)))
            if self._wake.is_set():
                complete = False
                break
        self.troubled = len(await self._in_thread(self._database.problems)) + len(self._left_out)
        if await self._in_thread(self._database.to_wipe):
            self._removed.set()
        return complete

    # --- in the thread --------------------------------------------------------------------------------------------

    def _make_folders(self) -> None:
        for folder in self._roots.values():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _scan(self) -> tuple[dict[str, dict[str, str]], tuple[tuple[str, str, str], ...], set[str]]:
        found: dict[str, dict[str, str]] = {}
        folders: set[str] = set()
        left_out: list[tuple[str, str, str]] = []
        for word, folder in self._roots.items():
            for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
                if not is_hidden(entry.name) and is_folder(entry):
                    shelf = f"{word}:{spoken(entry.name)}"
                    if shelf != f"{word}:{entry.name}":
                        left_out.append((shelf, ".", UNUSABLE_NAME))
                        continue
                    there = scan(entry)
                    found[shelf] = there.files
                    folders.update(there.folders)
                    left_out += [(shelf, path, why) for path, why in there.left_out.items()]
        return found, tuple(left_out), folders

    def _differences(
        self, present: Mapping[str, Mapping[str, str]]
    ) -> tuple[list[tuple[str, str, str]], dict[str, list[str]]]:
        changed: list[tuple[str, str, str]] = []
        gone: dict[str, list[str]] = {}
        for shelf in {*present, *self._database.shelves()}:
            there, known = present.get(shelf, {}), self._database.known(shelf)
            changed += [(shelf, path, stamp) for path, stamp in there.items() if known.get(path) != stamp]
            if lost := [path for path in known if path not in there]:
                gone[shelf] = lost
        return sorted(changed, key=lambda one: one[2], reverse=True), gone

    def _take(self, shelf: str, path: str, stamp: str) -> None:
        try:
            content = read(self.folder(shelf), path, max_bytes=self._policy.max_bytes)
        except NotThere:
            return  # gone again: the next comparison sees it
        except InvalidMemory as error:
            self._database.put(shelf, path, stamp, [], problem=str(error))
            return
        pieces = chunk(
            content.text, tokens=self._policy.chunk_tokens, overlap=self._policy.chunk_overlap, count=self._count
        )
        self._database.put(shelf, path, content.stamp, pieces, problem=self._unused(path, content))

    def _unused(self, path: str, content: Content) -> str | None:
        """What of a file cannot be used, or not everywhere."""
        told: list[str] = []
        if content.unread:
            told.append(f"{content.unread} places are no UTF-8, and stand as \ufffd; save it as UTF-8.")
        length, most = len(content.text.strip()), self._policy.prefix_chars
        if path == ROOT_FILE and length > most:
            kept = f"Only the first {most} of {length} characters stand in every prompt"
            told.append(f"{kept}; the rest is found by search.")
        return " ".join(told) or None

    def folder(self, shelf: str) -> Path:
        """Where a shelf lies."""
        word, _, name = shelf.partition(":")
        return self._roots[word] / name

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # --- reading --------------------------------------------------------------------------------------------------

    async def prefix(self, shelf: str) -> str | None:
        """The beginning of MEMORY.md, for the system text; None without one. What is left out is said."""
        try:
            content = await asyncio.to_thread(read, self.folder(shelf), ROOT_FILE, max_bytes=self._policy.max_bytes)
        except (NotThere, InvalidMemory):
            return None
        text, most = content.text.strip(), self._policy.prefix_chars
        if not text or most == 0:
            return None
        if len(text) <= most:
            return f"[{ROOT_FILE}, notes of this workspace]\n{text}"
        return (
            f"[{ROOT_FILE}, notes of this workspace: the first {most} of {len(text)} characters; MemoryFileRead "
            f"reads the rest]\n{text[:most]}"
        )

    async def read(self, shelf: str, path: str, first: int, last: int) -> str:
        """Lines of a file, with their numbers. Raises InvalidMemory and NotThere."""
        lines = await self.lines(shelf, path)
        shown = [f"{number}: {line}" for number, line in enumerate(lines, 1) if first <= number <= last]
        return "\n".join([f"{path}, {len(lines)} lines", *shown])

    async def lines(self, shelf: str, path: str) -> list[str]:
        """All lines of a file. Raises InvalidMemory and NotThere."""
        content = await asyncio.to_thread(read, self.folder(shelf), path, max_bytes=self._policy.max_bytes)
        return lines_of(content.text) if content.text else []

    async def listing(self, shelf: str) -> list[tuple[str, bool, str | None]]:
        """(file, whether it is indexed as it is now, problem) of everything on a shelf."""
        there = await asyncio.to_thread(scan, self.folder(shelf))
        known = await self._in_thread(lambda: self._database.known(shelf))
        problems = await self._in_thread(self._database.problems)
        why = {path: told for where, path, told in problems if where == shelf}
        files = [(path, known.get(path) == stamp, why.get(path)) for path, stamp in there.files.items()]
        return sorted([*files, *((path, False, told) for path, told in there.left_out.items())])

    async def paths(self, shelf: str) -> list[str]:
        """The files of a shelf."""
        return sorted((await asyncio.to_thread(scan, self.folder(shelf))).files)

    async def find(
        self,
        shelves: Sequence[str],
        vectors: NearTexts | None,
        words: str,
        *,
        policy: SearchPolicy,
        limit: int,
        mode: SearchMode = "hybrid",
    ) -> SearchResult[FileChunk]:
        """Pieces of the shelves' files. Shelves without any are not looked into: most agents have none. Raises
        SourceFailed."""
        if self._filled is not None:
            shelves = [shelf for shelf in shelves if shelf in self._filled]
        if not shelves:
            return SearchResult(hits=())
        return await search(FileCorpus(self, shelves), vectors, words, policy=policy, limit=limit, mode=mode)

    async def proposals(self, shelves: Sequence[str], words: str, limit: int) -> list[TextHit]:
        """Raises SourceFailed."""
        return await self._asked(lambda: self._database.hits(shelves, words, limit))

    async def load(self, ids: Sequence[str]) -> list[FileChunk]:
        """Raises SourceFailed."""
        return await self._asked(lambda: self._database.load(ids))

    async def there(self, pieces: Sequence[FileChunk]) -> dict[str, bool]:
        """Whether each piece's file is as it was read (True), or has changed since (False); gone ones are left out."""

        def look() -> dict[str, bool]:
            stamps = {(one.shelf, one.path): stamp_now(self.folder(one.shelf), one.path) for one in pieces}
            told = ((one, stamps[one.shelf, one.path]) for one in pieces)
            return {one.id: stamp == one.stamp for one, stamp in told if stamp is not None}

        return await asyncio.to_thread(look)

    # --- for the vector index -------------------------------------------------------------------------------------

    async def everything(self) -> AsyncIterator[Sequence[Indexable]]:
        after = 0
        while page := await self._asked(lambda at=after: self._database.page(at, PAGE)):
            yield [indexable(one) for one in page]
            after = int(page[-1].id.rpartition("-")[2])

    async def latest(self) -> int:
        return await self._asked(self._database.latest)

    async def changes(self, after: int, limit: int) -> Sequence[IndexChange]:
        gone, self._gone = self._gone, set()
        try:
            rows = await self._asked(lambda: self._database.changes(after, limit))
        except SourceFailed:
            self._gone |= gone
            raise
        if gone:  # told after the index has asked: what it removes then is wiped
            self._on_removed(gone)
        present = {one.id: one for one in await self._asked(lambda: self._database.load([row[1] for row in rows]))}
        return [
            IndexChange(number, text_id, indexable(present[text_id]) if text_id in present else None)
            for number, text_id in rows
        ]

    async def _asked(self, work: Callable[[], T]) -> T:
        try:
            return await self._in_thread(work)
        except (sqlite3.Error, OSError) as error:
            raise SourceFailed(f"Workspace files cannot be read: {error}.") from error


def _why(error: Exception) -> str:
    """An error's words without the paths it names."""
    first = innermost(error)
    told = (isinstance(first, OSError) and first.strerror) or str(first).partition(" about [")[0]
    return "a name is no UTF-8" if "decode path" in told else told


def _can_watch(folders: Sequence[str]) -> bool:
    from watchfiles._rust_notify import RustNotify

    there = [folder for folder in folders if os.path.isdir(folder)]  # noqa: PTH112
    try:
        with RustNotify(there, False, False, 0, False, False):
            return True
    except FileNotFoundError:
        return True
    except (OSError, RuntimeError):
        return False


def indexable(one: FileChunk) -> Indexable:
    return Indexable(one.id, POOL + one.shelf, searched_text(one.heading, one.text))


class FileCorpus:
    """The files of some shelves. Only pieces whose file is still there are confirmed."""

    def __init__(self, files: WorkspaceFiles, shelves: Sequence[str]) -> None:
        self._files = files
        self._shelves = shelves

    async def pools(self) -> Sequence[str]:
        return [POOL + shelf for shelf in self._shelves]

    async def propose(self, words: str, limit: int) -> Sequence[TextHit]:
        return await self._files.proposals(self._shelves, words, limit)

    async def confirm(self, ids: Sequence[str]) -> Sequence[Found[FileChunk]]:
        pieces = [one for one in await self._files.load(ids) if one.shelf in self._shelves]
        there = await self._files.there(pieces)
        return [
            Found(id=one.id, pool=POOL + one.shelf, text=searched_text(one.heading, one.text), item=one)
            for one in pieces
            if one.id in there
        ]

    def beside(self, text_id: str) -> Sequence[str]:
        """Pieces overlap already."""
        return ()


def recalled_piece(one: FileChunk, *, stale: bool) -> Recalled:
    where = OF_PROJECT * one.shelf.startswith("project:") + one.where
    return Recalled(id=one.id, kind="file", text=one.text, where=where, stale=stale)
