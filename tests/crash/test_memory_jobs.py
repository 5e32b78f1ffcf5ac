"""A daemon that is killed, again and again, while a job works on memory: it goes on, and comes to the same."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

from gateway.config import dump_yaml
from tests.bench.standin import Pace, StandIn
from tests.crash.kills import Victim
from tests.crash.test_jobs import ask
from tests.journeys.daemon import model_settings
from tests.memory.embedding_server import EmbeddingServer
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from pathlib import Path

KILLS = 4 if os.environ.get("SOAK") else 2
FACTS = 60


def long(number: int) -> str:
    return f"Item {number} costs {number} crowns, which somebody has said"


def short(number: int) -> str:
    return f"Item {number} costs {number} crowns"


def answer(body: dict[str, Any]) -> str:
    """Shortens every text it is asked about, or sorts all of them under one topic."""
    question = json.loads(next(m["content"] for m in body["messages"] if m["role"] == "user"))
    if "facts" in question:
        return json.dumps(dict.fromkeys(question["facts"], "preferences"))
    shown = [(m["id"], m["text"].partition(", which")) for m in question["memories"]]
    return json.dumps({"changes": [{"op": "update", "id": i, "text": head} for i, (head, sep, _) in shown if sep]})


@asynccontextmanager
async def victim(tmp_path: Path, port: int, settings: dict[str, Any]) -> AsyncIterator[Victim]:
    path = tmp_path / "config.yaml"
    path.write_text(dump_yaml(settings))
    one = Victim(tmp_path / "data", path, port)
    await one.start()
    try:
        yield one
    finally:
        if one.process is not None and one.process.returncode is None:
            await one.stop()


async def opened(one: Victim) -> None:
    """Memory answers; what it needs is opened behind the start."""
    async with aiohttp.ClientSession() as client:
        while True:
            async with client.get(f"{one.url}/v1/memories?limit=1") as response:
                if response.status == 200:
                    return
            await asyncio.sleep(0.05)


async def remember(one: Victim, facts: int, **fields: Any) -> None:
    lines = [json.dumps({"type": "memory", "text": long(number), **fields}) for number in range(facts)]
    taken = await ask(one, "POST", "/v1/memories/import", json={"content": "\n".join(lines)})
    assert taken["added"] == facts


async def seen(one: Victim) -> dict[str, tuple[str, str | None]]:
    page = await ask(one, "GET", "/v1/memories?limit=500")
    return {memory["id"]: (memory["text"], memory["topic"]) for memory in page["memories"]}


async def listed(one: Victim, kind: str, former: Iterable[str] = ()) -> list[dict[str, Any]]:
    runs = (await ask(one, "GET", f"/v1/memory-runs?kind={kind}"))["runs"]
    return [run for run in runs if run["id"] not in former]


async def ended(one: Victim, kind: str) -> list[str]:
    """Waits until no run goes on; the ids of those there were."""
    async with asyncio.timeout(PATIENCE_S):
        while "running" in {run["state"] for run in await listed(one, kind)}:
            await asyncio.sleep(0.02)
    return [run["id"] for run in await listed(one, kind)]


async def goes_on(one: Victim, kind: str, former: Iterable[str]) -> bool:
    """Waits until there is a run; whether it has not ended."""
    async with asyncio.timeout(PATIENCE_S):
        while not (runs := await listed(one, kind, former)):
            await asyncio.sleep(0.02)
    return runs[0]["state"] == "running"


async def killed_until_done(
    one: Victim,
    kind: str,
    body: dict[str, Any],
    check: Callable[[], Awaitable[None]] | None = None,
    *,
    former: Iterable[str] = (),
) -> dict[str, Any]:
    """Kills the daemon at random moments of a run; the run as it has ended. `check` is asked after every start.

    `former`: ids of runs that had ended before.
    """
    rng = random.Random(kind)
    await opened(one)
    if body:
        await ask(one, "POST", "/v1/memory-runs", json={"kind": kind, **body})
    cut = 0
    for number in range(KILLS):
        if number:
            await asyncio.sleep(rng.uniform(0, 0.5))
        cut += await goes_on(one, kind, former)
        await one.kill()
        await one.start()
        await opened(one)
        if check is not None:
            await check()
    assert cut, "no kill has met the run"
    async with asyncio.timeout(PATIENCE_S):
        while True:
            runs = await listed(one, kind, former)
            if runs and runs[0]["state"] != "running":
                assert len(runs) == 1, "one run, gone on with"
                return await ask(one, "GET", f"/v1/memory-runs/{runs[0]['id']}")
            await asyncio.sleep(0.05)


async def test_killed_while_memories_are_tidied(tmp_path: Path, unused_tcp_port: int) -> None:
    async with StandIn(Pace(first_token_ms=300)) as model:
        model.says = answer
        settings = model_settings(model.base_url)
        async with victim(tmp_path, unused_tcp_port, settings) as one:
            await opened(one)
            await remember(one, FACTS)
            before = await seen(one)

            async def before_or_after() -> None:
                for memory_id, (text, topic) in (await seen(one)).items():
                    number = int(before[memory_id][0].split()[1])
                    assert (text in (long(number), short(number)), topic) == (True, None)

            run = await killed_until_done(one, "consolidate", {"all": False}, before_or_after)
            assert (run["state"], run["done"], run["total"], run["failed"]) == ("done", FACTS, FACTS, 0)
            assert run["counts"] == {"changed": FACTS}
            assert len(run["changes"]) == FACTS
            assert sorted(text for text, _ in (await seen(one)).values()) == sorted(map(short, range(FACTS)))
            undone = await ask(one, "POST", f"/v1/memory-runs/{run['id']}/undo")
            assert (undone["back"], undone["left"]) == (FACTS, 0)
            assert await seen(one) == before


async def test_killed_while_memories_are_sorted_again(tmp_path: Path, unused_tcp_port: int) -> None:
    async with StandIn(Pace(first_token_ms=300)) as model:
        model.says = answer
        settings = model_settings(model.base_url)
        settings["roles"]["helper"] = "chat"
        async with victim(tmp_path, unused_tcp_port, settings) as one:
            await opened(one)
            await remember(one, FACTS, topic="decisions")
            before = await seen(one)
            run = await killed_until_done(one, "recategorize", {"all": True, "confirmed": True})
            assert (run["state"], run["failed"], run["counts"]) == ("done", 0, {"changed": FACTS})
            assert {topic for _, topic in (await seen(one)).values()} == {"preferences"}
            await ask(one, "POST", f"/v1/memory-runs/{run['id']}/undo")
            assert await seen(one) == before


async def test_killed_while_a_new_index_is_built_search_works_and_the_counts_are_equal(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    facts = 300
    async with EmbeddingServer() as server:

        def embedded(model: str, dimension: int) -> dict[str, Any]:
            vectors = {"provider": "openai", "model": model, "base_url": server.url, "api_key": "x"}
            memory = {"embedding": {"batch": 1, "dimension": dimension}}
            return {
                "models": {"vectors": vectors},
                "roles": {"embedding": "vectors", "chat": "offline"},
                "memory": memory,
            }

        async def whole(one: Victim) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    told = (await ask(one, "GET", "/readyz"))["parts"]["vectors"]
                    if told["state"] == "ok" and told.get("detail") == f"{facts} texts":
                        return
                    await asyncio.sleep(0.1)

        async with victim(tmp_path, unused_tcp_port, embedded("small", 32)) as one:
            await opened(one)
            await remember(one, facts)
            await whole(one)
            former = await ended(one, "reindex")  # of the first index, where it was opened with memories in it
            await one.kill()
            one.config.write_text(dump_yaml(embedded("large", 48)))
            server.fault = "slow"  # until the last kill, or it is done before the first
            await one.start()
            starts = itertools.count(1)

            async def found() -> None:
                if next(starts) == KILLS:
                    server.fault = ""
                hits = await ask(one, "POST", "/v1/memories/search", json={"query": "Item 7 costs crowns", "limit": 5})
                assert long(7) in [memory["text"] for memory in hits["memories"]]

            run = await killed_until_done(one, "reindex", {}, found, former=former)
            assert (run["state"], run["done"], run["total"], run["failed"]) == ("done", facts, facts, 0)
            assert (run["automatic"], run["model"]) == (True, "large")
            await whole(one)
            by_vector = {"query": long(7), "mode": "vector", "limit": 3}
            hits = await ask(one, "POST", "/v1/memories/search", json=by_vector)
            assert hits["memories"][0]["text"] == long(7)
