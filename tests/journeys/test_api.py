"""A frontend's day with the native API: settings, copies, files in and out, usage, and the end of a chat."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson

from gateway.clock import ManualClock
from sessions import upkeep
from sessions.files import OsFiles
from tests.journeys.daemon import KEY, Client, config, model_settings, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.standin import StandIn

PATH = f"/v1/sessions/{KEY}"
COPY = "agent:main:web:direct:copy"


async def test_settings_hold_and_null_takes_them_back(tmp_path: Path, standin: StandIn) -> None:
    settings = config(**model_settings(standin.base_url))
    async with running(tmp_path, settings) as client:
        await client.say("hello")
        patch = {"title": "Bees", "model": "chat", "queue_mode": "collect", "notes": False, "pinned": True}
        status, changed = await client.call("PATCH", PATH, {**patch, "reset": {"idle_minutes": 5}})
        assert status == 200, changed
        assert changed["settings"] == {
            "model": "chat",
            "queue_mode": "collect",
            "reset": {"idle_minutes": 5},
            "notes": False,
        }
    async with running(tmp_path, settings) as client:
        shown = await client.get(PATH)
        assert (shown["title"], shown["pinned"], shown["settings"]) == ("Bees", True, changed["settings"])
        cleared = {"title": None, "model": None, "queue_mode": None, "reset": None, "notes": None}
        _, changed = await client.call("PATCH", PATH, cleared)
        assert changed["settings"] == {"model": None, "queue_mode": None, "reset": None, "notes": True}
        assert changed["title"] is None
        status, problem = await client.call("PATCH", PATH, {"model": "nope"})
        assert (status, problem["errors"][0]["place"]) == (400, "model")
        status, problem = await client.call("PATCH", PATH, {"titel": "x"})
        assert status == 422
        assert "'title'" in problem["detail"]
        await client.call("PATCH", PATH, {"archived": True})
        assert (await client.get("/v1/sessions"))["sessions"] == []
        assert [s["key"] for s in (await client.get("/v1/sessions?archived=true"))["sessions"]] == [KEY]
        await client.call("PATCH", PATH, {"archived": False, "model": "offline"})
        assert [s["key"] for s in (await client.get("/v1/sessions"))["sessions"]] == [KEY]
        assert "offline model" in (await client.say("what now?"))["text"]


async def test_a_copy_goes_its_own_way(client: Client) -> None:
    first = await client.say("one")
    await client.say("two")
    entries = await client.transcript()
    status, copied = await client.call("POST", f"{PATH}/fork", {"to": COPY, "through": entries[1]["seq"]})
    assert (status, copied["key"], copied["messages"]) == (201, COPY, 2)
    await client.say("three", key=COPY)
    assert (await client.texts(COPY))[:3] == ["one", first["text"], "three"]
    assert len(await client.texts()) == 4
    assert (await client.call("POST", f"{PATH}/fork", {"to": COPY}))[0] == 409
    pinned = await client.call("POST", f"{PATH}/pin", {"seq": entries[0]["seq"]})
    assert (pinned[0], pinned[1]["type"]) == (200, "pinned")
    assert (await client.call("POST", f"{PATH}/pin", {"seq": 99}))[0] == 404


async def test_a_frontend_with_its_own_model_stores_entries_and_takes_the_prompt(client: Client) -> None:
    said: list[dict[str, Any]] = [
        {"role": "user", "text": "weather in Brno?", "sender": "ana"},
        {"role": "assistant", "tool_calls": [{"id": "t1", "name": "weather", "arguments": '{"city": "Brno"}'}]},
        {"role": "tool", "call_id": "t1", "name": "weather", "text": "sunny"},
        {"role": "assistant", "text": "Sunny.", "model": "m", "usage": {"input_total": 40, "output": 3}},
        {"role": "user", "text": "and tomorrow?"},
    ]
    status, written = await client.call("POST", f"{PATH}/entries", {"entries": said})
    assert (status, [e["seq"] for e in written["entries"]]) == (201, [1, 2, 3, 4, 5])
    openai = (await client.get(f"{PATH}/prompt?form=openai"))["request"]
    assert "tools" not in openai  # the daemon's own, which the frontend could not run
    roles = [m["role"] for m in openai["messages"] if m["role"] != "system"]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    anthropic = (await client.get(f"{PATH}/prompt?form=anthropic"))["request"]
    assert [m["role"] for m in anthropic["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert anthropic["messages"][1]["content"][-1]["input"] == {"city": "Brno"}
    status, problem = await client.call("POST", f"{PATH}/entries", {"entries": [said[0], {"role": "nobody"}]})
    assert (status, problem["errors"][0]["place"]) == (422, "entries.1")
    assert len(await client.transcript()) == 5


async def test_what_was_stored_with_a_request_id_is_stored_once(tmp_path: Path, standin: StandIn) -> None:
    settings = config(**model_settings(standin.base_url))
    body: dict[str, Any] = {
        "entries": [{"role": "assistant", "text": "welcome"}, {"role": "user", "text": "hi"}],
        "request_id": "e1",
    }
    async with running(tmp_path, settings) as client:
        status, first = await client.call("POST", f"{PATH}/entries", body)
        assert status == 201
        assert (await client.call("POST", f"{PATH}/entries", body))[1] == first
        (torn,) = (tmp_path / "transcripts" / "main").glob("*.jsonl")
    torn.write_bytes(torn.read_bytes()[:-20])  # as a crash in the middle of the request leaves it
    async with running(tmp_path, settings) as client:
        status, again = await client.call("POST", f"{PATH}/entries", body)
        assert (status, [e["text"] for e in again["entries"]]) == (201, ["welcome", "hi"])
        assert await client.texts() == ["welcome", "hi"]
        other = {**body, "entries": body["entries"][:1]}
        status, problem = await client.call("POST", f"{PATH}/entries", other)
        assert (status, problem["title"]) == (409, "Request id used before")
        assert (await client.call("POST", f"{PATH}/messages", {"text": "hi", "request_id": "e1"}))[0] == 409
    assert not standin.requests


async def test_history_reset_and_resume(client: Client) -> None:
    await client.say("one")
    before = (await client.get(PATH))["session"]
    status, following = await client.call("POST", f"{PATH}/reset")
    assert (status, following["session"] != before) == (200, True)
    listed = (await client.get(f"{PATH}/history"))["sessions"]
    assert [(s["session"], s["ended"]) for s in listed] == [(before, "reset")]
    await client.call("PATCH", PATH, {"queue_mode": "interrupt"})
    assert not [m for m in (await client.get(f"{PATH}/prompt"))["request"]["messages"] if m["role"] != "system"]
    await client.say("two")
    listed = (await client.get(f"{PATH}/history"))["sessions"]
    assert [s["session"] for s in listed] == [following["session"], before]
    assert listed[0]["settings"]["queue_mode"] == "interrupt"
    former = await client.get(f"{PATH}/transcript?session={before}")
    assert former["entries"][0]["text"] == "one"
    status, resumed = await client.call("POST", f"{PATH}/resume", {"session": before})
    assert (status, resumed["session"]) == (200, before)
    assert (await client.texts())[0] == "one"
    assert (await client.call("POST", f"{PATH}/resume", {"session": "0" * 26}))[0] == 404


async def test_pages_of_a_transcript_and_of_sessions_cover_everything_once(client: Client) -> None:
    for number in range(5):
        await client.say(f"m{number}")
        await client.say("hello", key=f"agent:main:web:group:g{number}")
    seqs: list[int] = []
    before = ""
    while True:
        page = await client.get(f"{PATH}/transcript?limit=3{before}")
        seqs = [e["seq"] for e in page["entries"]] + seqs
        if page["before"] is None:
            break
        before = f"&before={page['before']}"
    assert seqs == list(range(1, 11))
    keys: list[str] = []
    cursor = ""
    while True:
        page = await client.get(f"/v1/sessions?limit=2{cursor}")
        keys += [s["key"] for s in page["sessions"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert len(keys) == len(set(keys)) == 6
    assert {s["type"] for s in (await client.get("/v1/sessions?type=group"))["sessions"]} == {"group"}


async def test_context_and_usage_add_up(client: Client) -> None:
    replies = [await client.say(text) for text in ("one", "two")]
    await client.say("elsewhere", key="agent:main:web:group:g")
    report = await client.get(f"{PATH}/context")
    assert report["estimated"] == sum(part["tokens"] for part in report["parts"]) > 0
    rows = (await client.get(f"{PATH}/usage?by=model"))["rows"]
    assert [(row["group"], row["calls"]) for row in rows] == [({"model": "chat-model"}, 2)]
    assert rows[0]["usage"]["input_total"] == sum(reply["usage"]["input_total"] for reply in replies)
    assert (rows[0]["cost"], rows[0]["unpriced"]) == (None, 2)
    assert [row["calls"] for row in (await client.get("/v1/usage"))["rows"]] == [3]
    table = list(csv.DictReader(io.StringIO((await client.get("/v1/usage?by=key,model&format=csv")).decode())))
    assert {row["key"]: row["calls"] for row in table} == {KEY: "2", "agent:main:web:group:g": "1"}
    assert (await client.get("/v1/usage?until=2020-01-01T00:00:00Z"))["rows"] == []
    status, problem = await client.call("GET", "/v1/usage?by=mood")
    assert status == 422
    assert "mood" in problem["detail"]


async def test_what_is_exported_can_be_imported(client: Client) -> None:
    await client.say("tell me about bees")
    await client.say("and 🐝 wasps?\u2028yes")
    texts = await client.texts()
    for number, form in enumerate(("jsonl", "openai")):
        content = await client.call("GET", f"{PATH}/export?format={form}")
        raw = content[1] if isinstance(content[1], bytes) else orjson.dumps(content[1])
        key = f"agent:main:web:direct:in{number}"
        status, taken = await client.call("POST", "/v1/import", {"content": raw.decode(), "key": key})
        assert (status, taken["sessions"][0]["key"]) == (201, key), taken
        assert await client.texts(key) == texts
        status, problem = await client.call("POST", "/v1/import", {"content": raw.decode(), "key": key})
        assert status == 409
        assert key in problem["detail"]
    assert b"tell me about bees" in await client.get(f"{PATH}/export?format=markdown")
    broken = {"content": '{"messages": [{"role": "user", "content": "a"}, {"role": "odd"}]}', "key": COPY}
    status, problem = await client.call("POST", "/v1/import", broken)
    assert (status, [e["place"] for e in problem["errors"]]) == (422, ["record 2"])
    assert (await client.call("GET", f"/v1/sessions/{COPY}"))[0] == 404


async def test_a_backup_of_a_running_daemon_opens_and_verifies(tmp_path: Path, standin: StandIn) -> None:
    settings = config(**model_settings(standin.base_url))
    folder = tmp_path / "backup"
    async with running(tmp_path / "data", settings) as client:
        await client.say("keep me")
        await client.call("PATCH", PATH, {"title": "Kept"})
        await client.get("/v1/usage")
        status, copied = await client.call("POST", "/v1/backup", {"folder": str(folder)})
        assert (status, copied["folder"]) == (201, str(folder)), copied
        texts = await client.texts()
        for refused, code in ((str(folder), 409), (str(tmp_path / "data" / "in"), 409), ("here", 422), ("/\0", 422)):
            assert (await client.call("POST", "/v1/backup", {"folder": refused}))[0] == code
    assert upkeep.verify(OsFiles(), folder, lambda done, count: None).found == ()
    async with running(folder, settings) as client:
        assert await client.texts() == texts
        assert (await client.get(PATH))["title"] == "Kept"
        assert [row["calls"] for row in (await client.get(f"{PATH}/usage"))["rows"]] == [1]


async def test_a_deleted_chat_leaves_no_file_and_no_route_finds_it(tmp_path: Path, standin: StandIn) -> None:
    settings = config(**model_settings(standin.base_url))
    async with running(tmp_path, settings) as client:
        picture = {"type": "image", "url": "data:image/png;base64,aHVzaC1waWN0dXJl"}
        status, first = await client.call("POST", f"{PATH}/messages", {"text": "hush-one", "content": [picture]})
        assert status == 200, first
        await client.call("PATCH", PATH, {"title": "hush-title"})
        await client.call("POST", f"{PATH}/reset")
        await client.say("hush-two")
        await client.call("POST", f"{PATH}/reset")
        await client.say("stays", key=COPY)
        sessions = [s["session"] for s in (await client.get(f"{PATH}/history"))["sessions"]]
        status, gone = await client.call("DELETE", PATH)
        assert (status, gone["deleted"]) == (200, len(sessions))
        for path in ("", "/transcript", "/history", "/context", "/prompt", "/export", "/usage"):
            assert (await client.call("GET", PATH + path))[0] == 404
        assert (await client.call("GET", f"/v1/turns/{first['turn']}"))[0] == 404
        assert [s["key"] for s in (await client.get("/v1/sessions"))["sessions"]] == [COPY]
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in left if any(session in path.name for session in sessions)]
    assert not [path for path in left if b"hush" in path.read_bytes()]
    async with running(tmp_path, settings) as client:
        assert (await client.call("GET", PATH))[0] == 404
        assert (await client.texts(COPY))[0] == "stays"
        assert (await client.say("a new start"))["entries"][0]["seq"] == 1


async def test_what_is_stored_from_elsewhere_follows_the_resets_too(tmp_path: Path, standin: StandIn) -> None:
    clock = ManualClock(datetime(2026, 3, 1, 12, 0, tzinfo=UTC))
    settings = config(sessions={"reset": {"daily_at": None, "idle_minutes": 60}}, **model_settings(standin.base_url))
    async with running(tmp_path, settings, clock=clock) as client:
        entries = {"entries": [{"role": "user", "text": "hello"}]}
        first = (await client.call("POST", f"{PATH}/entries", entries))[1]["session"]
        clock.set(clock.now() + timedelta(minutes=61))
        assert (await client.call("POST", f"{PATH}/entries", entries))[1]["session"] != first


async def test_nothing_of_a_deleted_chat_is_inherited(client: Client) -> None:
    await client.say("hello")
    await client.say("/model offline")
    await client.say("/new")
    await client.call("DELETE", PATH)
    answer = await client.say("a stranger")
    assert "offline model" not in answer["text"]


async def test_pins_are_for_texts_and_have_a_limit(tmp_path: Path, standin: StandIn) -> None:
    settings = config(**model_settings(standin.base_url, window=4000))
    async with running(tmp_path, settings) as client:
        await client.say("call:current_time {}")
        await client.say("remember " + "word " * 300)
        await client.say("and " + "word " * 300)
        status, problem = await client.call("POST", f"{PATH}/pin", {"seq": 2})
        assert (status, "tool call" in problem["detail"]) == (409, True)
        users = [e["seq"] for e in await client.transcript() if e["type"] == "user"]
        assert (await client.call("POST", f"{PATH}/pin", {"seq": users[1]}))[0] == 200
        status, problem = await client.call("POST", f"{PATH}/pin", {"seq": users[2]})
        assert (status, "Unpin" in problem["detail"]) == (409, True)
        await client.call("POST", f"{PATH}/pin", {"seq": users[1], "pinned": False})
        assert (await client.call("POST", f"{PATH}/pin", {"seq": users[2]}))[0] == 200
