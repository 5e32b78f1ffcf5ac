"""What happens in chats, followed from outside: one stream of a key, one of many, after a reset and after a restart."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.bench.standin import Pace, StandIn
from tests.journeys.daemon import KEY, Client, config, model_settings, running
from tests.patience import until

if TYPE_CHECKING:
    from pathlib import Path

OTHER = "agent:main:web:direct:bob"
LATER = "agent:main:web:group:a,b"


def names(events: list[tuple[str, str, dict[str, Any]]]) -> list[str]:
    return [name for _, name, _ in events]


async def opened(client: Client, path: str, limit: int, after: str | None = None) -> asyncio.Task[Any]:
    """A reader of `limit` events that has begun to read."""
    bus = client.daemon.parts.bus
    known = bus.readers
    reader = asyncio.create_task(client.events("GET", path, limit=limit, after=after))
    while bus.readers == known:
        await asyncio.sleep(0.005)
    return reader


async def test_a_key_is_followed_through_a_reset(offline: Client) -> None:
    await offline.say("hello")
    reader = await opened(offline, f"/v1/sessions/{KEY}/events", 11)
    second = await offline.say("again")
    await offline.say("something else", OTHER)
    reset = await offline.say("/new and now")
    events = [event for event in await reader if event[1] != "usage"]
    started = ["session.started", "accepted", "done"]
    assert names(events) == ["open", "accepted", "done", "accepted", "done", "session.ended", *started]
    assert (events[2][2]["turn"], events[2][2]["text"]) == (second["turn"], second["text"])
    assert (events[5][2]["session"], events[5][2]["reason"]) == (second["session"], "new")
    assert (events[6][2]["session"], events[6][2]["previous"]) == (reset["session"], second["session"])
    assert {fields["key"] for _, _, fields in events[1:]} == {KEY}


async def test_many_keys_are_followed_also_those_that_begin_later(offline: Client) -> None:
    reader = await opened(offline, f"/v1/events?keys={KEY},{LATER}&keys={OTHER}", 4)
    await offline.say("hello", LATER)
    events = await reader
    assert names(events)[:3] == ["open", "session.started", "accepted"]
    assert events[1][2] == {"key": LATER, "session": events[2][2]["session"], "reason": "first", "previous": None}


async def test_a_reader_comes_back_with_its_last_id(offline: Client) -> None:
    await offline.say("hello")
    (opening,) = await offline.events("GET", f"/v1/sessions/{KEY}/events", limit=1)
    second = await offline.say("again")
    events = await offline.events("GET", f"/v1/sessions/{KEY}/events", after=opening[0], limit=4)
    assert names(events)[:2] == ["open", "accepted"]
    assert {fields["turn"] for _, _, fields in events[1:]} == {second["turn"]}


async def test_after_a_restart_a_reader_is_told_that_events_are_gone(tmp_path: Path) -> None:
    async with running(tmp_path, config()) as client:
        await client.say("hello")
        last = client.daemon.parts.bus.last_id
    async with running(tmp_path, config()) as client:
        events = await client.events("GET", f"/v1/sessions/{KEY}/events", after=last, limit=1)
        assert names(events) == ["gap"]
        assert "transcripts" in events[0][2]["detail"]


async def test_open_streams_do_not_hold_up_a_stop(tmp_path: Path) -> None:
    async with running(tmp_path, config()) as client:
        reader = await opened(client, "/v1/events", 100)
        client.daemon.stop()
        assert names(await reader) == ["open"]


async def test_a_deleted_chat_is_told_and_forgotten(offline: Client) -> None:
    await offline.say("my secret")
    await offline.call("DELETE", f"/v1/sessions/{KEY}")
    events = await offline.events("GET", f"/v1/events?keys={KEY}", after="0", limit=2)
    assert names(events) == ["gap", "session.deleted"]
    assert "secret" not in str(offline.daemon.parts.bus.recent())


async def test_what_is_no_key_is_refused(offline: Client) -> None:
    status, content = await offline.call("GET", "/v1/events?keys=nonsense")
    assert (status, content["title"]) == (400, "Malformed session key")


async def test_a_compaction_is_told_once(offline: Client) -> None:
    for number in range(12):
        await offline.say(f"{number}: " + "the hive is green. " * 40)
    await offline.call("POST", f"/v1/sessions/{KEY}/compact", {})
    told = [e.fields["state"] for e in offline.daemon.parts.bus.recent() if e.name == "compaction"]
    assert [state for state in told if state != "progress"] == ["started", "done"]


async def test_one_stream_tells_of_a_key_and_brings_the_text_of_its_replies(tmp_path: Path) -> None:
    async with (
        StandIn(Pace(token_ms=1)) as standin,
        running(tmp_path, config(**model_settings(standin.base_url))) as on,
    ):
        reader = await opened(on, f"/v1/events?keys={KEY}&text=true", 1000)
        first = await on.say("hello, " + "and more " * 10)
        second = await on.say("call:current_time {}")
        on.daemon.stop()
        events = await reader
    for turn in (first, second):
        own = [(name, fields) for _, name, fields in events if fields.get("turn") == turn["turn"]]
        assert [name for name, _ in own if name in ("accepted", "done")] == ["accepted", "done"]
        assert own[0][0] == "accepted"
        assert {fields["key"] for _, fields in own} == {KEY}
        at = [n for n, (name, _) in enumerate(own) if name == "tool_result"]
        said = "".join(fields["text"] for name, fields in own[at[-1] if at else 0 :] if name == "delta")
        assert said == turn["text"]
    assert names(events)[:2] == ["open", "session.started"]


async def test_whoever_comes_later_gets_what_is_being_written_from_its_beginning(tmp_path: Path) -> None:
    async with (
        StandIn(Pace(token_ms=20)) as standin,
        running(tmp_path, config(**model_settings(standin.base_url))) as on,
    ):
        posted = await on.post("hello, " + "and more " * 3000)
        turn = on.daemon.parts.turns.live(posted["turn"])
        assert turn is not None
        await until(lambda: len("".join(turn.shown)) > 30)
        for _ in range(2):
            events = await on.events("GET", f"/v1/events?keys={KEY}&text=true", limit=4)
            assert names(events) == ["open", "accepted", "delta", "delta"]
            assert events[2][2]["text"].startswith("echo: hello, and")
        await on.call("POST", f"/v1/turns/{turn.id}/stop")


async def test_a_stream_with_text_names_its_keys(offline: Client) -> None:
    status, content = await offline.call("GET", "/v1/events?text=true")
    assert (status, content["errors"][0]["detail"]) == (422, "A stream with the text of replies names its keys."), (
        content
    )
