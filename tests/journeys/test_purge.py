"""Deleted for good is deleted for good: in a whole daemon with vectors, every file of it is searched byte by byte."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

import gateway.vectors
from memory.embed import HashEmbedder
from memory.vector_cache import digest_of
from tests.bench.standin import Pace, StandIn
from tests.journeys.daemon import Client, config, model_settings, running
from tests.memory.leftovers import files_with_text, files_with_vector
from tests.patience import PATIENCE_S, until

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = [{"name": "ana", "token": "ana-token-1234567890", "role": "user", "user": "ana"}]
FIRST = "The zanzibar safe is behind the wardrobe in the bedroom upstairs"
SECOND = "The zanzibar safe is under the third stair of the cellar"
UNDONE = "The zanzibar safe was sold together with the summer house"
OTHER = "Green tea is drunk without sugar, and never after six"


def settings(**roles: str) -> Any:
    return config(roles={"embedding": "offline", **roles}, auth={"tokens": TOKENS}, memory={"index": {"check_s": 0.1}})


async def until_vectors_serve(client: Client) -> None:
    vectors = client.daemon.parts.vectors
    await until(lambda: vectors.status is not None and vectors.status.state == "serving")
    await vectors.indexer.caught_up()  # type: ignore[union-attr]


async def call(client: Client, method: str, path: str, body: Any = None) -> Any:
    status, content = await client.call(method, path, body)
    assert status in (200, 201), content
    return content


async def remembered(client: Client) -> str:
    """A memory with a former wording, and one that was undone; each of them was in the vector index."""
    client.token = TOKENS[0]["token"]
    path = f"/v1/memories/{(await call(client, 'POST', '/v1/memories', {'text': FIRST}))['id']}"
    await call(client, "POST", "/v1/memories", {"text": OTHER})
    await until_vectors_serve(client)
    for text in (UNDONE, SECOND):
        await call(client, "PATCH", path, {"text": text})
        await until_vectors_serve(client)
        if text == UNDONE:
            await call(client, "POST", f"{path}/undo")
    return path


async def leftovers(folder: Path) -> list[tuple[str, str]]:
    """Texts, and numbers of vectors, that are still somewhere."""
    texts = [FIRST, SECOND, UNDONE, "zanzibar", "zanzib"]  # the last is its stem, as the full text has it
    rows = await HashEmbedder().embed_passages([FIRST, SECOND, UNDONE])
    found = [(text, name) for text in texts for name in files_with_text(folder, text)]
    return found + [("vector", name) for row in rows for name in files_with_vector(folder, row)]


@pytest.mark.parametrize("trashed", [False, True])
async def test_no_wording_and_no_vector_of_a_purged_memory_is_in_any_file(tmp_path: Path, trashed: bool) -> None:
    folder = tmp_path / "data"
    (other,) = await HashEmbedder().embed_passages([OTHER])
    async with running(folder, settings()) as client:
        path = await remembered(client)
        exported = (await call(client, "GET", "/v1/memories/export")).decode()
        before = {name.split("/")[0] for _, name in await leftovers(folder)}
        assert {"index", "state.db-wal"} <= before, "both had it; else this test shows nothing"
        if trashed:
            await call(client, "DELETE", path)
            await until_vectors_serve(client)
            await call(client, "POST", "/v1/memories/empty-trash")
        else:
            await call(client, "POST", f"{path}/purge")
        assert await leftovers(folder) == []
        assert files_with_vector(folder / "index", other)
        taken = await call(client, "POST", "/v1/memories/import", {"content": exported})
        assert (taken["forgotten"], taken["added"]) == (1, 0)
        for mode in ("hybrid", "vector", "keyword"):
            found = await call(client, "POST", "/v1/memories/search", {"query": "zanzibar safe", "mode": mode})
            assert [one["text"] for one in found["memories"] if one["text"] != OTHER] == []
        await until_vectors_serve(client)
    assert await leftovers(folder) == []
    async with running(folder, settings()) as client:
        await until_vectors_serve(client)
        client.token = TOKENS[0]["token"]
        assert [one["text"] for one in (await call(client, "GET", "/v1/memories"))["memories"]] == [OTHER]
    assert await leftovers(folder) == []


async def test_no_word_and_no_vector_of_a_removed_document_is_in_any_file(tmp_path: Path) -> None:
    found = config(roles={"embedding": "offline"}, memory={"index": {"check_s": 0.1}})
    async with running(tmp_path, found) as client:
        for name, text in (("safe.txt", FIRST), ("tea.txt", OTHER)):
            await call(client, "POST", "/v1/documents", {"name": name, "text": text, "agent": "main"})
        await client.daemon.parts.workspaces.files.settled()
        await until_vectors_serve(client)
        assert {name.split("/")[0] for _, name in await leftovers(tmp_path)} == {"cache", "index", "workspaces"}
        await call(client, "DELETE", "/v1/documents/safe.txt.md?agent=main")
        async with asyncio.timeout(PATIENCE_S):
            while await leftovers(tmp_path):
                await asyncio.sleep(0.1)
        assert files_with_text(tmp_path / "cache", OTHER)


async def test_what_is_sorted_while_it_is_deleted_does_not_come_back(tmp_path: Path) -> None:
    """The helper model is asked about a memory, and answers after that was deleted for good."""
    async with StandIn(Pace(first_token_ms=500)) as standin:
        found = model_settings(standin.base_url)
        found["roles"] |= {"helper": "chat", "embedding": "offline"}
        daemon = config(**found, auth={"tokens": TOKENS}, memory={"index": {"check_s": 0.1}})
        async with running(tmp_path, daemon) as client:
            client.token = TOKENS[0]["token"]
            path = f"/v1/memories/{(await call(client, 'POST', '/v1/memories', {'text': FIRST}))['id']}"
            while not any(FIRST in str(request.body) for request in standin.requests):
                await asyncio.sleep(0.02)
            await call(client, "POST", f"{path}/purge")
            await asyncio.sleep(1)
            assert await leftovers(tmp_path) == []
            assert (await call(client, "GET", "/v1/memories"))["memories"] == []


async def test_without_an_embedding_model_no_former_index_keeps_what_is_deleted_later(tmp_path: Path) -> None:
    async with running(tmp_path, settings()) as client:
        path = await remembered(client)
    async with running(tmp_path, config(auth={"tokens": TOKENS})) as client:
        client.token = TOKENS[0]["token"]
        await call(client, "POST", f"{path}/purge")
        assert await leftovers(tmp_path) == []
    async with running(tmp_path, settings()) as client:
        await until_vectors_serve(client)
        (other,) = await HashEmbedder().embed_passages([OTHER])
        assert files_with_vector(tmp_path / "index", other)


def kept_in_cache(folder: Path, text: str) -> bool:
    """A sealed vector of a text is found by the hash of the text."""
    return bool(files_with_text(folder / "cache", digest_of(text)))


@pytest.mark.parametrize("model", [True, False])
async def test_what_a_locked_cache_kept_of_a_purged_text_is_gone_after_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: bool
) -> None:
    monkeypatch.setattr(gateway.vectors, "CLEAR_WAIT_S", 0.05)
    async with running(tmp_path, settings()) as client:
        path = await remembered(client)
        other = sqlite3.connect(tmp_path / "cache" / "vectors.db")
        other.execute("BEGIN IMMEDIATE")
        assert not (await call(client, "POST", f"{path}/purge"))["cleared"]
    other.close()
    assert kept_in_cache(tmp_path, FIRST)
    async with running(tmp_path, settings() if model else config(auth={"tokens": TOKENS})) as client:
        client.token = TOKENS[0]["token"]
        await until(lambda: not kept_in_cache(tmp_path, FIRST))
