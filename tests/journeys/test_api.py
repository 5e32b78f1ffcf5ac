"""Everything else a frontend does with sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from sessions.files import OsFiles
from sessions.upkeep import verify
from tests.journeys.daemon import KEY, Client, config, model_settings, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.standin import StandIn

PATH = f"/v1/sessions/{KEY}"


async def test_settings_are_changed_and_given_back(client: Client) -> None:
    await client.say("hello")
    status, changed = await client.call("PATCH", PATH, {"title": "Bees", "model": "offline", "queue_mode": "collect"})
    assert status == 200
    assert (changed["title"], changed["settings"]["model"]) == ("Bees", "offline")
    assert "offline model" in (await client.say("what now?"))["text"]
    await client.call("PATCH", PATH, {"model": None, "reset": {"daily_at": None}})
    settings = (await client.get(PATH))["settings"]
    assert (settings["model"], settings["queue_mode"], settings["reset"]) == (None, "collect", {"daily_at": None})
    status, problem = await client.call("PATCH", PATH, {"model": "nope"})
    assert status == 400
    assert "chat" in problem["detail"]


async def test_archived_sessions_leave_the_list_and_come_back(client: Client) -> None:
    await client.say("hello")
    await client.call("PATCH", PATH, {"archived": True})
    assert (await client.get("/v1/sessions"))["sessions"] == []
    assert len((await client.get("/v1/sessions?archived=true"))["sessions"]) == 1
    await client.call("PATCH", PATH, {"archived": False})
    assert len((await client.get("/v1/sessions"))["sessions"]) == 1


async def test_pages_of_sessions_show_each_once(client: Client) -> None:
    keys = [f"agent:main:web:group:{n}" for n in range(7)]
    for key in keys:
        await client.say("hello", key)
    seen: list[str] = []
    cursor = ""
    while True:
        page = await client.get(f"/v1/sessions?limit=3{cursor}")
        seen += [session["key"] for session in page["sessions"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={quote(page['next'])}"
    assert seen == list(reversed(keys))


async def test_a_conversation_kept_elsewhere_is_stored_and_its_prompt_assembled(client: Client) -> None:
    entries = [
        {"role": "user", "text": "what time is it?"},
        {"role": "assistant", "tool_calls": [{"id": "c1", "name": "clock"}], "usage": {"input_total": 9, "output": 2}},
        {"role": "tool", "call_id": "c1", "name": "clock", "text": "noon"},
        {"role": "assistant", "text": "noon"},
        {"role": "user", "text": "thanks"},
    ]
    status, stored = await client.call("POST", f"{PATH}/entries", {"entries": entries})
    assert status == 201
    assert [e["seq"] for e in stored["entries"]] == [1, 2, 3, 4, 5]
    openai = (await client.get(f"{PATH}/prompt"))["request"]
    assert [m["role"] for m in openai["messages"]] == ["system", "user", "assistant", "tool", "assistant", "user"]
    anthropic = (await client.get(f"{PATH}/prompt?form=anthropic"))["request"]
    assert [m["role"] for m in anthropic["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert anthropic["messages"][2]["content"][0]["type"] == "tool_result"
    status, problem = await client.call("POST", f"{PATH}/entries", {"entries": [*entries, {"role": "user"}]})
    assert status == 422
    assert len((await client.transcript())) == 5


async def test_a_fork_is_a_copy_that_goes_its_own_way(client: Client, standin: StandIn) -> None:
    await client.say("one")
    await client.say("two")
    status, fork = await client.call("POST", f"{PATH}/fork", {"to": "agent:main:web:group:fork", "through": 2})
    assert status == 201
    await client.say("three", fork["key"])
    users = [m["content"] for m in standin.requests[-1].body["messages"] if m["role"] == "user"]
    assert users == ["one", "three"]
    assert len(await client.texts()) == 4
    assert (await client.call("POST", f"{PATH}/fork", {"to": KEY}))[0] == 409


@pytest.mark.parametrize("form", ["jsonl", "markdown", "openai"])
async def test_a_session_is_exported_in_three_forms_and_two_come_back(client: Client, form: str) -> None:
    first = await client.say("Žluťoučký kůň ไทย")
    status, content = await client.call("GET", f"{PATH}/export?format={form}")
    assert status == 200
    text = content.decode() if isinstance(content, bytes) else __import__("json").dumps(content, ensure_ascii=False)
    assert "Žluťoučký kůň ไทย" in text
    if form != "markdown":
        body = {"content": text, "key": "agent:main:web:group:copy"}
        status, taken = await client.call("POST", "/v1/import", body)
        assert status == 201, taken
        assert await client.texts("agent:main:web:group:copy") == ["Žluťoučký kůň ไทย", first["text"]]
        assert (await client.call("POST", "/v1/import", body))[0] == 409


async def test_a_bad_file_is_refused_with_its_places_and_nothing_is_taken(client: Client) -> None:
    content = '{"messages": [{"role": "user", "content": "ok"}, {"role": "alien", "content": "x"}]}'
    status, problem = await client.call("POST", "/v1/import", {"content": content, "key": KEY})
    assert status == 422
    assert problem["errors"][0]["place"] == "record 2"
    assert (await client.get("/v1/sessions"))["sessions"] == []


async def test_a_backup_of_a_running_daemon_opens_and_verifies(
    client: Client, tmp_path: Path, standin: StandIn
) -> None:
    first = await client.say("keep this")
    folder = tmp_path / "backup"
    status, copied = await client.call("POST", "/v1/backup", {"folder": str(folder)})
    assert status == 201, copied
    assert copied["files"] >= 2
    await client.say("after the backup")
    report = verify(OsFiles(), folder, lambda done, count: None)
    assert (report.transcripts, report.found) == (1, ())
    assert (await client.call("POST", "/v1/backup", {"folder": str(folder)}))[0] == 409
    async with running(folder, config(**model_settings(standin.base_url))) as restored:
        assert await restored.texts() == ["keep this", first["text"]]


async def test_deleted_means_deleted(client: Client) -> None:
    first = await client.say("a secret of mine")
    await client.say("/new")
    await client.say("another secret")
    assert (await client.call("DELETE", PATH))[1] == {"deleted": 2}
    for path in (PATH, f"{PATH}/transcript", f"{PATH}/history", f"/v1/turns/{first['turn']}"):
        assert (await client.call("GET", path))[0] == 404
    kept = client.daemon.parts.data_dir
    found = [path for path in kept.rglob("*") if path.is_file() and b"secret" in path.read_bytes()]
    assert [path for path in found if path.name != "sessions.journal.jsonl"] == []
    assert (await client.say("a new start"))["entries"][0]["seq"] == 1


async def test_usage_is_told_in_groups_as_json_and_csv(client: Client) -> None:
    for key in (KEY, "agent:main:web:group:g"):
        await client.say("hello", key)
    rows = (await client.get("/v1/usage?by=key"))["rows"]
    assert [(row["group"]["key"], row["calls"]) for row in rows] == [(KEY, 1), ("agent:main:web:group:g", 1)]
    assert rows[0]["usage"]["input_total"] > 0
    assert rows[0]["cost"] is None
    status, content = await client.call("GET", "/v1/usage?by=day,model&format=csv")
    assert status == 200
    assert content.decode().splitlines()[0].startswith("day,model,calls")
    assert (await client.call("GET", "/v1/usage?by=nonsense"))[0] == 422
