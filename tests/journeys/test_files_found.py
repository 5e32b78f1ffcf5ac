"""Files are found where memories and transcripts are, by whoever may read them, and by nobody else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.agents import AgentPolicy
from tests.journeys.daemon import Client, running
from tests.journeys.test_mcp import over_http, say
from tests.journeys.test_memory_tools import use
from tests.journeys.test_recall import settings, trailing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.bench.standin import StandIn

TOKENS: list[dict[str, Any]] = [
    {"name": "root", "token": "root", "role": "admin"},
    {"name": "ana", "token": "ana", "role": "user", "user": "ana"},
    {"name": "bob", "token": "bob", "role": "user", "user": "bob"},
    {"name": "bridge", "token": "bridge", "role": "frontend"},
    {"name": "narrow", "token": "narrow", "role": "frontend", "key_prefixes": ["agent:shop:web:direct:x"]},
]
DOCUMENT = "project/memory/documents/hives.txt.md"
ANAS, BOBS, GROUP = "agent:shop:web:direct:ana", "agent:shop:web:direct:bob", "agent:shop:web:group:yard"


@pytest.fixture
async def shop(tmp_path: Path, standin: StandIn) -> AsyncIterator[Client]:
    """The project shop with Ana in it and one document; the notes of its agent, and of main."""
    found = settings(standin)
    auth = type(found.auth).model_validate({"tokens": TOKENS})
    found = found.model_copy(update={"auth": auth, "agents": {"shop": AgentPolicy(project="shop")}})
    sessions = type(found.sessions).model_validate({"identities": {"ana": ["web:1"]}})
    found = found.model_copy(update={"sessions": sessions})
    for agent in ("main", "shop"):
        notes = tmp_path / "workspaces" / agent / "memory"
        notes.mkdir(parents=True)
        (notes / "notes.md").write_text(f"A beehive of {agent}.\n", "utf-8")
    async with running(tmp_path, found) as client:
        await call(client, "root", "POST", "/v1/projects", {"id": "shop", "members": ["ana"]})
        document = {"name": "hives.txt", "text": "The beehive costs 90 crowns.", "project": "shop"}
        await call(client, "ana", "POST", "/v1/documents", document)
        await client.daemon.parts.workspaces.files.settled()
        yield client


async def call(client: Client, who: str, method: str, path: str, body: Any = None) -> Any:
    client.token = who
    status, content = await client.call(method, path, body)
    assert status in (200, 201), content
    return content


def named(files: list[dict[str, Any]]) -> set[str]:
    return {f"{one['agent'] or one['project']}/{one['path']}" for one in files}


async def found_by(client: Client, who: str, more: str = "", **body: Any) -> list[set[str]]:
    """By both searches."""
    memories = await call(client, who, "POST", f"/v1/memories/search{more}", {"query": "beehive", **body})
    said = await call(client, who, "GET", "/v1/search?q=beehive" + "".join(f"&{k}={v}" for k, v in body.items()))
    return [named(memories["files"]), named(said["files"])]


async def test_both_searches_find_an_agents_notes_and_the_documents_of_the_askers_projects(shop: Client) -> None:
    document = "shop/memory/documents/hives.txt.md"
    for who, projects in (("ana", {document}), ("root", {document}), ("bob", set[str]())):
        assert await found_by(shop, who) == [{"main/memory/notes.md"} | projects] * 2
        assert await found_by(shop, who, agent="shop") == [{"shop/memory/notes.md"} | projects] * 2
    assert await found_by(shop, "bridge", "?user=bob") == [{"main/memory/notes.md"}] * 2
    assert await found_by(shop, "narrow", "?user=bob") == [set[str](), set[str]()]
    shop.token = "narrow"
    assert (await shop.call("GET", "/v1/search?q=beehive&agent=main"))[0] == 404


async def test_a_search_that_is_narrowed_to_what_files_have_not_finds_none_of_them(shop: Client) -> None:
    for body, files in (
        ({"pool": "project:shop"}, {"shop/memory/documents/hives.txt.md"}),
        ({"pool": "user:ana"}, set[str]()),
        ({"kinds": ["reference"]}, set[str]()),
        ({"mode": "fetch"}, set[str]()),
        ({"as_of": "2026-01-01T00:00:00Z"}, set[str]()),
    ):
        found = await call(shop, "ana", "POST", "/v1/memories/search", {"query": "beehive", **body})
        assert named(found["files"]) == files, body
    shop.token = "bob"
    body = {"query": "beehive", "pool": "project:shop"}
    assert (await shop.call("POST", "/v1/memories/search", body))[0] == 404


async def test_the_lines_of_a_projects_document_are_read_by_its_members_and_by_nobody_else(shop: Client) -> None:
    path = DOCUMENT.removeprefix("project/")
    for who, more in (("ana", ""), ("root", ""), ("bridge", "user=ana")):
        listed = await call(shop, who, "GET", f"/v1/projects/shop/files?{more}")
        assert (listed["agent"], listed["project"], listed["problem"]) == (None, "shop", None)
        assert listed["files"] == [{"path": path, "indexed": True, "problem": None}]
        lines = await call(shop, who, "GET", f"/v1/projects/shop/file?path={path}&{more}")
        assert lines == {"path": path, "lines": 1, "first_line": 1, "text": "The beehive costs 90 crowns."}
    refused = (
        ("bob", "shop/files", 404),
        ("bob", f"shop/file?path={path}", 404),
        ("bridge", f"shop/file?path={path}&user=bob", 404),
        ("bridge", f"shop/file?path={path}", 422),
        ("ana", f"house/file?path={path}", 404),
        ("ana", "shop/file?path=../../state.db", 422),
    )
    for who, address, status in refused:
        shop.token = who
        found, problem = await shop.call("GET", f"/v1/projects/{address}")
        assert found == status, (who, address, found, problem)
        assert "90 crowns" not in str(problem)
    await call(shop, "root", "PATCH", "/v1/projects/shop", {"members": ["bob"]})
    shop.token = "ana"
    assert (await shop.call("GET", f"/v1/projects/shop/file?path={path}"))[0] == 404


async def test_who_leaves_a_project_finds_its_documents_no_longer(shop: Client, standin: StandIn) -> None:
    shop.token = "ana"
    await shop.say("what of the beehive?", ANAS)
    assert DOCUMENT in str(trailing(standin.requests[-1]))
    await call(shop, "root", "PATCH", "/v1/projects/shop", {"members": ["bob"]})
    assert await found_by(shop, "ana") == [{"main/memory/notes.md"}] * 2
    assert "hives.txt" not in str(await use_as(shop, "ana", ANAS, "MemorySearch", query="beehive"))
    await shop.say("and the beehive now?", ANAS)
    assert "hives.txt" not in str(trailing(standin.requests[-1]))
    assert "may not see" in await use_as(shop, "ana", ANAS, "MemoryFileRead", path=DOCUMENT)


async def use_as(client: Client, who: str, key: str, tool: str, **arguments: Any) -> Any:
    client.token = who
    return await use(client, tool, key, **arguments)


async def test_a_model_reads_the_documents_its_searches_name_for_a_member_only(shop: Client) -> None:
    found = await use_as(shop, "ana", ANAS, "MemorySearch", query="beehive")
    assert {one["file"] for one in found["files"]} == {f"{DOCUMENT}:1-1", "memory/notes.md:1-1"}
    told = await use_as(shop, "ana", ANAS, "MemoryFileRead", path=DOCUMENT)
    assert told == f"{DOCUMENT}, 1 lines\n1: The beehive costs 90 crowns."
    assert (await use_as(shop, "ana", ANAS, "MemoryFileRead")).splitlines() == ["memory/notes.md", DOCUMENT]
    found = await use_as(shop, "bob", BOBS, "MemorySearch", query="beehive")
    assert {one["file"] for one in found["files"]} == {"memory/notes.md:1-1"}
    for path in (DOCUMENT, "project/../../../state.db", "project/MEMORY.md"):
        assert "may not see" in await use_as(shop, "bob", BOBS, "MemoryFileRead", path=path)
    assert (await use_as(shop, "bob", BOBS, "MemoryFileRead")).splitlines() == ["memory/notes.md"]


async def test_in_a_chat_of_many_a_documents_words_stand_in_no_transcript(shop: Client) -> None:
    shop.token = "bridge"
    found = await use(shop, "MemorySearch", GROUP, sender="1", query="beehive")
    rows = {one["file"]: one.get("text") for one in found["files"]}
    assert rows == {f"{DOCUMENT}:1-1": None, "memory/notes.md:1-1": "A beehive of shop."}
    assert "Others read here" in await use(shop, "MemoryFileRead", GROUP, sender="1", path=DOCUMENT)
    assert await use(shop, "MemoryFileRead", GROUP, sender="1") == "memory/notes.md"
    told = [entry for entry in await shop.transcript(GROUP) if entry["type"] != "assistant"]  # which echoes the model
    assert "90 crowns" not in json.dumps(told)


@pytest.mark.parametrize(
    ("who", "query", "may"),
    [
        ("ana", "?agent=shop", True),
        ("ana", "?project=shop", True),
        ("ana", "", False),
        ("bob", "?agent=shop", False),
        ("bob", "?project=shop", False),
        ("root", "?agent=shop&user=bob", False),
        ("bridge", "?agent=shop&user=ana", True),
        ("bridge", "?agent=shop", False),
    ],
)
async def test_programs_find_and_read_documents_for_a_member_only(
    shop: Client, who: str, query: str, may: bool
) -> None:
    async with over_http(shop, who, query) as speaker:
        found, _ = await say(speaker, "MemorySearch", query="beehive")
        read, refused = await say(speaker, "MemoryFileRead", path=DOCUMENT)
        listed, _ = await say(speaker, "MemoryFileRead")
    assert ("90 crowns" in found, "90 crowns" in read, refused, DOCUMENT in listed) == (may, may, not may, may)
