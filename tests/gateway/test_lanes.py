from __future__ import annotations

import asyncio
import errno
import gc
from typing import TYPE_CHECKING

import pytest

from gateway.kept_turns import KeptTurns
from gateway.models.base import Finished
from gateway.turn import Incoming, Turn, TurnResult
from sessions.files import FaultyFiles, OsFiles
from tests.gateway.turning import ANA, HeldDisk, Speaker, turning
from tests.patience import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from gateway.models.base import ModelEvent, ModelRequest
    from sessions.session import Session

COLLECT = {"mode": "collect", "debounce_ms": 100}


async def test_the_first_message_of_a_new_session_may_be_stopped_while_the_old_one_still_runs(tmp_path: Path) -> None:
    async with turning(tmp_path) as daemon:
        daemon.model.hold("one")
        first = await daemon.post("one")
        second = await daemon.post("/new hello")
        assert await daemon.turns.stop(second)
        daemon.model.held["one"].set()
        await daemon.done(first)
        third = await daemon.say("next")
        assert daemon.alive
        assert third.record.session == second.record.session
        assert await daemon.told(first.record.session) == ["one", "/new", "re: one (stop)"]
        assert (await daemon.store.open(first.record.session)).record.ended == "new"


@pytest.mark.parametrize("ended_by", ["stop", "stop alone", "delete"])
async def test_what_is_collected_may_be_stopped_to_the_last_message(tmp_path: Path, ended_by: str) -> None:
    async with turning(tmp_path, queue=COLLECT) as daemon:
        turn = await daemon.post("one")
        if ended_by != "delete":
            assert await daemon.turns.stop(turn)
        else:
            await daemon.turns.forget(ANA, [turn.record.session])
        assert turn.result is not None
        assert turn.result.error_code == "stopped"
        if ended_by == "stop alone":
            await until(lambda: not daemon.turns._lanes.present(turn.record.session))
        again = await daemon.say("two")
        assert again.result is not None
        assert again.result.text == "re: two"
        assert daemon.alive
        assert daemon.model.asked == [["one", "two"] if ended_by != "delete" else ["two"]]


async def test_a_message_that_comes_while_the_last_reply_is_written_waits_in_the_same_line(tmp_path: Path) -> None:
    disk = HeldDisk()
    async with turning(tmp_path, files=OsFiles(disk)) as daemon:
        for text in ("one", "two"):
            daemon.model.hold(text)
        first = await daemon.post("one")
        await daemon.asked("one")
        disk.hold()
        daemon.model.held["one"].set()
        await until(lambda: disk.syncs("assistant"))
        coming = asyncio.create_task(daemon.post("two"))
        await asyncio.sleep(0)
        disk.go_on()
        second = await coming
        await daemon.asked("two")
        third = await daemon.post("three")
        assert daemon.turns.lane_state(second.session.id) == ([second], [third])
        daemon.model.held["two"].set()
        await daemon.done(first, second, third)
        assert daemon.model.most_at_once == 1
        assert await daemon.told(first.record.session) == [
            *("one", "re: one (stop)", "two", "three", "re: two (stop)", "re: three (stop)"),
        ]


async def test_a_message_is_not_taken_for_lost_before_it_stands_in_line(tmp_path: Path) -> None:
    """Its entry is written a moment before: what ends just then must not mark it as failed."""
    async with turning(tmp_path) as daemon:
        session = (await daemon.say("one")).record.session
        turns = [await daemon.post(f"message {number}") for number in range(30)]
        await daemon.done(*turns)
        told = await daemon.told(session)
        assert not [line for line in told if line.startswith("failed")]
        assert len(told) == 62


async def test_a_reply_that_is_stopped_while_it_is_written_stands_once(tmp_path: Path) -> None:
    disk = HeldDisk()
    async with turning(tmp_path, files=OsFiles(disk)) as daemon:
        daemon.model.hold("one")
        turn = await daemon.post("one")
        await daemon.asked("one")
        disk.hold()
        daemon.model.held["one"].set()
        await until(lambda: disk.syncs("assistant"))
        assert await daemon.turns.stop(turn)
        await asyncio.sleep(0)
        disk.go_on()
        await daemon.done(turn)
        assert await daemon.told(turn.record.session) == ["one", "re: one (stop)"]
        assert turn.result is not None
        assert turn.result.text == "re: one"


async def test_what_was_said_before_a_call_stands_once_when_it_is_stopped_while_it_is_written(tmp_path: Path) -> None:
    disk = HeldDisk()
    async with turning(tmp_path, files=OsFiles(disk)) as daemon:
        daemon.model.hold("call:")
        turn = await daemon.post("call:")
        await daemon.asked("call:")
        disk.hold()
        daemon.model.held["call:"].set()
        await until(lambda: disk.syncs("assistant"))
        assert await daemon.turns.stop(turn)
        await asyncio.sleep(0)
        disk.go_on()
        await daemon.done(turn)
        assert await daemon.told(turn.record.session) == ["call:", "re: call: (tool_calls)", " (stopped)"]


async def test_a_session_that_is_deleted_while_its_next_turn_begins_ends_nothing_else(tmp_path: Path) -> None:
    disk = HeldDisk()
    async with turning(tmp_path, files=OsFiles(disk)) as daemon:
        daemon.model.hold("two")
        first = await daemon.say("one")
        await daemon.post("two")
        await daemon.asked("two")
        waiting = await daemon.post("three")
        await daemon.turns.forget(ANA, [first.record.session])
        await daemon.done(waiting)
        assert daemon.turns.live(waiting.id) is None
        assert (await daemon.say("four")).record.session != first.record.session
        assert daemon.alive


async def test_a_fault_of_ours_ends_one_turn_and_nothing_else(tmp_path: Path) -> None:
    async with turning(tmp_path) as daemon:
        struck: list[str] = []

        def broken(session: Session) -> None:
            struck.append(session.id)
            raise RuntimeError("a hook is broken")

        daemon.turns.after_turn.append(broken)
        for text in ("one", "two"):
            turn = await daemon.say(text)
            assert turn.result is not None
            assert turn.result.text == f"re: {text}"
        await until(lambda: len(struck) == 2)
        assert daemon.alive


class Cancelling(Speaker):
    """Cancels itself when it is told to."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        async for event in super().stream(request):
            if isinstance(event, Finished) and event.text == "re: cancel":
                raise asyncio.CancelledError
            yield event


async def test_a_call_that_cancels_itself_ends_one_turn_and_nothing_else(tmp_path: Path) -> None:
    async with turning(tmp_path, model=Cancelling()) as daemon:
        daemon.model.hold("cancel")
        first, second = await daemon.post("cancel"), await daemon.post("two")
        daemon.model.held["cancel"].set()
        await daemon.done(first, second)
        assert await daemon.told(second.record.session) == ["cancel", "two", "failed: internal", "re: two (stop)"]


async def test_a_waiting_turn_that_is_stopped_on_a_full_disk_ends_and_is_settled_later(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with turning(tmp_path, files=files) as daemon:
        daemon.model.hold("one")
        first, second = await daemon.post("one"), await daemon.post("two")
        files.fail("write", errno.ENOSPC, where="transcripts")
        assert await daemon.turns.stop(second)
        await daemon.done(second)
        assert second.result is not None
        assert second.result.error_code == "storage_full"
        files.heal()
        daemon.model.held["one"].set()
        third = await daemon.say("three")
        await daemon.done(first)
        assert third.result is not None
        assert await daemon.told(third.record.session) == [
            *("one", "two", "re: one (stop)", "three", "failed: storage", "re: three (stop)"),
        ]


async def test_a_second_stop_of_a_waiting_turn_does_not_stop_the_running_one(tmp_path: Path) -> None:
    disk = HeldDisk()
    async with turning(tmp_path, files=OsFiles(disk)) as daemon:
        daemon.model.hold("one")
        first, second = await daemon.post("one"), await daemon.post("two")
        disk.hold()
        stops = [asyncio.create_task(daemon.turns.stop(second)) for _ in range(2)]
        await until(lambda: disk.syncs("turn_failed"))
        assert await daemon.turns.find(second.id) is second
        disk.go_on()
        assert await asyncio.gather(*stops) == [True, False]
        assert first.state == "running"
        daemon.model.held["one"].set()
        await daemon.done(first)


async def test_turns_that_ended_do_not_keep_their_sessions_in_memory(tmp_path: Path) -> None:
    async with turning(tmp_path, sessions={"cache_bytes": 0}) as daemon:
        sessions = [(await daemon.say("/new hello")).record.session for _ in range(5)]
        await until(lambda: not any(daemon.turns.busy(session) for session in sessions))
        gc.collect()
        assert len(daemon.store._live) <= 2
        found = await daemon.turns.find(f"{sessions[0]}-1")
        assert found is not None
        assert found.record.session == sessions[0]


def test_ended_turns_are_kept_up_to_a_number_and_a_size() -> None:
    kept = KeptTurns(3, characters=100)
    for number, length in enumerate((10, 10, 10, 10, 80, 200)):
        kept.keep(ended(str(number), "x" * length))
        found = [one for one in "012345" if kept.find(one)]
        assert found == [["0"], ["0", "1"], ["0", "1", "2"], ["1", "2", "3"], ["2", "3", "4"], []][number]


def ended(wanted: str, text: str) -> Turn:
    class Known:
        record = None

    turn = Turn(wanted, Known(), Incoming(text=""), "followup")  # type: ignore[arg-type]
    turn.end(TurnResult(turn=wanted, session="", key="", text=text, entries=()))
    return turn
