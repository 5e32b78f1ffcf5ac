"""The store as a whole: sessions by key, generations, and what a crash leaves."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from gateway.clock import ManualClock
from sessions.entries import AssistantEntry, Entry, UserEntry
from sessions.files import Crash, FaultyFiles, Files, OsFiles
from sessions.index import JOURNAL, SNAPSHOT
from sessions.keys import parse_key
from sessions.policy import SessionsPolicy
from sessions.record import SessionSettings
from sessions.session import Session, SessionGone
from sessions.store import SessionStore
from tests.sessions.builders import assistant, user

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from pathlib import Path
    from typing import Any

KEY = parse_key("agent:main:web:direct:ana")


async def opened(folder: Path, files: Files | None = None) -> tuple[SessionStore, asyncio.Task[None]]:
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    store = SessionStore(folder, SessionsPolicy(), files or OsFiles(), clock)
    await store.start()
    return store, asyncio.create_task(store.run())


async def closed(store: SessionStore, loop: asyncio.Task[None]) -> None:
    loop.cancel()
    await store.stop()


async def say(store: SessionStore, session: Session, text: str) -> None:
    (asked,) = await store.append(session, user(text), opens_turn=True)
    await store.append(session, assistant(f"re: {text}", turn=asked.turn))


async def until_crash(loop: asyncio.Task[None], work: Coroutine[Any, Any, Any]) -> bool:
    """Runs `work` beside the store's loop; True when a Crash ended either."""
    task = asyncio.create_task(work)
    await asyncio.wait({task, loop}, return_when=asyncio.FIRST_COMPLETED)
    crashed = any(t.done() and not t.cancelled() and isinstance(t.exception(), Crash) for t in (task, loop))
    if not crashed:
        await task
    task.cancel()
    return crashed


def texts(entries: Sequence[Entry]) -> list[str]:
    return [e.text for e in entries if isinstance(e, UserEntry | AssistantEntry)]


async def test_a_session_is_the_same_after_a_restart(tmp_path: Path) -> None:
    store, loop = await opened(tmp_path)
    session = await store.active(KEY)
    await say(store, session, "hello")
    before = list(session.entries)
    await closed(store, loop)
    store, loop = await opened(tmp_path)
    again = await store.active(KEY)
    assert again.entries == before
    assert again.record == dataclasses.replace(session.record)
    await closed(store, loop)


async def test_two_who_open_a_session_at_once_get_one_object(tmp_path: Path) -> None:
    store, loop = await opened(tmp_path)
    await say(store, await store.active(KEY), "hello")
    await closed(store, loop)
    store, loop = await opened(tmp_path)
    first, second = await asyncio.gather(store.active(KEY), store.active(KEY))
    assert first is second
    await closed(store, loop)


async def test_a_deleted_session_takes_nothing_any_more_and_stays_gone(tmp_path: Path) -> None:
    store, loop = await opened(tmp_path)
    session = await store.active(KEY)
    await say(store, session, "secret")
    await store.delete(session.id)
    with pytest.raises(SessionGone):
        await store.append(session, user("more"))
    await closed(store, loop)
    store, loop = await opened(tmp_path)
    assert store.find(KEY) is None
    assert not list((tmp_path / "transcripts").rglob("*.jsonl"))
    await closed(store, loop)


async def test_a_session_the_index_has_not_heard_of_is_its_owners_and_keeps_what_was_set(tmp_path: Path) -> None:
    store, loop = await opened(tmp_path)
    session = await store.active(KEY, owner="ana")
    await say(store, session, "hello")
    chosen = SessionSettings(model="small", notes=False)
    await store.update(session, lambda record: dataclasses.replace(record, settings=chosen))
    following = await store.end(session, "new")
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)  # as a kill would: what is said now reaches no index
    index = {name: (tmp_path / name).read_bytes() for name in (SNAPSHOT, JOURNAL) if (tmp_path / name).exists()}
    await say(store, following, "again")
    for name, content in index.items():
        (tmp_path / name).write_bytes(content)
    store, loop = await opened(tmp_path)
    record = store.find(KEY)
    assert record is not None
    assert (record.session, record.owner, record.settings) == (following.id, "ana", chosen)
    assert record.previous == session.id
    await closed(store, loop)


@pytest.mark.parametrize("kind", ["delete", "generation", "end", "generation, and the index is gone"])
async def test_cut_at_any_step_the_state_is_before_or_after(tmp_path: Path, kind: str) -> None:
    outcomes: set[str] = set()
    for step in range(1, 80):
        folder = tmp_path / str(step)
        files = FaultyFiles()
        store, loop = await opened(folder, files)
        session = await store.active(KEY)
        for number in range(3):
            await say(store, session, f"message {number}")
        files.crash_at(step)
        crashed = await until_crash(loop, change(store, session, kind))
        loop.cancel()
        if "index is gone" in kind:
            for name in (SNAPSHOT, JOURNAL):
                (folder / name).unlink(missing_ok=True)
        store, loop = await opened(folder)
        outcomes.add(await state_of(store, folder))
        following = await store.active(KEY)
        await say(store, following, "goes on")
        await closed(store, loop)
        if not crashed:
            break
    else:
        pytest.fail("the change never got through")
    assert len(outcomes) == 2, outcomes


async def change(store: SessionStore, session: Session, kind: str) -> None:
    if kind == "delete":
        await store.delete(session.id)
    elif kind == "end":
        await say(store, await store.end(session, "new"), "a new life")
    else:
        moved = await store.move_generation(
            session,
            lambda entries: [dataclasses.replace(e, seq=0, id="") for e in entries],
            anchor=6,
            replay_from=1,
            change=lambda record: record,
        )
        assert moved


async def state_of(store: SessionStore, folder: Path) -> str:
    """What the restart found, in words; anything between before and after is a failure."""
    record = store.find(KEY)
    files = sorted(path.name for path in (folder / "transcripts").rglob("*.jsonl"))
    if record is None:
        assert files == []
        return "deleted"
    session = await store.open(record.session)
    assert len(files) in (record.generation, len(store.sessions_of(KEY)))
    said = texts(session.entries)
    first = [text for number in range(3) for text in (f"message {number}", f"re: message {number}")]
    if len(store.sessions_of(KEY)) == 2:
        assert said[:1] == ["a new life"]
        return "new session"
    assert said == first
    return f"generation {record.generation}"
