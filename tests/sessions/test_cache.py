"""Sessions kept in memory: the recently used ones, up to a limit that counts what they really take."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import weakref
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from gateway.clock import ManualClock
from sessions.cache import OVERHEAD_BYTES, PER_BYTE
from sessions.files import OsFiles
from sessions.keys import parse_key
from sessions.policy import SessionsPolicy
from sessions.store import SessionStore
from tests.sessions.builders import user

if TYPE_CHECKING:
    from pathlib import Path

    from sessions.session import Session


async def opened(folder: Path, **policy: int) -> SessionStore:
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    store = SessionStore(folder, SessionsPolicy.model_validate(policy), OsFiles(), clock)
    await store.start()
    return store


async def talked(store: SessionStore, who: int, messages: int = 1) -> Session:
    session = await store.active(parse_key(f"agent:main:web:direct:{who}"))
    for _ in range(messages):
        await store.append(session, user("one two three " * 20), opens_turn=True)
    return session


async def test_the_longest_unused_sessions_leave_memory_and_come_back_from_disk(tmp_path: Path) -> None:
    store = await opened(tmp_path, cache_bytes=5 * OVERHEAD_BYTES)
    seen = [weakref.ref(await talked(store, who)) for who in range(10)]
    gc.collect()
    kept = [one() is not None for one in seen]
    assert kept == sorted(kept)
    assert 1 <= sum(kept) <= 5
    again = await store.active(parse_key("agent:main:web:direct:0"))
    assert len(again.entries) == 1
    await store.stop()


async def test_a_session_ended_by_the_timer_takes_no_memory(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    session = await talked(store, 1)
    await store.close(session, "daily")
    gone = weakref.ref(session)
    del session
    await asyncio.sleep(0)
    gc.collect()
    assert gone() is None
    following = await store.active(parse_key("agent:main:web:direct:1"))
    assert following.record.previous is not None
    assert not following.entries
    await store.stop()


@pytest.mark.parametrize("messages", [2, 100])
async def test_the_estimate_is_about_what_a_session_takes(tmp_path: Path, messages: int) -> None:
    store = await opened(tmp_path)
    for who in range(20):
        await talked(store, who, messages)
    await store.stop()
    store = await opened(tmp_path)
    first, *keys = [parse_key(f"agent:main:web:direct:{who}") for who in range(20)]
    await store.active(first)
    gc.collect()
    tracemalloc.start()
    held = [await store.active(key) for key in keys]
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] / len(held)
    tracemalloc.stop()
    estimate = OVERHEAD_BYTES + PER_BYTE * held[0].record.size
    assert 0.5 < taken / estimate < 2
    await store.stop()
