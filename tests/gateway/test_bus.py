"""The bus: one order, readers at their own pace, and a word to those who have missed something."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from gateway.bus import BusEvent, EventBus

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection

RUN = "01RUN"


def emit(bus: EventBus, key: str = "a", name: str = "done", text: str = "", session: str = "s") -> None:
    bus.emit(name, {"text": text}, key=key, session=session, owner=None)


def everything(_: BusEvent) -> bool:
    return True


def follow(
    bus: EventBus, keys: Collection[str] | None = None, after: str | None = None
) -> AsyncGenerator[BusEvent, None]:
    return bus.follow(keys, everything, after)


async def read(bus: EventBus, keys: Collection[str] | None = None, after: str | None = None) -> list[str]:
    """What a reader gets of a bus that is closed: `name id`, or the text."""
    bus.close()
    return [
        event.fields["text"] if event.name == "done" else f"{event.name} {event.id}"
        async for event in follow(bus, keys, after)
    ]


async def test_a_reader_goes_on_after_its_last_event() -> None:
    bus = EventBus(RUN)
    for n in range(5):
        emit(bus, text=str(n))
    assert await read(bus, after=f"{RUN}-2") == [f"open {RUN}-2", "2", "3", "4"]
    assert await read(bus, after=bus.last_id) == [f"open {RUN}-5"]
    assert await read(bus) == [f"open {RUN}-5"]


async def test_who_asks_for_what_is_gone_is_told_so() -> None:
    bus = EventBus(RUN, kept=3)
    for n in range(6):
        emit(bus, text=str(n))
    assert await read(bus, after=f"{RUN}-1") == [f"gap {RUN}-3", "3", "4", "5"]
    assert await read(bus, after=f"{RUN}-3") == [f"open {RUN}-3", "3", "4", "5"]
    for unknown in ("01OLD-4", "0", f"{RUN}-99", f"{RUN}-x", "\u0664", f"{RUN}-{'9' * 40}"):
        assert (await read(bus, after=unknown))[:2] == [f"gap {RUN}-3", "3"]


async def test_a_slow_reader_is_told_what_it_missed_and_goes_on() -> None:
    bus = EventBus(RUN, kept=2)
    async with aclosing(follow(bus)) as events:
        assert (await anext(events)).name == "open"
        for n in range(5):
            emit(bus, text=str(n))
        assert (await anext(events)).name == "gap"
        assert [(await anext(events)).fields["text"] for _ in range(2)] == ["3", "4"]


async def test_a_reader_of_a_quiet_key_has_missed_nothing_when_others_were_busy() -> None:
    bus = EventBus(RUN, kept=2)
    async with aclosing(follow(bus, ["quiet"])) as events:
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        for _ in range(10):
            emit(bus, "busy")
        emit(bus, "quiet", text="at last")
        assert (await waiting).fields["text"] == "at last"


async def test_large_events_push_out_old_ones() -> None:
    bus = EventBus(RUN, kept_characters=100)
    for n in range(10):
        emit(bus, text=str(n) * 40)
    assert await read(bus, after="0") == [f"gap {RUN}-8", "8" * 40, "9" * 40]
    emit(bus, text="x" * 1000)
    assert await read(bus, after="0") == [f"gap {RUN}-10", "x" * 1000]


async def test_what_was_told_of_a_deleted_session_is_gone() -> None:
    bus = EventBus(RUN)
    emit(bus, text="private", session="doomed")
    emit(bus, text="other")
    bus.forget({"doomed"})
    assert await read(bus, after=f"{RUN}-0") == [f"open {RUN}-0", "other"]


async def test_nobody_gets_what_is_not_allowed() -> None:
    bus = EventBus(RUN)
    emit(bus, "mine", text="mine")
    emit(bus, "theirs", text="theirs")
    bus.close()
    got = [e.fields["text"] async for e in bus.follow(None, lambda e: e.key == "mine", f"{RUN}-0") if e.name == "done"]
    assert got == ["mine"]


async def test_a_reader_that_leaves_leaves_nothing_behind() -> None:
    bus = EventBus(RUN)
    async with aclosing(follow(bus, ["a", "b"])) as events:
        await anext(events)
    assert (bus._of_keys, bus._of_all) == ({}, set())  # pyright: ignore[reportPrivateUsage]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=40),
    st.sets(st.sampled_from("abc"), min_size=1),
    st.integers(1, 8),
)
def test_a_reader_gets_its_events_in_order_once_or_is_told_of_a_gap(
    steps: list[tuple[str, bool]], keys: set[str], kept: int
) -> None:
    async def run() -> None:
        bus = EventBus(RUN, kept=kept)
        got: list[BusEvent] = []
        gaps = 0

        async def reads() -> None:
            nonlocal gaps
            async for event in follow(bus, keys):
                if event.name == "done":
                    got.append(event)
                else:
                    gaps += event.name == "gap"

        reader = asyncio.create_task(reads())
        await asyncio.sleep(0)
        for n, (key, pause) in enumerate(steps):
            emit(bus, key, text=str(n))
            if pause:
                await asyncio.sleep(0)
        bus.close()
        await reader
        texts = [int(event.fields["text"]) for event in got]
        wanted = [n for n, (key, _) in enumerate(steps) if key in keys]
        assert texts == sorted(set(texts))
        assert set(texts) <= set(wanted)
        assert texts == wanted or gaps

    asyncio.run(run())
