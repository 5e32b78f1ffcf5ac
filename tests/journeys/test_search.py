"""What was said can be found again: after a summary, a reset, a crash; and only by those who may."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp

from gateway.transcript_search import NAME
from sessions.archive import DATABASE
from tests.crash.kills import Victim, free_port
from tests.journeys.daemon import KEY, Client, config, model_settings, running
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.standin import StandIn

SECRET = "The vault opens with the word Kestrelgrove, says Božena."
TOKENS: list[dict[str, Any]] = [
    {"name": "root", "token": "root", "role": "admin"},
    {"name": "ana", "token": "ana", "role": "user", "user": "ana", "key_prefixes": ["agent:main:telegram"]},
    {"name": "bob", "token": "bob", "role": "user", "user": "bob"},
    {"name": "bridge", "token": "bridge", "role": "frontend", "agents": ["other"]},
]


async def search(client: Client, words: str, key: str | None = None, **more: Any) -> dict[str, Any]:
    path = "/v1/search" if key is None else f"/v1/sessions/{key}/search"
    query = "".join(f"&{name}={value}" for name, value in more.items())
    return await client.get(f"{path}?q={quote(words)}{query}")


async def found(client: Client, words: str, key: str | None = None) -> list[str]:
    return [hit["text"] for hit in (await search(client, words, key))["hits"]]


async def compacted(client: Client, standin: StandIn) -> None:
    """A conversation whose first message stands in no prompt any more."""
    await client.say(SECRET)
    for number in range(12):
        await client.say(f"Message {number} about the hive. " + " ".join(f"w{number}x{n}" for n in range(60)))
    status, told = await client.call("POST", f"/v1/sessions/{KEY}/compact", {})
    assert status == 200
    assert told["generation"] >= 2
    await client.say("and now?")
    assert "Kestrelgrove, says" not in str(standin.requests[-1].body["messages"][2:])


def small(standin: StandIn) -> dict[str, Any]:
    settings = model_settings(standin.base_url, window=4000, max_output=500)
    return {**settings, "roles": {"chat": "chat", "summary": "offline"}}


async def test_what_was_compacted_away_is_found_by_people_and_by_the_model(tmp_path: Path, standin: StandIn) -> None:
    async with running(tmp_path, config(**small(standin))) as client:
        await compacted(client, standin)
        hit = (await search(client, "bozena vault"))["hits"][0]
        assert (hit["key"], hit["seq"], hit["role"], hit["text"]) == (KEY, 1, "user", SECRET)
        assert hit["before"] == []
        assert hit["after"][0]["text"] == f"echo: {SECRET}"
        summary = standin.requests[-1].body["messages"][1]["content"]
        assert f"the tool {NAME} finds them" in summary
        await client.say(f'call:{NAME} {{"query": "Kestrelgrove"}}')
        result = json.loads(next(m["content"] for m in standin.requests[-1].body["messages"] if m["role"] == "tool"))
        assert result["found"][0]["text"] == SECRET
        assert all("call:" not in one["text"] for one in result["found"])


async def test_a_former_session_is_found_and_another_chat_is_not(client: Client) -> None:
    await client.say(SECRET)
    await client.say("/new")
    await client.say("a new day")
    await client.say("Kestrelgrove elsewhere", key="agent:main:web:direct:bob")
    assert await found(client, "Kestrelgrove", KEY) == [SECRET, f"echo: {SECRET}"]
    assert len(await found(client, "Kestrelgrove")) == 4


async def test_a_deleted_chat_is_not_found_and_no_byte_of_it_is_kept(tmp_path: Path, standin: StandIn) -> None:
    async with running(tmp_path, config(**small(standin))) as client:
        await compacted(client, standin)
        await client.say("Kestrelgrove elsewhere", key="agent:main:web:direct:bob")
        assert len(await found(client, "Kestrelgrove")) == 4
        assert (await client.say("/status"))["state"] == "done"
        assert (await client.call("DELETE", f"/v1/sessions/{KEY}"))[0] == 200
        assert await found(client, "Kestrelgrove") == ["Kestrelgrove elsewhere", "echo: Kestrelgrove elsewhere"]
        for path in tmp_path.glob(f"{DATABASE}*"):
            content = path.read_bytes().lower()
            assert not [word for word in (b"bozena", b"vault", "božena".encode(), b"w3x7") if word in content], (
                path.name
            )
        assert (await client.call("GET", f"/v1/sessions/{KEY}/search?q=a"))[0] == 404


async def test_nobody_finds_what_they_may_not_see(tmp_path: Path) -> None:
    group, other = "agent:main:telegram:group:7", "agent:other:web:direct:zoe"
    async with running(tmp_path, config(auth={"tokens": TOKENS})) as client:
        client.token = "root"
        for key in (KEY, "agent:main:web:direct:bob", group, other, "cron:nightly"):
            await client.say(f"plover in {key}", key=key)
        expected = {
            "root": {KEY, "agent:main:web:direct:bob", group, other, "cron:nightly"},
            "ana": {KEY, group},
            "bob": {"agent:main:web:direct:bob"},
            "bridge": {other},
        }
        for client.token, keys in expected.items():
            hits = (await search(client, "plover", limit=50))["hits"]
            assert {hit["key"] for hit in hits} == keys
            assert not [key for key in expected["root"] - keys if f"plover in {key}" in str(hits)]


async def test_a_removed_index_is_built_again_while_replies_go_on(client: Client, tmp_path: Path) -> None:
    await client.say(SECRET)
    assert await found(client, "Kestrelgrove")
    for path in (tmp_path / "data").glob(f"{DATABASE}*"):
        path.unlink(missing_ok=True)
    assert (await client.say("still there?"))["state"] == "done"
    async with asyncio.timeout(PATIENCE_S):
        while not (answer := await search(client, "Kestrelgrove"))["complete"]:
            await asyncio.sleep(0.05)
    assert [hit["text"] for hit in answer["hits"]] == [SECRET, f"echo: {SECRET}"]
    assert (await client.get("/readyz"))["parts"]["archive"]["state"] == "ok"


async def test_a_bad_question_says_what_is_wrong(client: Client) -> None:
    await client.say("hello")
    for query, told in (("q=%3F%21", "no word"), ("", "q"), ("q=a&limit=51", "limit"), ("q=a&where=b", "where")):
        status, problem = await client.call("GET", f"/v1/search?{query}")
        assert status == 422
        assert told in problem["detail"]
    assert (await client.call("GET", "/v1/sessions/agent:main:web:direct:nobody/search?q=a"))[0] == 404
    assert await found(client, "nothing of the kind") == []
    long = "needle " + "hay " * 1500 + "pin " + "hay " * 1500
    await client.say(long)
    hit = (await search(client, "pin", limit=1))["hits"][0]
    assert "pin" in hit["text"]
    assert len(hit["text"]) < 2100


async def test_a_killed_daemon_finds_everything_that_was_acknowledged(tmp_path: Path) -> None:
    settings = tmp_path / "config.yaml"
    settings.write_text("logging: {level: warning}\n")
    victim = Victim(tmp_path / "data", settings, free_port())
    async with aiohttp.ClientSession() as http:

        async def hits(words: str) -> int:
            async with http.get(f"{victim.url}/v1/search", params={"q": words, "limit": 50}) as response:
                content = await response.json()
                assert response.status in (200, 503), content
                return len([h for h in content.get("hits", ()) if h["role"] == "user"])

        for round_number in range(3):
            await victim.start()
            for number in range(6):
                text = f"heron{round_number} {number}"
                async with http.post(
                    f"{victim.url}/v1/sessions/{KEY}/messages?wait=0", json={"text": text}
                ) as response:
                    assert response.status == 202
            if round_number == 1:
                await hits("heron1")
            await victim.kill()
        await victim.start()
        for round_number in range(3):
            async with asyncio.timeout(PATIENCE_S):
                while await hits(f"heron{round_number}") != 6:
                    await asyncio.sleep(0.05)
        await victim.stop()
