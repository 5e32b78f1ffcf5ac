"""An agent's files in a whole daemon: found or gone within seconds, and told apart when they cannot be used."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any

from tests.journeys.daemon import KEY, Client, running
from tests.journeys.test_memory_tools import use
from tests.journeys.test_recall import TOKENS, settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.standin import StandIn

WITHIN_S = 3.0
LOOK_S = 0.1
ANA = TOKENS[0]["token"]


async def files_for(client: Client, words: str) -> list[str]:
    found = await use(client, "MemorySearch", query=words, limit=20)
    return [one["file"] for one in found.get("files", [])]


async def until(client: Client, words: str, expected: list[str]) -> None:
    """Found, or gone, within three seconds of rest; what asking takes, and a machine that stands still, is not
    counted."""
    for _ in range(round(WITHIN_S / LOOK_S)):
        if (found := await files_for(client, words)) == expected:
            return
        await asyncio.sleep(LOOK_S)
    raise AssertionError((words, found))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


async def test_files_that_come_change_move_and_go_are_followed_within_three_seconds(
    tmp_path: Path, standin: StandIn
) -> None:
    notes = tmp_path / "workspaces" / "main" / "memory"
    async with running(tmp_path, settings(standin)) as client:
        client.token = ANA
        await client.daemon.parts.workspaces.files.settled()
        write(notes / "garden" / "deep" / "trees.md", "The cherry stands at the fence.\n")
        await until(client, "cherry", ["memory/garden/deep/trees.md:1-1"])
        write(notes / "garden" / "deep" / "trees.md", "The plum stands at the fence.\n")
        await until(client, "plum", ["memory/garden/deep/trees.md:1-1"])
        assert await files_for(client, "cherry") == []
        (notes / "garden").rename(notes / "orchard")
        await until(client, "plum", ["memory/orchard/deep/trees.md:1-1"])
        fresh = notes / "orchard" / "deep" / ".trees.md.swp"
        fresh.write_text("# Trees\n\nThe walnut is old.\n", "utf-8")
        fresh.replace(notes / "orchard" / "deep" / "trees.md")
        await until(client, "walnut", ["memory/orchard/deep/trees.md:1-3"])
        assert await files_for(client, "plum") == []
        (notes / "orchard" / "deep" / "trees.md").unlink()
        await until(client, "walnut", [])
        write(notes / "hive.md", "The hive is green.\n")
        await until(client, "hive", ["memory/hive.md:1-1"])
        shutil.rmtree(notes)
        await until(client, "hive", [])


async def test_what_of_the_files_cannot_be_used_is_told(tmp_path: Path, standin: StandIn) -> None:
    main = tmp_path / "workspaces" / "main"
    write(main / "MEMORY.md", "Speak of bees as ladies. " * 1000)
    write(main / "memory" / "fine.md", "The hive is green.\n")
    (main / "memory" / "binary.md").write_bytes(b"a\0b")
    async with running(tmp_path, settings(standin)) as client:
        client.token = ANA
        await client.daemon.parts.workspaces.files.settled()
        await client.say("hello")
        system = standin.requests[-1].body["messages"][0]["content"]
        assert "the first 20000 of 24999 characters" in system
        assert len(system) < 21_000
        told = await client.get("/v1/agents/main/files")
        problems: dict[str, Any] = {one["path"]: one["problem"] for one in told["files"]}
        assert problems["memory/fine.md"] is None
        assert "no text" in problems["memory/binary.md"]
        assert "20000 of 24999" in problems["MEMORY.md"]
        assert told["waiting"] == 0
        assert "2 " in (await client.get("/readyz"))["parts"]["files"]["detail"]
        page = await client.get("/v1/agents/main/file?path=memory/fine.md")
        assert (page["lines"], page["text"]) == (1, "The hive is green.")
        for path, expected in (("memory/none.md", 404), ("../state.db", 422), ("memory/../../state.db", 422)):
            assert (await client.call("GET", f"/v1/agents/main/file?path={path}"))[0] == expected


async def test_a_token_reads_the_files_of_its_own_agents_only(tmp_path: Path, standin: StandIn) -> None:
    found = settings(standin)
    limited = {"name": "bridge", "token": "bridge-token-1234567890", "role": "frontend", "agents": ["other"]}
    found = found.model_copy(update={"auth": type(found.auth).model_validate({"tokens": [*TOKENS, limited]})})
    write(tmp_path / "workspaces" / "main" / "memory" / "fine.md", "The hive is green.\n")
    async with running(tmp_path, found) as client:
        client.token = limited["token"]
        for path in ("files", "file?path=memory/fine.md"):
            assert (await client.call("GET", f"/v1/agents/main/{path}"))[0] == 404
        assert (await client.get("/v1/agents/other/files"))["files"] == []
        client.token = ANA
        assert (await client.call("GET", "/v1/agents/main/files"))[0] == 200
        assert (await client.call("GET", f"/v1/sessions/{KEY}"))[0] == 404
