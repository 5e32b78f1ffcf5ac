"""Two people in one group: whose memory a turn reaches when messages wait for it or join it."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any, Literal

import pytest

from tests.journeys.daemon import Client, config, model_settings, running
from tests.journeys.test_mcp import over_http, texts
from tests.journeys.test_queues import asked_times, ended
from tests.journeys.test_recall import TOKENS, remember, trailing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.bench.standin import StandIn

ANA, BOB = (token["token"] for token in TOKENS)
BRIDGE: dict[str, Any] = {
    "name": "bridge",
    "token": "bridge-token-1234567890",
    "role": "frontend",
    "key_prefixes": ["agent:main:telegram"],
}
GROUP = "agent:main:telegram:group:home"
SECRET = "Ana earns 91000 a year"


@pytest.fixture
async def bridge(tmp_path: Path, standin: StandIn) -> AsyncIterator[Client]:
    settings = config(
        **model_settings(standin.base_url),
        auth={"tokens": [*TOKENS, BRIDGE]},
        queue={"debounce_ms": 30},
        sessions={"identities": {"ana": ["telegram:1"], "bob": ["telegram:2"]}},
    )
    async with running(tmp_path, settings) as client:
        client.token = BRIDGE["token"]
        yield client


async def as_(client: Client, token: str) -> Client:
    client.token = token
    return client


async def together(client: Client, standin: StandIn, mode: str, text: str, sender: str) -> None:
    """Ana and somebody else write while a turn runs, so that both wait, or one may steer the other's turn."""
    before = len(standin.requests)
    standin.script("slow")
    if mode == "collect":
        turns = [await client.post("Good morning", GROUP, sender="9", queue=mode)]
        await asked_times(standin, before + 1)
        turns += [await client.post("Hello everybody", GROUP, sender="1", queue=mode)]
    else:
        turns = [await client.post("call:current_time {}", GROUP, sender="1", queue=mode)]
        await asked_times(standin, before + 1)
    turns += [await client.post(text, GROUP, sender=sender, queue=mode)]
    for turn in turns:
        assert (await ended(client, turn["turn"]))["state"] == "done"


@pytest.mark.parametrize("mode", ["collect", "steer"])
@pytest.mark.parametrize("sender", ["2", "666"])
async def test_a_message_that_comes_beside_anas_reaches_nothing_of_hers(
    bridge: Client, standin: StandIn, mode: str, sender: str
) -> None:
    secret = await remember(await as_(bridge, ANA), SECRET)
    await as_(bridge, BRIDGE["token"])
    await together(bridge, standin, mode, 'call:MemorySearch {"query": "Ana earns year"}', sender)
    await together(bridge, standin, mode, f'call:MemoryDelete {{"id": "{secret}"}}', sender)
    told = json.dumps([entry for entry in await bridge.transcript(GROUP) if entry["type"] != "user"])
    assert "91000" not in told
    assert all("91000" not in json.dumps(trailing(request)) for request in standin.requests)
    await as_(bridge, ANA)
    assert (await bridge.get(f"/v1/memories/{secret}"))["state"] == "active"


@pytest.mark.parametrize("mode", ["collect", "steer"])
async def test_what_ana_says_beside_her_own_message_is_answered_with_it(
    bridge: Client, standin: StandIn, mode: str
) -> None:
    await together(bridge, standin, mode, "How much was it?", "1")
    assert len(standin.requests) == 2
    assert "How much was it?" in standin.requests[-1].body["messages"][-1]["content"]


async def test_what_a_tool_finds_in_a_group_is_shown_in_its_owners_turn_and_stays_in_nobodys_history(
    bridge: Client, standin: StandIn
) -> None:
    standin.says = lambda _: "I have looked."
    secret = await remember(await as_(bridge, ANA), SECRET)
    loose = (await bridge.call("POST", "/v1/memories", {"text": "Ana's boat is sold"}))[1]["id"]
    await as_(bridge, BRIDGE["token"])
    for asked in ('MemorySearch {"query": "Ana earns"}', "MemoryList {}"):
        await bridge.say(f"call:{asked}", GROUP, sender="1")
        assert SECRET in [one["text"] for one in trailing(standin.requests[-1])], asked
    assert "Ana's boat is sold" in [one["text"] for one in trailing(standin.requests[-1])]
    await bridge.say('call:MemoryAdd {"text": "Ana earns 91000 yearly"}', GROUP, sender="1")
    await bridge.say("what did the tool say?", GROUP, sender="2")
    told = json.dumps(standin.requests[-1].body["messages"])
    assert secret in told
    assert loose in told
    assert "boat" not in told
    assert "a year" not in told
    results = [entry for entry in await bridge.transcript(GROUP) if entry["type"] == "tool_result"]
    assert len(results) == 3
    assert "91000" not in json.dumps(results)
    assert "topics" not in json.dumps(results)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
async def test_a_name_is_one_person_agent_and_project_however_its_accents_are_written(
    tmp_path: Path, standin: StandIn, form: Literal["NFC", "NFD"]
) -> None:
    def written(text: str) -> str:
        return unicodedata.normalize(form, text)

    zoe = {"name": "zoe", "token": "zoe-token-12345678901", "role": "user", "user": written("Zoë")}
    zoe |= {"agents": [written("café")], "key_prefixes": [written("agent:café:bübble:group:tým")]}
    root = {"name": "root", "token": "root-token-1234567890", "role": "admin"}
    bridge = {"name": "bridge", "token": BRIDGE["token"], "role": "frontend"}
    settings = config(
        **model_settings(standin.base_url),
        auth={"tokens": [zoe, root, bridge]},
        agents={written("café"): {"project": written("růže")}},
        sessions={"identities": {written("Zoë"): [written("bübble:zoë")]}},
    )
    async with running(tmp_path, settings) as client:
        await as_(client, root["token"])
        assert (await client.call("PATCH", "/v1/projects/růže", {"members": [written("Zoë")]}))[0] == 200
        assert (await client.get(f"/v1/projects/{written('růže')}"))["members"] == ["Zoë"]
        await as_(client, zoe["token"])
        own = await remember(client, "Zoë grows plums", topic="reference")
        shared = await remember(client, "Plums are sold in May", topic="decisions", pool="project:růže")
        await client.say("plums?", "agent:café:web:direct:Zoë")
        assert {one["id"] for one in trailing(standin.requests[-1])} == {own, shared}
        assert (await client.call("GET", "/v1/sessions/agent:café:web:direct:Zoë"))[0] == 200
        async with over_http(client, zoe["token"], f"?agent={written('café')}") as speaker:
            assert len(await texts(speaker, "plums")) == 2
        await as_(client, root["token"])
        for shelf in ({"agent": written("café")}, {"project": written("růže")}):
            kept = {"name": "roses.md", "text": "# Roses", **shelf}
            assert (await client.call("POST", "/v1/documents", kept))[0] == 201
        await as_(client, bridge["token"])
        page = await client.get(f"/v1/memories?user={written('Zoë')}")
        assert {one["id"] for one in page["memories"]} == {own, shared}
        await client.say("plums?", "agent:café:bübble:group:tým", sender=written("zoë"))
        assert {one["id"] for one in trailing(standin.requests[-1])} == {own, shared}
        await as_(client, zoe["token"])
        assert (await client.call("GET", "/v1/sessions/agent:café:bübble:group:tým"))[0] == 200
