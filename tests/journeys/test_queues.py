from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.journeys.daemon import KEY, Client, config, model_settings, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.standin import StandIn


async def ended(client: Client, turn: str) -> dict[str, object]:
    await client.events("GET", f"/v1/turns/{turn}/events")
    return await client.get(f"/v1/turns/{turn}")


def asked(standin: StandIn) -> list[list[str]]:
    """The user messages of each request to the model."""
    return [[m["content"] for m in r.body["messages"] if m["role"] == "user"] for r in standin.requests]


async def asked_times(standin: StandIn, times: int) -> None:
    """Waits until the model has been asked so often: an attempt that had not begun would not count."""
    while len(standin.requests) < times:
        await asyncio.sleep(0.01)


async def begun(client: Client, turn: str) -> None:
    """Waits for the first words of a reply, whatever else is told before them."""
    for limit in range(2, 10):
        events = await client.events("GET", f"/v1/turns/{turn}/events", limit=limit)
        if any(name == "delta" for _, name, _ in events):
            return
    raise AssertionError(f"no words among {events}")


async def test_followup_answers_each_in_order(client: Client, standin: StandIn) -> None:
    standin.script("slow")
    turns = [await client.post(text) for text in ("one", "two", "three")]
    for turn in turns:
        assert (await ended(client, turn["turn"]))["state"] == "done"
    assert asked(standin) == [["one"], ["one", "two"], ["one", "two", "three"]]


async def test_collect_makes_one_turn_of_all_that_wait(tmp_path: Path, standin: StandIn) -> None:
    settings = config(queue={"mode": "collect", "debounce_ms": 30}, **model_settings(standin.base_url))
    async with running(tmp_path, settings) as client:
        standin.script("slow")
        turns = [await client.post("one")]
        await asyncio.sleep(0.1)
        turns += [await client.post(text) for text in ("two", "three")]
        results = [await ended(client, turn["turn"]) for turn in turns]
        assert asked(standin) == [["one"], ["one", "two", "three"]]
        assert results[1]["text"] == results[2]["text"]


async def test_interrupt_keeps_the_partial_reply_and_answers_the_new_message(client: Client, standin: StandIn) -> None:
    standin.script("hang_middle")
    first = await client.post("one two three four")
    await begun(client, first["turn"])
    second = await client.say("stop that", queue="interrupt")
    assert (await ended(client, first["turn"]))["finish"] == "interrupted"
    assert second["finish"] == "stop"


async def test_steer_is_shown_at_the_next_tool_boundary(client: Client, standin: StandIn) -> None:
    standin.script("slow")
    first = await client.post("call:current_time {}")
    await asyncio.sleep(0.05)
    second = await client.post("in Prague, please", queue="steer")
    results = [await ended(client, turn["turn"]) for turn in (first, second)]
    assert results[0]["text"] == results[1]["text"]
    assert len(standin.requests) == 2
    assert asked(standin)[1] == ["call:current_time {}", "in Prague, please"]
    roles = [m["role"] for m in standin.requests[1].body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "user"]
    await client.say("and now?")
    sent = [request.body["messages"] for request in standin.requests]
    assert sent[2][: len(sent[1])] == sent[1]


async def test_steer_without_a_boundary_is_the_next_turn(client: Client, standin: StandIn) -> None:
    standin.script("slow")
    first = await client.post("one")
    second = await client.post("two", queue="steer")
    await ended(client, first["turn"])
    await ended(client, second["turn"])
    assert asked(standin) == [["one"], ["one", "two"]]


async def test_beyond_the_cap_nothing_is_half_accepted(tmp_path: Path, standin: StandIn) -> None:
    settings = config(queue={"cap": 2}, **model_settings(standin.base_url))
    async with running(tmp_path, settings) as client:
        standin.script("slow")
        for text in ("one", "two", "three"):
            await client.post(text)
            await asyncio.sleep(0.05)
        status, problem = await client.call("POST", f"/v1/sessions/{KEY}/messages", {"text": "four"})
        assert (status, problem["title"]) == (429, "Queue full")
        assert [e["text"] for e in await client.transcript() if e["type"] == "user"] == ["one", "two", "three"]


async def test_stopping_keeps_what_came_and_a_waiting_turn_is_taken_out(client: Client, standin: StandIn) -> None:
    standin.script("hang_middle")
    first = await client.post("one two three four")
    waiting = await client.post("never")
    await begun(client, first["turn"])
    for turn in (waiting, first):
        assert (await client.call("POST", f"/v1/turns/{turn['turn']}/stop"))[1] == {"stopped": True}
    assert (await ended(client, first["turn"]))["finish"] == "stopped"
    assert (await ended(client, waiting["turn"]))["error"]["code"] == "stopped"
    assert (await client.say("next"))["state"] == "done"


async def test_what_waits_is_answered_after_a_restart(tmp_path: Path, standin: StandIn) -> None:
    settings = config(**model_settings(standin.base_url))
    async with running(tmp_path, settings) as client:
        standin.script("hang")
        turns = [await client.post(text) for text in ("one", "two")]
        await asked_times(standin, 1)
    async with running(tmp_path, settings) as client:
        for turn in turns:
            assert (await ended(client, turn["turn"]))["state"] == "done"
        kinds = [e["type"] for e in await client.transcript()]
        assert kinds == ["user", "user", "attempt", "assistant", "attempt", "assistant"]
    assert asked(standin)[1:] == [["one"], ["one", "two"]]


async def test_an_interrupted_turn_is_given_up_after_three_attempts(tmp_path: Path, standin: StandIn) -> None:
    settings = config(**model_settings(standin.base_url))
    async with running(tmp_path, settings) as client:
        standin.script("hang", "hang", "hang")
        turn = (await client.post("one"))["turn"]
        await asked_times(standin, 1)
    for attempt in (2, 3):
        async with running(tmp_path, settings):
            await asked_times(standin, attempt)
    async with running(tmp_path, settings) as client:
        result = await ended(client, turn)
        assert result["error"]["code"] == "interrupted"
        assert (await client.say("two"))["state"] == "done"


@pytest.mark.parametrize("command", ["/new", "/reset"])
async def test_a_new_session_waits_for_the_running_turn_and_takes_messages_at_once(
    client: Client, standin: StandIn, command: str
) -> None:
    standin.script("slow")
    old = await client.post("old question")
    told = await client.say(command)
    after = await client.say("new question")
    assert (await ended(client, old["turn"]))["state"] == "done"
    assert after["session"] != old["session"]
    assert told["session"] == old["session"]
    assert asked(standin) == [["old question"], ["new question"]]
    former = await client.get(f"/v1/sessions/{KEY}/history")
    assert [s["session"] for s in former["sessions"]] == [after["session"], old["session"]]
    assert former["sessions"][1]["ended"] == command[1:]
