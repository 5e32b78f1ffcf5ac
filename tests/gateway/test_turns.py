from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from gateway.models.base import UnknownModel
from gateway.turn import Incoming
from sessions.keys import parse_key
from tests.gateway.turning import ANA, turning
from tests.patience import until

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.turn import Turn
    from tests.gateway.turning import Turning

BOB = parse_key("agent:main:web:direct:bob")


async def cut(data_dir: Path, *texts: str, source: str | None = None) -> list[Turn]:
    """Turns a daemon stopped in the middle of: the first was asked already."""
    async with turning(data_dir) as daemon:
        daemon.model.hold(texts[0])
        turns = [await daemon.post(texts[0], source=source)]
        await daemon.asked(texts[0])
        return [*turns, *[await daemon.post(text) for text in texts[1:]]]


def the_file(data_dir: Path, turn: Turn) -> Path:
    return next((data_dir / "transcripts").rglob(f"{turn.record.session}.1.jsonl"))


# --- after a restart --------------------------------------------------------------------------------------------------


async def test_a_session_that_cannot_be_read_keeps_no_other_from_going_on(tmp_path: Path) -> None:
    async with turning(tmp_path) as daemon:
        for text in ("one", "two"):
            daemon.model.hold(text)
        lost, well = await daemon.post("one"), await daemon.post("two", BOB)
        await daemon.asked("two")
    the_file(tmp_path, lost).unlink()
    async with turning(tmp_path) as daemon:
        found = await daemon.turns.find(well.id)
        assert found is not None
        await daemon.done(found)
        assert await daemon.told(well.record.session) == ["two", "re: two (stop)"]


async def test_a_line_of_another_writer_behind_an_open_message_does_not_hide_it(tmp_path: Path) -> None:
    turns = await cut(tmp_path, "one", "two")
    path = the_file(tmp_path, turns[0])
    line = json.loads(path.read_bytes().splitlines()[1])
    del line["crc"]
    with path.open("ab") as file:
        file.write(json.dumps({**line, "id": "x", "text": "another writer's line"}).encode() + b"\n")
    async with turning(tmp_path) as daemon:
        found = [await daemon.turns.find(turn.id) for turn in turns]
        await daemon.done(*[turn for turn in found if turn])
        told = await daemon.told(turns[0].record.session)
        assert [text for text in told if text.startswith("re: ")] == told[-2:]
        assert "re: two (stop)" in told


async def test_after_a_restart_the_next_message_goes_to_the_session_that_was_begun(tmp_path: Path) -> None:
    async with turning(tmp_path) as daemon:
        daemon.model.hold("one")
        old = await daemon.post("one")
        await daemon.asked("one")
        await daemon.say("/new")
    async with turning(tmp_path) as daemon:
        daemon.model.hold("one")
        again = await daemon.turns.find(old.id)
        assert again is not None
        coming = await daemon.post("two")
        assert coming.session.id != old.record.session
        assert coming.state == "waiting"
        await daemon.asked("one")
        daemon.model.held["one"].set()
        await daemon.done(again, coming)
        assert daemon.model.asked[-1] == ["two"]
        third = await daemon.say("three")
        assert third.record.session == coming.record.session
        assert (await daemon.store.open(old.record.session)).record.ended == "new"


# --- turns that are held for their owner ------------------------------------------------------------------------------


async def test_asking_for_a_held_turn_does_not_end_it(tmp_path: Path) -> None:
    (turn,) = await cut(tmp_path, "report", source="job:x")
    async with turning(tmp_path) as daemon:
        found = await daemon.turns.find(turn.id)
        assert found is not None
        assert (found.state, found.result) == ("waiting", None)
        resumed = await daemon.turns.resume(turn.id)
        assert resumed is found
        await daemon.done(found)
        assert await daemon.told(turn.record.session) == ["report", "re: report (stop)"]


async def test_what_a_person_says_meanwhile_does_not_end_a_held_turn(tmp_path: Path) -> None:
    turns = await cut(tmp_path, "report", "and a person", source="job:x")
    async with turning(tmp_path) as daemon:
        await until(lambda: not daemon.turns.busy(turns[0].record.session))
        assert await daemon.told(turns[0].record.session) == ["report", "and a person", "re: and a person (stop)"]
        resumed = await daemon.turns.resume(turns[0].id)
        assert resumed is not None
        await daemon.done(resumed)
        assert (await daemon.told(turns[0].record.session))[-1] == "re: report (stop)"


@pytest.mark.parametrize("by", ["owner", "delete"])
async def test_who_waits_for_a_held_turn_is_told_that_it_is_given_up(tmp_path: Path, by: str) -> None:
    (turn,) = await cut(tmp_path, "report", source="job:x")
    async with turning(tmp_path) as daemon:
        found = await daemon.turns.find(turn.id)
        assert found is not None
        if by == "owner":
            await daemon.turns.abandon(turn.id, "The job is gone.")
        else:
            await daemon.turns.forget(ANA, [turn.record.session])
        await daemon.done(found)
        assert found.result is not None
        assert found.result.error_code == ("interrupted" if by == "owner" else "stopped")
        assert (await daemon.turns.find(turn.id) is None) == (by == "delete")


async def test_who_asks_for_a_message_just_written_follows_the_turn_that_runs(tmp_path: Path) -> None:
    async with turning(tmp_path) as daemon:
        session = (await daemon.say("one")).record.session
        early: list[asyncio.Task[Turn | None]] = []

        def ask(*_: object) -> None:
            early.append(asyncio.ensure_future(daemon.turns.find(f"{session}-3")))

        daemon.store.after_append.insert(0, ask)
        turn = await daemon.post("two")
        assert await early[0] is turn
        await daemon.done(turn)
        assert turn.result is not None
        assert turn.result.text == "re: two"


# --- nothing is kept for nothing --------------------------------------------------------------------------------------


def kept(daemon: Turning) -> tuple[int, int]:
    return len(daemon.store._fresh), len(daemon.turns._lanes._lanes)


async def test_refused_messages_and_commands_leave_nothing_in_memory(tmp_path: Path) -> None:
    async with turning(tmp_path) as daemon:
        for number in range(3):
            key = parse_key(f"agent:main:web:direct:n{number}")
            with pytest.raises(UnknownModel):
                await daemon.post("hello", key, model="nobody's")
            assert await daemon.turns.turn_of(key, "no request") is None
            await daemon.say("/status", parse_key(f"agent:main:web:direct:s{number}"))
        await until(lambda: kept(daemon) == (0, 0))


async def test_a_refused_message_does_not_undo_a_new_session(tmp_path: Path) -> None:
    async with turning(tmp_path) as daemon:
        await daemon.say("one")
        await daemon.say("/new")
        begun = daemon.store.find(ANA)
        with pytest.raises(UnknownModel):
            await daemon.post("two", model="nobody's")
        assert daemon.store.find(ANA) == begun


async def test_a_refused_message_that_would_have_begun_a_session_leaves_the_one_there_was(tmp_path: Path) -> None:
    async with turning(tmp_path) as daemon:
        daemon.model.hold("one")
        first = await daemon.post("one")
        with pytest.raises(UnknownModel):
            await daemon.turns.start(ANA, Incoming(text="two", model="nobody's", fresh=True))
        second = await daemon.post("three")
        assert second.session.id == first.session.id
        daemon.model.held["one"].set()
        await daemon.done(first, second)
        await until(lambda: kept(daemon) == (0, 0))
