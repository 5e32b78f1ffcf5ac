"""The vector index proposes everything to everybody, and a whole daemon still shows nobody what is not theirs."""

from __future__ import annotations

import asyncio
import json
import random
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.bench.standin import Pace, StandIn
from tests.journeys.daemon import Client, config, model_settings, running
from tests.memory.test_isolation import LyingIndex

if TYPE_CHECKING:
    from pathlib import Path

    from memory.index import Near

PEOPLE = ("ana", "bob", "eva")
TOKENS: list[dict[str, Any]] = [
    {"name": name, "token": f"{name}-token-1234567890", "role": "user", "user": name} for name in PEOPLE
] + [{"name": "root", "token": "root-token-1234567890", "role": "admin"}]
GROUP = "agent:main:telegram:group:42"
STEPS = 60


class Household:
    """What each person has told, by a word that is in no other text: what is true now, and what ever was."""

    def __init__(self, client: Client, standin: StandIn, draw: random.Random) -> None:
        self.client = client
        self.standin = standin
        self.draw = draw
        self.now: dict[str, dict[str, str]] = {name: {} for name in (*PEOPLE, "project")}
        self.count = 0

    async def call(self, who: str, method: str, path: str, body: Any = None) -> Any:
        self.client.token = f"{who}-token-1234567890"
        status, content = await self.client.call(method, path, body)
        assert status in (200, 201), (who, method, path, status, content)
        return content

    def fact(self, owner: str) -> tuple[str, str]:
        self.count += 1
        word = f"word{owner}{self.count}x"
        return word, f"The tea in the house is {word}"

    def allowed(self, who: str) -> set[str]:
        shared = set(self.now["project"].values()) if who in ("ana", "bob") else set[str]()
        return set(self.now[who].values()) | shared

    def check(self, who: str, content: Any, allowed: set[str]) -> None:
        told = set(re.findall(r"word[a-z]+\d+x", json.dumps(content)))
        assert told <= allowed, f"{who} was told {told - allowed}"

    async def step(self) -> None:
        who = self.draw.choice(PEOPLE)
        mine = self.now[who]
        match self.draw.choice(["add", "share", "edit", "delete", "purge", "search", "list", "say", "say", "group"]):
            case "add":
                word, text = self.fact(who)
                made = await self.call(who, "POST", "/v1/memories", {"text": text, "topic": "reference"})
                mine[made["id"]] = word
            case "share" if who != "eva":
                word, text = self.fact("project")
                body = {"text": text, "topic": "reference", "pool": "project:shop"}
                made = await self.call(who, "POST", "/v1/memories", body)
                self.now["project"][made["id"]] = word
            case "edit" if mine:
                word, text = self.fact(who)
                memory = self.draw.choice(sorted(mine))
                await self.call(who, "PATCH", f"/v1/memories/{memory}", {"text": text})
                mine[memory] = word
            case "delete" if mine:
                memory = self.draw.choice(sorted(mine))
                await self.call(who, "DELETE", f"/v1/memories/{memory}")
                del mine[memory]
            case "purge" if mine:
                memory = self.draw.choice(sorted(mine))
                await self.call(who, "POST", f"/v1/memories/{memory}/purge")
                del mine[memory]
            case "search":
                for mode in ("hybrid", "vector", "keyword", "fetch"):
                    body = {"query": "tea in the house", "mode": mode, "limit": 50}
                    found = await self.call(who, "POST", "/v1/memories/search", body)
                    self.check(who, found, self.allowed(who))
            case "list":
                self.check(who, await self.call(who, "GET", "/v1/memories"), self.allowed(who))
            case "say":
                self.client.token = f"{who}-token-1234567890"
                await self.said(
                    who, f"agent:main:web:direct:{who}", self.allowed(who) - set(self.now["project"].values())
                )
            case "group":
                self.client.token = "root-token-1234567890"
                await self.said("a stranger", GROUP, set())
            case _:
                pass

    async def said(self, who: str, key: str, allowed: set[str]) -> None:
        """What the model is sent, what those who follow the turn are told, and what is kept of it."""
        asked = len(self.standin.requests)
        turn = await self.client.say("Which tea is in the house?", key=key)
        for request in list(self.standin.requests)[asked:]:
            self.check(who, request.body["messages"][-1], allowed)
            self.check(who, request.body["messages"][:-1], set())
        self.check(who, turn, allowed)
        events = await self.client.events("GET", f"/v1/turns/{turn['turn']}/events")
        self.check(who, [fields for _, name, fields in events if name == "recall"], set())
        self.check(who, await self.client.transcript(key), set())


class Everything(LyingIndex):
    """As the daemon asks for it."""

    configured = True

    async def near(self, pools: Any, text: str, limit: int) -> list[Near]:
        return (await super().near(pools or ["user:ana"], text, limit))[:limit]


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_whatever_the_index_says_nobody_is_told_what_is_not_theirs(tmp_path: Path, seed: int) -> None:
    async with StandIn(Pace(tokens=3)) as standin:
        settings = model_settings(standin.base_url, window=1_000_000, max_output=500)
        settings["roles"]["summary"] = "offline"
        household = config(**settings, auth={"tokens": TOKENS}, memory={"search": {"relevance": 0}})
        async with running(tmp_path, household) as client:
            memories = await client.daemon.parts.memory.open()
            memories.searcher.vectors = Everything(tmp_path / "state.db")
            life = Household(client, standin, random.Random(seed))
            await life.call("root", "POST", "/v1/projects", {"id": "shop", "members": ["ana", "bob"]})
            for _ in range(STEPS):
                await life.step()
            await asyncio.sleep(0)
            assert any("word" in json.dumps(request.body) for request in standin.requests), "something was recalled"
