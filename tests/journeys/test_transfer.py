"""Conversations that come in while the disk fails, and a ledger that is made again from what was said."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import orjson

from sessions.files import FaultyFiles
from tests.journeys.daemon import Client, config, model_settings, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.standin import StandIn

BASE = "agent:main:web:direct:ana"


def conversations(count: int) -> str:
    """As ChatGPT exports them."""

    def one(number: int) -> dict[str, Any]:
        nodes: dict[str, Any] = {}
        for n, role in enumerate(("user", "assistant")):
            content = {"parts": [f"{role} {number}"]}
            message = {"author": {"role": role}, "content": content}
            nodes[f"{n}"] = {"message": message, "parent": f"{n - 1}" if n else None}
        return {"title": f"About {number}", "mapping": nodes, "current_node": "1"}

    return orjson.dumps([one(number) for number in range(1, count + 1)]).decode()


async def take(client: Client, content: str) -> tuple[int, Any]:
    return await client.call("POST", "/v1/import", {"content": content, "key": BASE})


async def test_an_import_cut_by_a_full_disk_says_how_far_it_came_and_goes_on(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with running(tmp_path, config(), files=files) as client:
        files.fail("write", errno.ENOSPC, after=2, where="transcripts")
        status, told = await take(client, conversations(4))
        assert status == 507, told
        assert "2 of 4" in told["detail"]
        assert [s["key"] for s in told["sessions"]] == [f"{BASE}:thread:1", f"{BASE}:thread:2"]
        files.heal()
        status, taken = await take(client, conversations(4))
        assert status == 201, taken
        assert [s["session"] for s in taken["sessions"][:2]] == [s["session"] for s in told["sessions"]]
        for number in range(1, 5):
            assert await client.texts(f"{BASE}:thread:{number}") == [f"user {number}", f"assistant {number}"]
        assert (await take(client, conversations(4)))[0] == 409


async def test_an_import_does_not_mix_with_what_was_said_there(offline: Client) -> None:
    await offline.say("something else", f"{BASE}:thread:2")
    status, told = await take(offline, conversations(3))
    assert (status, told["title"]) == (409, "Key in use")
    assert (await offline.call("GET", f"/v1/sessions/{BASE}:thread:1"))[0] == 404


async def test_a_lost_ledger_is_made_again_without_taking_every_session_into_memory(
    tmp_path: Path, standin: StandIn
) -> None:
    settings = config(**model_settings(standin.base_url))
    keys = [f"{BASE}:thread:{n}" for n in range(5)]
    async with running(tmp_path, settings) as client:
        for key in keys:
            await client.say("hello", key)
            await client.call("POST", f"/v1/sessions/{key}/compact", {})
        calls = (await client.get("/v1/usage?by=role"))["rows"]
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    async with running(tmp_path, settings) as client:
        parts = client.daemon.parts
        wanted = next(row["calls"] for row in calls if row["group"]["role"] == "chat")
        rows: list[Any] = []
        for _ in range(400):
            rows = (await client.get("/v1/usage?by=role"))["rows"]
            if rows and rows[0]["calls"] == wanted:
                break
        assert [row["calls"] for row in rows if row["group"]["role"] == "chat"] == [wanted] == [5]
        assert list(parts.store._kept) == []  # pyright: ignore[reportPrivateUsage]
