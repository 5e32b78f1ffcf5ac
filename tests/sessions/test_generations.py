"""A session that goes on in a new file, or is deleted: cut, cancelled, or on a disk that fails."""

from __future__ import annotations

import asyncio
import errno
import threading
from typing import TYPE_CHECKING

import pytest

from sessions.context import uncarried
from sessions.entries import CarriedEntry, CompactionEntry, Covers, Entry, SummaryEntry
from sessions.files import Disk, FaultyFiles, OsFiles, StorageError
from sessions.index import JOURNAL, SNAPSHOT
from sessions.session import SessionGone
from tests.memory.leftovers import files_with_text
from tests.patience import PATIENCE_S, until
from tests.sessions.test_store import KEY, closed, opened, say, texts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sessions.files import Step
    from sessions.session import Session
    from sessions.store import SessionStore

SAID = [text for n in range(3) for text in (f"message {n}", f"re: message {n}")]


class Gate(Disk):
    """A disk that stands still once, where it writes what it was told to wait for, or removes."""

    def __init__(self) -> None:
        self.wanted = b""
        self.reached = False
        self.open_again = threading.Event()
        self._marked: set[int] = set()

    def _wait(self) -> None:
        if not self.reached:
            self.reached = True
            assert self.open_again.wait(PATIENCE_S)

    def write(self, descriptor: int, payload: bytes | memoryview) -> int:
        if self.wanted and self.wanted in bytes(payload[:300]):
            self._marked.add(descriptor)
        return super().write(descriptor, payload)

    def sync(self, descriptor: int) -> None:
        if descriptor in self._marked:
            self._marked.discard(descriptor)
            self._wait()
        super().sync(descriptor)

    def remove(self, path: Path) -> None:
        if self.wanted == b"remove" and path.suffix == ".jsonl":
            self._wait()
        super().remove(path)


def opening(entries: Sequence[Entry]) -> list[Entry]:
    """The last turn stays word for word."""
    summary = SummaryEntry(summary={}, covers=Covers(from_seq=1, to_seq=4, sha256=""), replay_from=5)
    return [summary, *(CarriedEntry(entry=e) for e in uncarried(entries) if e.seq >= 5 and texts([e]))]


async def move(store: SessionStore, session: Session) -> bool:
    return await store.move_generation(session, opening, anchor=4, replay_from=5, change=lambda record: record)


async def talked(store: SessionStore) -> Session:
    session = await store.active(KEY)
    for number in range(3):
        await say(store, session, f"message {number}")
    return session


async def killed(store: SessionStore, loop: asyncio.Task[None]) -> None:
    """What has reached the disk stays, but there is no stop in order."""
    await store._writer.flush(sync=True)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)


def cannot_be_undone(files: FaultyFiles) -> None:
    files.fail("remove", errno.EIO, where=".2.jsonl", after=1)  # the first one is of what an earlier try has left
    files.fail("truncate", errno.EIO, where=".1.jsonl")


def names(folder: Path) -> list[str]:
    return sorted(path.name[27:] for path in (folder / "transcripts").rglob("*") if path.is_file())


@pytest.mark.parametrize("wanted", [b'"type":"summary"', b'"type":"compaction"'], ids=["new file", "old file"])
async def test_what_is_said_after_a_cancelled_commit_outlives_a_kill(tmp_path: Path, wanted: bytes) -> None:
    disk = Gate()
    store, loop = await opened(tmp_path, OsFiles(disk))
    session = await talked(store)
    disk.wanted = wanted
    commit = asyncio.create_task(move(store, session))
    await until(lambda: disk.reached)
    commit.cancel()
    await asyncio.wait({commit})
    later = asyncio.create_task(say(store, session, "acknowledged"))
    await asyncio.sleep(0)
    disk.open_again.set()
    await later
    assert session.record.generation == 2
    await killed(store, loop)
    store, loop = await opened(tmp_path)
    session = await store.active(KEY)
    assert texts(session.entries) == [*SAID[-2:], "acknowledged", "re: acknowledged"]
    assert await move(store, session)
    await closed(store, loop)


async def test_a_stop_waits_for_a_commit_whose_asker_was_cut(tmp_path: Path) -> None:
    disk = Gate()
    store, loop = await opened(tmp_path, OsFiles(disk))
    session = await talked(store)
    disk.wanted = b'"type":"compaction"'
    commit = asyncio.create_task(move(store, session))
    await until(lambda: disk.reached)
    commit.cancel()
    stop = asyncio.create_task(closed(store, loop))
    await asyncio.wait({commit})
    assert not stop.done()
    disk.open_again.set()
    await stop
    store, loop = await opened(tmp_path)
    session = await store.active(KEY)
    assert session.record.generation == 2
    await say(store, session, "acknowledged")
    await killed(store, loop)
    store, loop = await opened(tmp_path)
    assert texts((await store.active(KEY)).entries)[-2:] == ["acknowledged", "re: acknowledged"]
    await closed(store, loop)


async def test_a_deletion_goes_on_when_its_asker_leaves(tmp_path: Path) -> None:
    disk = Gate()
    store, loop = await opened(tmp_path, OsFiles(disk))
    session = await talked(store)
    disk.wanted = b"remove"
    deletion = asyncio.create_task(store.delete(session.id))
    await until(lambda: disk.reached)
    deletion.cancel()
    await asyncio.wait({deletion})
    disk.open_again.set()
    await closed(store, loop)
    assert names(tmp_path) == []
    store, loop = await opened(tmp_path)
    with pytest.raises(SessionGone):
        await store.open(session.id)
    await closed(store, loop)


FAULTS: list[tuple[Step, int, str]] = [
    ("write", errno.ENOSPC, ".1.jsonl"),
    ("sync", errno.EIO, ".1.jsonl"),
    ("open", errno.EROFS, ".1.jsonl"),
    ("write", errno.EIO, ".2.jsonl"),
    ("rename", errno.EIO, ".2.jsonl"),
    ("sync_folder", errno.EIO, "transcripts"),
]


@pytest.mark.parametrize("restart", [None, "clean", "killed"])
@pytest.mark.parametrize("undone", [True, False], ids=["", "and removing fails too"])
@pytest.mark.parametrize(("step", "code", "where"), FAULTS)
async def test_a_commit_that_could_not_be_written_is_tried_again(
    tmp_path: Path, step: Step, code: int, where: str, undone: bool, restart: str | None
) -> None:
    files = FaultyFiles()
    store, loop = await opened(tmp_path, files)
    session = await talked(store)
    files.fail(step, code, where=where, times=1)
    if not undone:
        cannot_be_undone(files)
    with pytest.raises(StorageError):
        await move(store, session)
    files.heal()
    if restart is not None:
        await (closed if restart == "clean" else killed)(store, loop)
        store, loop = await opened(tmp_path, files)
        session = await store.active(KEY)
    await say(store, session, "acknowledged")
    if session.record.generation == 1:
        assert texts(session.entries)[:6] == SAID
        assert await move(store, session)
    assert texts(session.entries) == [*SAID[-2:], "acknowledged", "re: acknowledged"]
    await say(store, session, "later")
    await killed(store, loop)
    store, loop = await opened(tmp_path)
    assert texts((await store.active(KEY)).entries)[-4:] == ["acknowledged", "re: acknowledged", "later", "re: later"]
    await closed(store, loop)


async def test_messages_behind_the_mark_of_a_failed_commit_outlive_a_kill(tmp_path: Path) -> None:
    """The mark was synced without anybody knowing, and the new file could not be removed."""
    files = FaultyFiles()
    store, loop = await opened(tmp_path, files)
    session = await talked(store)
    files.fail("sync", errno.EIO, where=".1.jsonl", times=1)
    cannot_be_undone(files)
    with pytest.raises(StorageError):
        await move(store, session)
    files.heal()
    await closed(store, loop)
    assert names(tmp_path) == ["1.jsonl", "2.jsonl"]
    store, loop = await opened(tmp_path)
    session = await store.active(KEY)
    assert isinstance(session.entries[-1], CompactionEntry)
    await say(store, session, "acknowledged")
    await killed(store, loop)
    store, loop = await opened(tmp_path)
    session = await store.active(KEY)
    assert texts(session.entries) == [*SAID, "acknowledged", "re: acknowledged"]
    assert names(tmp_path) == ["1.jsonl"]
    await closed(store, loop)


async def test_a_file_in_the_way_in_which_something_was_said_is_kept_beside(tmp_path: Path) -> None:
    store, loop = await opened(tmp_path)
    session = await talked(store)
    other = session.transcript.path.with_name(f"{session.id}.2.jsonl")
    said = session.transcript.path.read_bytes()
    other.write_bytes(said)
    assert await move(store, session)
    kept = [path.read_bytes() for path in (other.parent / "torn").iterdir()]
    assert kept == [said]
    await closed(store, loop)


async def test_a_failing_index_is_no_failure_of_the_commit(tmp_path: Path) -> None:
    files = FaultyFiles()
    store, loop = await opened(tmp_path, files)
    session = await talked(store)
    told: list[Entry] = []
    store.after_append.append(lambda _, entries: told.extend(entries))
    await store._writer.flush(sync=True)
    files.fail("write", errno.ENOSPC, where="journal")
    assert await move(store, session)
    assert isinstance(told[-1], CompactionEntry)
    files.heal()
    await killed(store, loop)
    store, loop = await opened(tmp_path)
    assert (await store.active(KEY)).record.generation == 2
    await closed(store, loop)


async def test_deleting_takes_what_was_cut_and_what_nothing_points_to(tmp_path: Path) -> None:
    store, loop = await opened(tmp_path)
    session = await talked(store)
    folder = session.transcript.path.parent
    stranger = folder / "torn" / "01HOTHER000000000000000000.1.jsonl.torn-01X"
    stranger.parent.mkdir()
    stranger.write_bytes(b"of another chat\n")
    for ending in ("torn/{}.1.jsonl.torn-01X", "{}.2.jsonl", "{}.2.jsonl.new"):
        folder.joinpath(ending.format(session.id)).write_bytes(b"secret\n")
    await store.delete(session.id)
    assert [path for path in folder.rglob("*") if path.is_file()] == [stranger]
    await closed(store, loop)


async def test_the_index_on_disk_soon_names_no_deleted_session(tmp_path: Path) -> None:
    store, loop = await opened(tmp_path)
    session = await store.active(KEY)
    await say(store, session, "The photographs are in the attic")
    await store._writer.flush(sync=True)
    index = {SNAPSHOT, JOURNAL}
    assert index & set(files_with_text(tmp_path, "attic"))
    await store.delete(session.id)
    store.clear_deleted()
    await until(lambda: not index & set(files_with_text(tmp_path, "attic")))
    await closed(store, loop)


@pytest.mark.parametrize("stop", ["clean", "killed"])
async def test_a_deletion_the_disk_refused_is_finished_at_the_next_start(tmp_path: Path, stop: str) -> None:
    files = FaultyFiles()
    store, loop = await opened(tmp_path, files)
    session = await talked(store)
    assert await move(store, session)
    files.fail("remove", errno.EIO, where="transcripts")
    with pytest.raises(StorageError):
        await store.delete(session.id)
    await (closed if stop == "clean" else killed)(store, loop)
    store, loop = await opened(tmp_path, files)
    assert store.find(KEY) is not None, "a disk that still refuses keeps nobody from starting"
    files.heal()
    await closed(store, loop)
    store, loop = await opened(tmp_path)
    assert store.find(KEY) is None
    assert names(tmp_path) == []
    await closed(store, loop)
