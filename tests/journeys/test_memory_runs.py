"""Jobs on memory over HTTP, as a person sees them."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.journeys.daemon import Client, config, running
from tests.journeys.helpers import Helper
from tests.journeys.test_memories import TOKENS, add, call
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

HELPED: dict[str, Any] = {
    "models": {"helper": {"provider": "offline", "model": "helper"}},
    "roles": {"helper": "helper", "chat": "offline"},
    "auth": {"tokens": TOKENS},
}


def to_preferences(question: dict[str, Any]) -> str:
    """Sorts everything under preferences."""
    return json.dumps(dict.fromkeys(question["facts"], "preferences"))


@asynccontextmanager
async def helped(folder: Path, helper: Helper, **settings: Any) -> AsyncIterator[Client]:
    async with running(folder / "data", config(**HELPED, **settings)) as client:
        client.daemon.parts.models.put(helper)
        yield client


async def start(client: Client, who: str, **body: Any) -> dict[str, Any]:
    status, run = await call(client, who, "POST", "/v1/memory-runs", body)
    assert status in (200, 202), run
    return run


async def ended(client: Client, who: str, run: dict[str, Any]) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            _, found = await call(client, who, "GET", f"/v1/memory-runs/{run['id']}")
            if found["state"] != "running":
                return found
            await asyncio.sleep(0.01)


async def test_a_person_sorts_their_memories_again_watches_it_and_takes_it_back(tmp_path: Path) -> None:
    helper = Helper(to_preferences)
    async with helped(tmp_path, helper) as client:
        for number in range(25):
            await add(client, "ana", f"fact {number}", topic="decisions")
        await add(client, "ana", "Ana is a carpenter", topic="profile")
        await add(client, "bob", "a fact of Bob", topic="decisions")
        status, refused = await call(client, "ana", "POST", "/v1/memory-runs", {"kind": "recategorize", "all": True})
        assert (status, refused["errors"][0]["place"]) == (422, "confirmed")
        helper.going.clear()
        run = await start(client, "ana", kind="recategorize", all=True, confirmed=True)
        assert (run["state"], run["pool"], run["can_undo"]) == ("running", "user:ana", False)
        assert (await start(client, "ana", kind="recategorize"))["id"] == run["id"]
        assert (await call(client, "ana", "POST", f"/v1/memory-runs/{run['id']}/undo"))[0] == 409
        helper.going.set()
        done = await ended(client, "ana", run)
        assert (done["state"], done["done"], done["total"], done["failed"]) == ("done", 26, 26, 0)
        assert (done["counts"], done["model"], done["can_undo"]) == ({"changed": 25}, "helper", True)
        assert {(c["before"]["topic"], c["after"]["topic"]) for c in done["changes"]} == {("decisions", "preferences")}
        _, page = await call(client, "ana", "GET", "/v1/memories?topic=profile")
        assert [m["text"] for m in page["memories"]] == ["Ana is a carpenter"]
        changed = done["changes"][0]["memory"]
        await call(client, "ana", "PATCH", f"/v1/memories/{changed}", {"topic": "reference"})
        status, undone = await call(client, "ana", "POST", f"/v1/memory-runs/{run['id']}/undo")
        assert (status, undone["back"], undone["left"]) == (200, 24, 1)
        assert undone["undone_at"] is not None
        _, page = await call(client, "ana", "GET", "/v1/memories?topic=decisions")
        assert len(page["memories"]) == 24
        assert (await call(client, "ana", "GET", f"/v1/memories/{changed}"))[1]["topic"] == "reference"
        assert (await call(client, "ana", "POST", f"/v1/memory-runs/{run['id']}/undo"))[0] == 409
        _, listed = await call(client, "ana", "GET", "/v1/memory-runs")
        assert [one["id"] for one in listed["runs"]] == [run["id"]]
        assert (await call(client, "bob", "GET", "/v1/memory-runs"))[1]["runs"] == []


async def test_stopped_what_was_done_stays_and_the_rest_is_as_before(tmp_path: Path) -> None:
    helper = Helper(to_preferences)
    async with helped(tmp_path, helper) as client:
        for number in range(25):
            await add(client, "ana", f"fact {number}", topic="decisions")
        asked = 0

        def slowly(question: dict[str, Any]) -> str:
            nonlocal asked
            asked += 1
            if asked == 2:
                helper.going.clear()
            return to_preferences(question)

        helper.says = slowly
        run = await start(client, "ana", kind="recategorize", all=True, confirmed=True)
        async with asyncio.timeout(PATIENCE_S):
            while len(helper.asked) < 3:
                await asyncio.sleep(0.01)
        assert (await call(client, "bob", "POST", f"/v1/memory-runs/{run['id']}/stop"))[0] == 404
        assert (await call(client, "ana", "POST", f"/v1/memory-runs/{run['id']}/stop"))[0] == 200
        stopped = await ended(client, "ana", run)
        assert (stopped["state"], stopped["done"], stopped["total"]) == ("stopped", 20, 25)
        assert len(stopped["changes"]) == 20
        assert (await call(client, "ana", "POST", f"/v1/memory-runs/{run['id']}/stop"))[0] == 409


async def test_what_went_wrong_is_told_and_a_model_that_is_away_ends_it(tmp_path: Path) -> None:
    answers = iter(["no JSON", "still none", '{"1": "preferences"}'])
    helper = Helper(lambda _: next(answers, "down"))
    async with helped(tmp_path, helper) as client:
        for number in range(11):
            await add(client, "ana", f"fact {number}", topic="decisions")
        done = await ended(client, "ana", await start(client, "ana", kind="recategorize", all=True, confirmed=True))
        assert (done["state"], done["done"], done["failed"]) == ("incomplete", 1, 10)
        assert "no JSON" in done["problem"]
        for number in range(11, 40):
            await add(client, "ana", f"fact {number}", topic="decisions")
        down = await ended(client, "ana", await start(client, "ana", kind="recategorize", all=True, confirmed=True))
        assert (down["state"], down["done"]) == ("failed", 0)
        assert "down" in down["problem"]


async def test_a_job_without_the_model_it_needs_is_refused_and_says_what_to_set(tmp_path: Path) -> None:
    async with running(tmp_path / "data", config()) as client:
        for kind, role in (
            ("recategorize", "roles.helper"),
            ("batch", "roles.helper"),
            ("consolidate", "roles.consolidation"),
            ("reindex", "roles.embedding"),
        ):
            status, refused = await client.call("POST", "/v1/memory-runs", {"kind": kind})
            assert (status, role in refused["detail"]) == (409, True), (kind, refused)
        assert (await client.get("/v1/memory-runs"))["runs"] == []
        status, content = await client.call("POST", "/v1/memory-runs", {"kind": "dance"})
        assert (status, content["errors"][0]["place"]) == (422, "kind")


async def test_the_tool_of_the_model_starts_the_same_run(tmp_path: Path) -> None:
    helper = Helper(to_preferences)
    async with helped(tmp_path, helper) as client:
        await add(client, "ana", "Ana drinks tea", topic="decisions")
        parts = client.daemon.parts
        memories = await parts.memory.open()
        async with asyncio.timeout(PATIENCE_S):
            while memories.recategorize is None:
                await asyncio.sleep(0.01)
        from tests.memory.opened import person

        told = await memories.recategorize(person("ana"), True)
        _, listed = await call(client, "ana", "GET", "/v1/memory-runs")
        assert listed["runs"][0]["id"] in told
        assert (await ended(client, "ana", listed["runs"][0]))["counts"] == {"changed": 1}
