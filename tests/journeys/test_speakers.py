"""Two people in one group: whose memory a turn reaches when messages wait for it or join it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.journeys.daemon import Client, config, model_settings, running
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
