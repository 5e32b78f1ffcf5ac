"""Chroma's folder is deleted or damaged while the daemon runs: replies go on, words serve, and it mends itself."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from tests.journeys.daemon import Client, config, running
from tests.patience import until

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = [{"name": "ana", "token": "ana-token-1234567890", "role": "user", "user": "ana"}]
FACTS = [f"Fact number {number} is about the green teapot {number}" for number in range(40)]


def settings() -> Any:
    memory = {"index": {"check_s": 0.1}, "search": {"relevance": 0}}
    return config(roles={"embedding": "offline", "chat": "offline"}, auth={"tokens": TOKENS}, memory=memory)


def others(folder: Path) -> list[Path]:
    """Each rebuild has a folder of its own; the first may have been in the way of what was still open."""
    return [one for one in folder.parent.iterdir() if one.is_dir() and one.name.isdigit() and one != folder]


async def until_served(client: Client, harmed: Path | None = None) -> None:
    """Until the index answers; out of a folder beside the harmed one, where one is named."""
    vectors = client.daemon.parts.vectors

    def serves() -> bool:
        status = vectors.status
        return status is not None and status.state == "serving" and (harmed is None or bool(others(harmed)))

    await until(serves)
    await vectors.indexer.caught_up()  # type: ignore[union-attr]


def harm(folder: Path, how: str) -> None:
    """The daemon goes on, and may remove a file before it is harmed."""
    if how == "deleted":
        shutil.rmtree(folder)
    files = [file for file in folder.rglob("*") if file.is_file()] if folder.is_dir() else []
    for file in files:
        with suppress(FileNotFoundError):
            harm_file(file, how)


def harm_file(file: Path, how: str) -> None:
    match how:
        case "zeros":
            file.write_bytes(b"\0" * file.stat().st_size)
        case "noise":
            file.write_bytes(os.urandom(file.stat().st_size))
        case "cut":
            os.truncate(file, min(50, file.stat().st_size))
        case _:
            if file.name == "chroma.sqlite3":
                file.unlink()


@pytest.mark.parametrize("how", ["deleted", "zeros", "noise", "cut", "database deleted"])
async def test_replies_go_on_words_serve_and_the_index_is_made_anew_and_counted(tmp_path: Path, how: str) -> None:
    async with running(tmp_path, settings()) as client:
        client.token = TOKENS[0]["token"]
        content = "\n".join(json.dumps({"type": "memory", "text": fact}) for fact in FACTS)
        status, taken = await client.call("POST", "/v1/memories/import", {"content": content})
        assert (status, taken["added"]) == (200, len(FACTS))
        await until_served(client)
        harm(tmp_path / "index" / "1", how)
        for mode in ("keyword", "hybrid"):
            status, found = await client.call("POST", "/v1/memories/search", {"query": "teapot 7", "mode": mode})
            assert (status, found["memories"][0]["text"]) == (200, FACTS[7])
        assert (await client.say("How is the teapot?"))["text"]
        await until_served(client, tmp_path / "index" / "1")
        state = client.daemon.parts.vectors.status
        assert state is not None
        assert (state.done, state.total, state.failed) == (len(FACTS), len(FACTS), 0)
        assert (await client.get("/readyz"))["parts"]["vectors"] == {"state": "ok", "detail": f"{len(FACTS)} texts"}
        status, found = await client.call("POST", "/v1/memories/search", {"query": FACTS[7], "mode": "vector"})
        assert (status, found["memories"][0]["text"], found["problem"]) == (200, FACTS[7], None)
    async with running(tmp_path, settings()) as client:
        await until_served(client)
        assert client.daemon.parts.vectors.status.done == len(FACTS)  # type: ignore[union-attr]
