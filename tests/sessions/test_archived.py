"""Sessions in the archive: packed, read, taken out again and deleted, with a crash at every step."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING

import pytest

from sessions import upkeep
from sessions.entries import Covers, SummaryEntry
from sessions.files import FaultyFiles, OsFiles, StorageError
from sessions.listing import PageQuery
from sessions.session import SessionGone
from tests.sessions.builders import user
from tests.sessions.test_store import KEY, closed, opened, say, texts, until_crash

if TYPE_CHECKING:
    from pathlib import Path

    from sessions.store import SessionStore

PLAIN = {".1.jsonl", ".2.jsonl"}
PACKED = {".1.jsonl.zst", ".2.jsonl.zst"}
SUMMARY = SummaryEntry(summary={"topics": ["x"]}, covers=Covers(from_seq=1, to_seq=2, sha256="f"), replay_from=3)
ALL = ["hello", "re: hello", "two", "re: two"]


async def with_history(folder: Path) -> str:
    """A session of two generations, in a store that was stopped in order; its id."""
    store, loop = await opened(folder)
    session = await store.active(KEY)
    await say(store, session, "hello")
    assert await store.move_generation(
        session, lambda _: [SUMMARY], anchor=2, replay_from=3, change=lambda record: record
    )
    await say(store, session, "two")
    await closed(store, loop)
    return session.id


def forms(folder: Path, session: str) -> set[str]:
    return {path.name.removeprefix(session) for path in (folder / "transcripts" / "main").iterdir()}


async def said(store: SessionStore, session: str) -> list[str]:
    return texts(await store.everything(await store.open(session)))


def archived(store: SessionStore) -> list[str]:
    return [record.session for record in store.index.page(PageQuery(state="archived"))[0]]


async def test_an_archived_session_is_packed_listed_and_readable(tmp_path: Path) -> None:
    session = await with_history(tmp_path)
    store, loop = await opened(tmp_path)
    assert await store.archive(session)
    assert forms(tmp_path, session) == PACKED
    assert archived(store) == [session]
    assert store.index.page(PageQuery())[0] == []
    assert await said(store, session) == ALL
    await closed(store, loop)
    store, loop = await opened(tmp_path)
    assert await said(store, session) == ALL
    assert upkeep.verify(OsFiles(), tmp_path, lambda *_: None).found == ()
    restored = await store.restore(session)
    assert restored.state == "active"
    assert restored.resumed_at is not None
    assert forms(tmp_path, session) == PLAIN
    assert await said(store, session) == ALL
    await closed(store, loop)


async def test_a_message_takes_its_session_out_of_the_archive(tmp_path: Path) -> None:
    session = await with_history(tmp_path)
    store, loop = await opened(tmp_path)
    await store.archive(session)
    await say(store, await store.active(KEY), "three")
    assert forms(tmp_path, session) == PLAIN
    assert (await said(store, session))[-2:] == ["three", "re: three"]
    assert archived(store) == []
    await closed(store, loop)


async def test_after_an_ended_session_in_the_archive_a_new_one_begins(tmp_path: Path) -> None:
    session = await with_history(tmp_path)
    store, loop = await opened(tmp_path)
    await store.end(await store.open(session), "daily")
    await store.archive(session)
    following = await store.active(KEY)
    await say(store, following, "a new life")
    assert following.id != session
    assert following.record.previous == session
    assert archived(store) == [session]
    assert [record.session for record in store.sessions_of(KEY)] == [following.id, session]
    await store.restore(session)
    found = store.find(KEY)
    assert found is not None
    assert found.session == following.id
    await closed(store, loop)


async def test_a_session_with_an_open_turn_stays(tmp_path: Path) -> None:
    store, loop = await opened(tmp_path)
    session = await store.active(KEY)
    await store.append(session, user("hello"), opens_turn=True)
    assert not await store.archive(session.id)
    assert forms(tmp_path, session.id) == {".1.jsonl"}
    await closed(store, loop)


async def test_a_rebuilt_index_knows_what_is_in_the_archive(tmp_path: Path) -> None:
    session = await with_history(tmp_path)
    store, loop = await opened(tmp_path)
    await store.archive(session)
    await closed(store, loop)
    (tmp_path / "sessions.json").unlink()
    store, loop = await opened(tmp_path)
    assert archived(store) == [session]
    assert await said(store, session) == ALL
    record = store.index.find(session)
    assert record is not None
    assert (record.generation, record.messages) == (2, 2)
    await closed(store, loop)


async def test_a_damaged_archive_stops_neither_the_start_nor_others(tmp_path: Path) -> None:
    session = await with_history(tmp_path)
    store, loop = await opened(tmp_path)
    await store.archive(session)
    packed = tmp_path / "transcripts" / "main" / f"{session}.2.jsonl.zst"
    packed.write_bytes(packed.read_bytes()[:-5])
    loop.cancel()
    (tmp_path / "sessions.json").unlink(missing_ok=True)
    (tmp_path / "sessions.journal.jsonl").unlink()
    store, loop = await opened(tmp_path)
    await say(store, await store.active(KEY), "goes on")
    assert "is damaged" in " ".join(upkeep.verify(OsFiles(), tmp_path, lambda *_: None).found)
    await closed(store, loop)


@pytest.mark.parametrize("kind", ["archive", "restore", "delete"])
@pytest.mark.parametrize("index", ["kept", "lost"])
async def test_cut_at_any_step_a_session_is_in_the_archive_or_not(tmp_path: Path, kind: str, index: str) -> None:
    outcomes: set[str] = set()
    for step in range(1, 120):
        folder = tmp_path / str(step)
        session = await with_history(folder)
        files = FaultyFiles()
        store, loop = await opened(folder, files)
        if kind != "archive":
            await store.archive(session)
        await store.open(session)
        files.crash_at(step)
        crashed = await until_crash(loop, change(store, session, kind))
        loop.cancel()
        if index == "lost":
            for name in ("sessions.json", "sessions.journal.jsonl"):
                (folder / name).unlink(missing_ok=True)
        store, loop = await opened(folder)
        outcomes.add(await state_of(store, folder, session))
        await say(store, await store.active(KEY), "goes on")
        await closed(store, loop)
        if not crashed:
            break
    else:
        pytest.fail("the change never got through")
    expected = {"archive": {"plain", "packed"}, "restore": {"plain", "packed"}, "delete": {"packed", "gone"}}
    assert outcomes == expected[kind]


async def change(store: SessionStore, session: str, kind: str) -> None:
    match kind:
        case "archive":
            await store.archive(session)
        case "restore":
            await store.restore(session)
        case _:
            await store.delete(session)


async def state_of(store: SessionStore, folder: Path, session: str) -> str:
    """What the restart found; anything between is a failure."""
    record = store.index.find(session)
    found = forms(folder, session)
    if record is None:
        assert found == set()
        return "gone"
    assert await said(store, session) == ALL
    if record.state == "archived":
        assert found == PACKED
        return "packed"
    assert found == PLAIN
    return "plain"


async def test_what_is_deleted_from_the_archive_stays_away(tmp_path: Path) -> None:
    session = await with_history(tmp_path)
    store, loop = await opened(tmp_path)
    await store.archive(session)
    await store.delete(session)
    assert forms(tmp_path, session) == set()
    with pytest.raises(SessionGone):
        await store.open(session)
    await closed(store, loop)


@pytest.mark.parametrize("step", ["write", "sync", "rename"])
async def test_a_full_disk_leaves_the_session_as_it_was(tmp_path: Path, step: str) -> None:
    session = await with_history(tmp_path)
    files = FaultyFiles()
    store, loop = await opened(tmp_path, files)
    await store.open(session)
    files.fail(step, errno.ENOSPC, where=".zst")  # type: ignore[arg-type]
    with pytest.raises(StorageError):
        await store.archive(session)
    files.heal()
    assert await said(store, session) == ALL
    await say(store, await store.open(session), "three")
    assert await store.archive(session)
    assert await said(store, session) == [*ALL, "three", "re: three"]
    await closed(store, loop)


async def test_a_stop_waits_for_a_session_on_its_way_to_the_archive(tmp_path: Path) -> None:
    session = await with_history(tmp_path)
    store, loop = await opened(tmp_path)
    work = asyncio.ensure_future(store.archive(session))
    while not store._writes:  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(0)
    work.cancel()
    await closed(store, loop)
    assert forms(tmp_path, session) == PACKED
    store, loop = await opened(tmp_path)
    assert archived(store) == [session]
    await closed(store, loop)


async def test_the_archive_holds_what_a_transcript_was_also_where_it_was_damaged(tmp_path: Path) -> None:
    session = await with_history(tmp_path)
    path = tmp_path / "transcripts" / "main" / f"{session}.1.jsonl"
    path.write_bytes(path.read_bytes() + b"half a li")
    before = path.read_bytes()
    store, loop = await opened(tmp_path)
    await store.archive(session)
    await store.restore(session)
    assert path.read_bytes() == before
    await closed(store, loop)
