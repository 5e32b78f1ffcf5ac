from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from gateway.clock import ManualClock
from tests.journeys.daemon import KEY, Client, config, model_settings, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.standin import StandIn


async def test_new_with_a_text_starts_with_it(client: Client, standin: StandIn) -> None:
    await client.say("first life")
    answer = await client.say("/new second life")
    assert [e["text"] for e in answer["entries"] if e["type"] == "user"] == ["second life"]
    assert [m["content"] for m in standin.requests[-1].body["messages"] if m["role"] == "user"] == ["second life"]


async def test_commands_answer_without_a_model_call_and_are_recorded(client: Client, standin: StandIn) -> None:
    await client.say("hello")
    for command, expected in [
        ("/status", "Messages: 2"),
        ("/CONTEXT", "history"),
        ("/usage", "chat-model"),
        ("/model", "chat"),
        ("/help", "/resume"),
        ("/stop", "Nothing is running"),
    ]:
        answer = await client.say(command)
        assert expected in answer["text"], answer["text"]
    assert len(standin.requests) == 1
    commands = [e["name"] for e in await client.transcript() if e["type"] == "command"]
    assert commands == ["status", "context", "usage", "model", "help", "stop"]


async def test_what_only_looks_like_a_command_is_a_message(client: Client) -> None:
    for text in ("/etc/passwd", "/newish", " /new", "/ new"):
        answer = await client.say(text)
        assert answer["entries"][0]["type"] == "user"
    assert len({s["session"] for s in (await client.get(f"/v1/sessions/{KEY}/history"))["sessions"]}) == 1


async def test_a_former_session_can_be_resumed(client: Client, standin: StandIn) -> None:
    first = await client.say("about bees")
    await client.say("/new")
    await client.say("about ants")
    listed = await client.say("/resume")
    assert "1. " in listed["text"]
    assert "about bees" in listed["text"]
    await client.say("/resume 1")
    answer = await client.say("more")
    assert answer["session"] == first["session"]
    users = [m["content"] for m in standin.requests[-1].body["messages"] if m["role"] == "user"]
    assert users == ["about bees", "more"]


async def test_settings_outlive_a_reset(client: Client) -> None:
    await client.say("hello")
    await client.say("/model offline")
    await client.say("/new")
    answer = await client.say("hello again")
    assert "offline model" in answer["text"]


async def test_a_session_ends_by_the_day_at_the_next_message(tmp_path: Path, standin: StandIn) -> None:
    clock = ManualClock(datetime(2026, 3, 1, 20, 0, tzinfo=UTC))
    reset = {"daily_at": "04:00", "timezone": "Europe/Prague", "quiet_minutes": 30}
    settings = config(sessions={"reset": reset}, **model_settings(standin.base_url))
    async with running(tmp_path, settings, clock=clock) as client:
        first = await client.say("evening")
        clock.set(datetime(2026, 3, 2, 2, 50, tzinfo=UTC))
        assert (await client.say("still up"))["session"] == first["session"]
        clock.set(datetime(2026, 3, 2, 3, 10, tzinfo=UTC))
        assert (await client.say("nobody was quiet"))["session"] == first["session"]
        clock.set(datetime(2026, 3, 2, 9, 0, tzinfo=UTC))
        events = await client.events("POST", f"/v1/sessions/{KEY}/messages", {"text": "morning", "stream": True})
        started = [fields for _, name, fields in events if name == "session.started"]
        assert started[0]["reason"] == "daily"
        assert started[0]["session"] != first["session"]


async def test_a_session_ends_by_idleness(tmp_path: Path, standin: StandIn) -> None:
    clock = ManualClock(datetime(2026, 3, 1, 12, 0, tzinfo=UTC))
    settings = config(
        sessions={"reset": {"daily_at": None, "idle_minutes": 60, "by_type": {"group": {"idle_minutes": None}}}},
        **model_settings(standin.base_url),
    )
    group = "agent:main:web:group:g"
    async with running(tmp_path, settings, clock=clock) as client:
        first, in_group = await client.say("hi"), await client.say("hi", group)
        clock.set(clock.now() + timedelta(minutes=59))
        assert (await client.say("here"))["session"] == first["session"]
        await client.say("/status")
        clock.set(clock.now() + timedelta(minutes=61))
        assert (await client.say("back"))["session"] != first["session"]
        assert (await client.say("back", group))["session"] == in_group["session"]
