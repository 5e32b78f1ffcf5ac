"""What people set of memory for themselves: over HTTP, and what their next turn does with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.journeys.daemon import Client, running
from tests.journeys.test_recall import TOKENS, remember, settings, trailing

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.standin import StandIn

ANA, BOB = (token["token"] for token in TOKENS)
BOBS = "agent:main:web:direct:bob"
PATH = "/v1/memory-settings"


async def put(client: Client, who: str, body: dict[str, Any], method: str = "PUT") -> dict[str, Any]:
    client.token = who
    status, told = await client.call(method, PATH, body)
    assert status == 200, told
    return told


async def test_what_a_person_sets_holds_from_the_next_turn_on_also_after_a_restart_and_for_nobody_else(
    tmp_path: Path, standin: StandIn
) -> None:
    async with running(tmp_path, settings(standin)) as client:
        for who in (ANA, BOB):
            client.token = who
            for number in range(4):
                await remember(client, f"Tree {number} stands in the garden")

        async def shown(who: str) -> int:
            client.token = who
            await client.say("Which trees are in the garden?", **({"key": BOBS} if who == BOB else {}))
            return len(trailing(standin.requests[-1]))

        assert await shown(ANA) == 4
        told = await put(client, ANA, {"recall": {"limit": 2, "mid_turn": {"searches": 0}}})
        assert told["recall"]["own"] == ["limit", "mid_turn.searches"]
        assert (told["recall"]["limit"], told["pool"]) == (2, "user:ana")
        assert told["configured"]["recall"]["limit"] == 10
        assert await shown(ANA) == 2
        assert await shown(BOB) == 4
        told = await put(client, ANA, {"recall": {"on_message": False}}, "PATCH")
        assert told["recall"]["limit"] == 2
        assert await shown(ANA) == 0
    async with running(tmp_path, settings(standin)) as client:
        client.token = ANA
        assert len((await client.get(PATH))["recall"]["own"]) == 3
        await client.say("Which trees are in the garden?")
        assert trailing(standin.requests[-1]) == []
        told = await put(client, ANA, {"recall": {"on_message": None, "mid_turn": None}}, "PATCH")
        assert told["recall"]["own"] == ["limit"]
        assert (await put(client, ANA, {}))["recall"]["own"] == []
        await client.say("Which trees are in the garden?")
        assert len(trailing(standin.requests[-1])) == 4


async def test_what_is_impossible_is_refused_with_its_place_and_nothing_is_set(
    tmp_path: Path, standin: StandIn
) -> None:
    async with running(tmp_path, settings(standin)) as client:
        client.token = ANA
        for body, place in (
            ({"recall": {"wait_s": 31}}, "recall.wait_s"),
            ({"recall": {"limit": -1}}, "recall.limit"),
            ({"recall": {"mid_turn": {"batch": 21}}}, "recall.mid_turn.batch"),
            ({"recall": {"on_message": "yes"}}, "recall.on_message"),
            ({"recall": {"colour": 1}}, "recall.colour"),
            ({"retention": {}}, "retention"),
        ):
            status, told = await client.call("PUT", PATH, body)
            assert status == 422, told
            assert told["errors"][0]["place"] == place
        assert (await client.get(PATH))["recall"]["own"] == []
        document = await client.get("/openapi.json")
        assert set(document["paths"][PATH]) >= {"get", "put", "patch"}
        assert "wait_s" in str(document["components"]["schemas"])


async def test_settings_are_a_person_s_own(tmp_path: Path, standin: StandIn) -> None:
    found = settings(standin)
    tokens = [
        *TOKENS,
        {"name": "root", "token": "root-token-1234567890", "role": "admin"},
        {"name": "bridge", "token": "bridge-token-1234567890", "role": "frontend"},
    ]
    found = found.model_copy(update={"auth": type(found.auth).model_validate({"tokens": tokens})})
    async with running(tmp_path, found) as client:
        await put(client, ANA, {"recall": {"limit": 1}})
        client.token = BOB
        for method in ("GET", "PUT", "PATCH"):
            assert (await client.call(method, f"{PATH}?user=ana", {}))[0] == 404
            status, told = await client.call(
                method, f"{PATH}?pool=user:ana" if method == "GET" else PATH, {"pool": "user:ana"}
            )
            assert status == 404, told
        assert (await client.get(PATH))["recall"]["own"] == []
        for client.token in ("root-token-1234567890", "bridge-token-1234567890"):
            assert (await client.get(f"{PATH}?user=ana"))["recall"]["own"] == ["limit"]
        assert (await client.call("GET", PATH))[0] == 422
