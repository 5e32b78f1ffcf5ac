"""Topics in a whole daemon: what new people start with, what is recalled where, one memory for each scope."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.journeys.daemon import Client, config, model_settings, running
from tests.journeys.test_memory_tools import use
from tests.journeys.test_recall import TOKENS, remember, trailing

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config import Config
    from tests.bench.standin import StandIn

ANA = TOKENS[0]["token"]
ROOT = "root-token-1234567890"
SHOP = "agent:shop:web:direct:ana"


def with_shop(standin: StandIn) -> Config:
    tokens = [*TOKENS, {"name": "root", "token": ROOT, "role": "admin"}]
    return config(**model_settings(standin.base_url), auth={"tokens": tokens}, agents={"shop": {"project": "shop"}})


async def topic(client: Client, name: str, **more: Any) -> dict[str, Any]:
    status, made = await client.call("POST", "/v1/topics", {"name": name, "description": f"All of {name}", **more})
    assert status == 201, made
    return made


async def test_a_topic_bound_to_a_project_is_recalled_in_its_conversations_only(
    tmp_path: Path, standin: StandIn
) -> None:
    async with running(tmp_path, with_shop(standin)) as client:
        client.token = ROOT
        await client.call("PATCH", "/v1/projects/shop", {"members": ["ana"]})
        client.token = ANA
        await topic(client, "orders", project="shop")
        bound = await remember(client, "Plum orders go to Brno", topic="orders")
        everywhere = await remember(client, "Plum trees bloom in April", topic="reference")
        shared = await remember(client, "Plum jam is sold in May", pool="project:shop", topic="decisions")
        status, unsorted = await client.call("POST", "/v1/memories", {"text": "Plum stones are hard"})
        assert status == 201
        await client.say("What of plum?", key=SHOP)
        assert {one["id"] for one in trailing(standin.requests[-1])} == {bound, everywhere, shared}
        await client.say("What of plum?")
        assert {one["id"] for one in trailing(standin.requests[-1])} == {everywhere}
        found = await use(client, "MemorySearch", query="plum stones")
        assert unsorted["id"] in [one["id"] for one in found["memories"]]


async def test_a_new_person_has_the_defaults_and_a_deleted_topic_leaves_its_memories(
    tmp_path: Path, standin: StandIn
) -> None:
    async with running(tmp_path, with_shop(standin)) as client:
        client.token = ANA
        topics = {one["name"]: one for one in (await client.get("/v1/topics"))["topics"]}
        assert list(topics) == ["decisions", "preferences", "profile", "projects", "reference"]
        assert [name for name, one in topics.items() if one["bounded"]] == ["profile"]
        tea = await remember(client, "Ana drinks tea", topic="preferences")
        await client.say("tea?")
        assert [one["id"] for one in trailing(standin.requests[-1])] == [tea]
        status, gone = await client.call("DELETE", f"/v1/topics/{topics['preferences']['id']}")
        assert (status, gone["memories"]) == (200, 1)
        left = await client.get(f"/v1/memories/{tea}")
        assert (left["state"], left["topic"]) == ("active", None)
        await client.say("tea again?")
        assert trailing(standin.requests[-1]) == []


async def test_a_bounded_topic_holds_one_memory_for_each_scope(tmp_path: Path, standin: StandIn) -> None:
    async with running(tmp_path, with_shop(standin)) as client:
        client.token = ANA
        await topic(client, "state of a garden", bounded=True, scope_properties=["garden"])

        async def put(text: str, **properties: str) -> tuple[int, Any]:
            body = {"text": text, "topic": "state of a garden", "properties": properties}
            return await client.call("POST", "/v1/memories", body)

        first, second, third = [
            (await put(text, garden=garden))[1]
            for text, garden in (("Plums are ripe", "north"), ("Plums are picked", "north"), ("Frost", "south"))
        ]
        assert (first["id"], second["outcome"]) == (second["id"], "updated")
        assert third["id"] != first["id"]
        status, told = await put("Nobody knows where")
        assert (status, told["errors"][0]["place"]) == (422, "properties")
        await client.say("How are the plums?")
        assert [one["text"] for one in trailing(standin.requests[-1])] == ["Plums are picked"]
