"""A new embedding model, over HTTP: a job shows it, keywords serve meanwhile, and the counts are equal in the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.journeys.daemon import Client, config, running
from tests.journeys.test_memories import TOKENS, add, call, found
from tests.journeys.test_memory_runs import ended, start
from tests.memory.embedding_server import EmbeddingServer
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config import Config

FACTS = 30


def embedding(url: str, model: str, dimension: int) -> Config:
    return config(
        models={"vectors": {"provider": "openai", "model": model, "base_url": url, "api_key": "x"}},
        roles={"embedding": "vectors", "chat": "offline"},
        memory={"embedding": {"dimension": dimension, "timeout_s": 60}, "index": {"check_s": 0.2}},
        auth={"tokens": TOKENS},
    )


async def runs(client: Client) -> list[dict[str, Any]]:
    return (await call(client, "root", "GET", "/v1/memory-runs?kind=reindex"))[1]["runs"]


async def serving(client: Client, texts: int = FACTS) -> None:
    """Returns when the vectors of so many texts serve."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            told = (await client.get("/readyz"))["parts"]["vectors"]
            if told["state"] == "ok" and told["detail"] == f"{texts} texts":
                return
            await asyncio.sleep(0.02)


async def test_a_new_model_is_a_run_that_keywords_bridge(tmp_path: Path) -> None:
    async with EmbeddingServer() as server:
        async with running(tmp_path / "data", embedding(server.url, "small", 32)) as client:
            await serving(client, 0)
            for number in range(FACTS):
                await add(client, "ana", f"fact {number} of Ana")
            await serving(client)
            assert await runs(client) == [], "what follows single writes is no run"
        server.fault = "hang"
        async with running(tmp_path / "data", embedding(server.url, "large", 48)) as client:
            assert "fact 7 of Ana" in await found(client, "ana", "fact 7", limit=100)
            async with asyncio.timeout(PATIENCE_S):
                while not (listed := await runs(client)):
                    await asyncio.sleep(0.02)
            (run,) = listed
            assert (run["state"], run["automatic"], run["pool"], run["can_undo"]) == ("running", True, None, False)
            assert (await call(client, "ana", "GET", f"/v1/memory-runs/{run['id']}"))[0] == 404
            assert (await call(client, "root", "POST", f"/v1/memory-runs/{run['id']}/stop"))[0] == 409
            assert "fact 7 of Ana" in await found(client, "ana", "fact 7", limit=100)
            server.fault = ""
            server.release()
            done = await ended(client, "root", run)
            assert (done["state"], done["done"], done["total"], done["failed"]) == ("done", FACTS, FACTS, 0)
            assert "large" in done["model"]
            await serving(client)
            assert "fact 7 of Ana" in await found(client, "ana", "fact 7 of Ana", mode="vector", limit=100)


async def test_an_administrator_asks_for_a_new_index_and_nobody_else(tmp_path: Path) -> None:
    async with (
        EmbeddingServer() as server,
        running(tmp_path / "data", embedding(server.url, "small", 32)) as client,
    ):
        await serving(client, 0)
        for number in range(FACTS):
            await add(client, "ana", f"fact {number} of Ana")
        await serving(client)
        assert (await call(client, "ana", "POST", "/v1/memory-runs", {"kind": "reindex"}))[0] == 404
        assert "reindex" not in (await call(client, "ana", "GET", "/v1/memory-runs"))[1]["kinds"]
        run = await ended(client, "root", await start(client, "root", kind="reindex"))
        assert (run["state"], run["automatic"], run["done"], run["total"]) == ("done", False, FACTS, FACTS)
        await serving(client)
        assert len(await runs(client)) == 1
        assert (await call(client, "root", "POST", f"/v1/memory-runs/{run['id']}/undo"))[0] == 409
