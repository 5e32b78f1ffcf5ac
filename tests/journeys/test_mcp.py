"""The memory tools over the Model Context Protocol, with its official client: over HTTP, and over standard input."""

from __future__ import annotations

import os
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import orjson
import pytest
from mcp import Client as McpClient
from mcp import MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.journeys.daemon import Client, config, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TOKENS: list[dict[str, Any]] = [
    {"name": "root", "token": "root", "role": "admin"},
    {"name": "ana", "token": "ana", "role": "user", "user": "ana"},
    {"name": "bob", "token": "bob", "role": "user", "user": "bob", "agents": ["main"]},
    {"name": "bridge", "token": "bridge", "role": "frontend", "key_prefixes": ["agent:main:telegram"]},
]
TOOLS = {
    "MemorySearch",
    "MemoryAdd",
    "MemoryUpdate",
    "MemoryMerge",
    "MemoryDelete",
    "MemoryRestore",
    "MemoryList",
    "MemoryRecategorize",
    "TopicAdd",
    "TopicUpdate",
    "TopicDelete",
    "TranscriptSearch",
    "MemoryFileRead",
}


@asynccontextmanager
async def over_http(
    client: Client, token: str | None = None, query: str = "", mode: str = "auto"
) -> AsyncIterator[McpClient]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        transport = streamable_http_client(f"{client.url}/mcp{query}", http_client=http)
        async with McpClient(transport, mode=mode) as speaker:  # pyright: ignore[reportArgumentType]
            yield speaker


@asynccontextmanager
async def over_stdio(url: str, token: str | None = None, *words: str) -> AsyncIterator[McpClient]:
    environ = {"SESSIOND_URL": url, "PATH": os.environ["PATH"], **({"SESSIOND_TOKEN": token} if token else {})}
    command = StdioServerParameters(command=sys.executable, args=["-m", "gateway", "mcp", *words], env=environ)
    async with McpClient(command) as speaker:
        yield speaker


async def say(speaker: McpClient, tool: str, **arguments: Any) -> tuple[str, bool]:
    result = await speaker.call_tool(tool, arguments)
    (part,) = result.content
    return part.text, bool(result.is_error)  # pyright: ignore[reportAttributeAccessIssue,reportUnknownMemberType,reportUnknownVariableType]


async def done(speaker: McpClient, tool: str, **arguments: Any) -> Any:
    text, is_error = await say(speaker, tool, **arguments)
    assert not is_error, text
    return orjson.loads(text) if text.startswith("{") else text


async def texts(speaker: McpClient, words: str) -> list[str]:
    return [memory["text"] for memory in (await done(speaker, "MemorySearch", query=words))["memories"]]


@pytest.fixture
async def people(tmp_path: Path) -> AsyncIterator[Client]:
    async with running(tmp_path / "data", config(auth={"tokens": TOKENS})) as client:
        yield client


async def a_day(speaker: McpClient) -> None:
    """Every tool once, as a model would."""
    listed = {tool.name: tool for tool in (await speaker.list_tools()).tools}
    assert set(listed) == TOOLS
    assert all(tool.description and tool.input_schema["type"] == "object" for tool in listed.values())
    annotations = {name: tool.annotations for name, tool in listed.items()}
    assert annotations["MemorySearch"].read_only_hint  # pyright: ignore[reportOptionalMemberAccess]
    assert annotations["MemoryDelete"].destructive_hint  # pyright: ignore[reportOptionalMemberAccess]
    assert not annotations["MemoryAdd"].destructive_hint  # pyright: ignore[reportOptionalMemberAccess]
    await done(speaker, "TopicAdd", name="garden", description="What grows in the garden: one plant each.")
    await done(speaker, "TopicUpdate", name="garden", description="What grows in the garden: one plant each, with bed.")
    added = await done(speaker, "MemoryAdd", text="The quince stands in bed 4.", topic="garden", importance=6)
    plum = await done(speaker, "MemoryAdd", text="The plum tree stands in bed 4, too.", topic="garden")
    corrected = await done(
        speaker, "MemoryUpdate", id=added["memory"]["id"], text="The quince stands in bed 5.", why="replanted"
    )
    assert (corrected["outcome"], await texts(speaker, "quince")) == ("updated", ["The quince stands in bed 5."])
    ids = [added["memory"]["id"], plum["memory"]["id"]]
    await done(speaker, "MemoryMerge", ids=ids, text="The quince and the plum tree stand in bed 5.")
    assert len((await done(speaker, "MemoryList", topic="garden"))["memories"]) == 1
    await done(speaker, "MemoryDelete", id=ids[0])
    assert await texts(speaker, "quince") == []
    await done(speaker, "MemoryRestore", id=ids[0])
    assert await texts(speaker, "plum") == ["The quince and the plum tree stand in bed 5."]
    await done(speaker, "TopicDelete", name="garden")
    assert (await say(speaker, "MemoryRecategorize"))[1]  # there is no helper model
    assert (await done(speaker, "TranscriptSearch", query="kestrel"))["found"] == []
    assert await done(speaker, "MemoryFileRead") == "There are no memory files."


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_every_tool_works_over_http(offline: Client, mode: str) -> None:
    async with over_http(offline, mode=mode) as speaker:
        await a_day(speaker)


async def test_every_tool_works_over_standard_input_and_output(offline: Client) -> None:
    async with over_stdio(offline.url) as speaker:
        await a_day(speaker)


async def test_a_token_reaches_the_memories_of_its_person_only(people: Client) -> None:
    async with over_http(people, "ana") as ana:
        kept = await done(ana, "MemoryAdd", text="Ana keeps the cellar key under the blue pot.")
    people.token = "root"
    await people.call("POST", "/v1/projects", {"id": "shop", "members": ["ana"]})
    for token, query in [("bob", ""), ("root", ""), ("bridge", "?user=bob"), ("bob", "?project=shop")]:
        async with over_http(people, token, query) as other:
            assert await texts(other, "cellar key") == []
            assert (await done(other, "MemoryList"))["memories"] == []
            for tool, more in [("MemoryDelete", {}), ("MemoryUpdate", {"text": "It is gone."}), ("MemoryRestore", {})]:
                text, is_error = await say(other, tool, id=kept["memory"]["id"], **more)
                assert is_error
                assert "cellar" not in text
            text, is_error = await say(other, "MemoryAdd", text="The till code is on the wall.", shared=True)
            assert is_error, text
    async with over_http(people, "ana", "?project=shop") as ana:
        assert await texts(ana, "cellar key") == ["Ana keeps the cellar key under the blue pot."]
        await done(ana, "MemoryAdd", text="The shop opens at nine.", shared=True)
    async with over_stdio(people.url, "root", "--user", "ana") as helper:
        assert await texts(helper, "cellar key") == ["Ana keeps the cellar key under the blue pot."]


async def test_nobody_speaks_for_another_or_without_a_token(people: Client) -> None:
    with pytest.raises((MCPError, httpx2.HTTPError, ExceptionGroup)):
        async with over_http(people, "bob", "?user=ana") as speaker:
            await speaker.list_tools()
    for token in (None, "unknown"):
        with pytest.raises((MCPError, httpx2.HTTPError, ExceptionGroup)):
            async with over_http(people, token) as speaker:
                await speaker.list_tools()
    async with over_http(people, "bridge") as bridge:
        text, is_error = await say(bridge, "MemorySearch", query="cellar")
        assert is_error
        assert "name one" in text
    people.token = "bob"
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accept = {"Accept": "application/json", "Content-Type": "application/json"}
    assert (await people.call("POST", "/mcp?agent=other", body, accept))[0] == 404
    assert (await people.call("POST", "/mcp?agent=main", body, accept))[0] == 200
    people.token = "root"
    status, refused = await people.call("POST", "/mcp?agent=mian", body, accept)
    assert (status, "There are main." in refused["detail"]) == (404, True)
    people.token = "bridge"
    assert (await people.call("POST", "/mcp?agent=other", body, accept))[0] == 404
    assert (await people.call("POST", "/mcp?colour=red", body, accept))[0] == 422


async def test_transcripts_are_searched_in_chats_the_token_may_see(people: Client) -> None:
    said = {
        "agent:main:web:direct:ana": "The vault opens with Kestrelgrove, says Ana.",
        "agent:main:web:direct:bob": "Kestrelgrove is a word Bob has made up.",
        "agent:main:telegram:direct:ana": "Ana asks the bridge about Kestrelgrove.",
        "agent:main:telegram:direct:eva": "Eva has seen Kestrelgrove on a sign.",
    }
    people.token = "root"
    for key, text in said.items():
        await people.say(text, key)

    async def keys(token: str, query: str = "", **more: Any) -> set[str]:
        async with over_http(people, token, query) as speaker:
            found = await done(speaker, "TranscriptSearch", query="Kestrelgrove", limit=20, **more)
            return {quote["key"] for quote in found["found"]}

    assert await keys("ana") == {"agent:main:web:direct:ana", "agent:main:telegram:direct:ana"}
    assert await keys("ana", key="agent:main:web:direct:ana") == {"agent:main:web:direct:ana"}
    assert await keys("ana", key="agent:main:web:direct:bob") == set()
    assert await keys("bob") == {"agent:main:web:direct:bob"}
    assert await keys("bridge") == {"agent:main:telegram:direct:ana", "agent:main:telegram:direct:eva"}
    assert await keys("bridge", "?user=telegram:eva") == {"agent:main:telegram:direct:eva"}
    assert await keys("bridge", "?user=bob") == set()
    assert await keys("root") == set(said)
    assert await keys("root", "?user=bob") == {"agent:main:web:direct:bob"}


async def test_wrong_arguments_are_told_to_the_model(offline: Client) -> None:
    async with over_http(offline) as speaker:
        for tool, arguments, word in [
            ("MemoryAdd", {}, "text"),
            ("MemoryAdd", {"text": "a", "colour": "red"}, "colour"),
            ("TranscriptSearch", {"query": ""}, "query"),
            ("TranscriptSearch", {"query": "a", "who": "ana"}, "who"),
            ("MemoryFileRead", {"path": "../../etc/passwd"}, ""),
            ("MemoryForgetAll", {}, "MemorySearch"),
        ]:
            text, is_error = await say(speaker, tool, **arguments)
            assert is_error, (tool, text)
            assert word in text


async def test_a_secret_is_not_kept(offline: Client) -> None:
    async with over_http(offline) as speaker:
        told = await done(speaker, "MemoryAdd", text="The deploy key is sk-ant-api03-" + "Ab1" * 30)
        assert "Secrets are not kept" in told["removed"]
        assert "Ab1Ab1" not in str(await done(speaker, "MemoryList"))


async def test_a_daemon_that_is_away_is_told_and_found_again(tmp_path: Path, unused_tcp_port: int) -> None:
    settings = config(server={"port": unused_tcp_port})
    async with over_stdio(f"http://127.0.0.1:{unused_tcp_port}") as speaker:
        text, is_error = await say(speaker, "MemoryList")
        assert is_error
        assert "sessiond serve" in text
        with pytest.raises(MCPError, match="sessiond serve"):
            await speaker.list_tools()
        async with running(tmp_path / "data", settings):
            await done(speaker, "MemoryAdd", text="The quince stands in bed 4.")
            assert await texts(speaker, "quince") == ["The quince stands in bed 4."]
        assert (await say(speaker, "MemoryList"))[1]


async def test_what_the_daemon_refuses_is_told_in_its_words(people: Client) -> None:
    async with over_stdio(people.url, "unknown") as speaker:
        assert "auth.tokens" in (await say(speaker, "MemoryList"))[0]
    async with over_stdio(people.url, "bob", "--user", "ana") as speaker:
        assert "one person only" in (await say(speaker, "MemoryList"))[0]


@pytest.mark.parametrize(
    ("payload", "headers", "statuses"),
    [
        (b"", {}, {400}),
        (b"{", {}, {400}),
        (b"[]", {}, {400}),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "nothing"}', {}, {200, 400, 404}),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 1}}', {}, {200, 400}),
        (b'{"jsonrpc": "2.0", "method": "notifications/initialized"}', {}, {202}),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}', {"Accept": "text/html"}, {406}),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}', {"Content-Type": "text/plain"}, {400, 415}),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}', {"MCP-Protocol-Version": "1999-01-01"}, {400}),
        (b"[" * 100_000, {}, {400}),
    ],
)
async def test_what_is_no_message_is_refused(
    offline: Client, payload: bytes, headers: dict[str, str], statuses: set[int]
) -> None:
    given = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **headers}
    status, content = await offline.call("POST", "/mcp", payload, given)
    assert status in statuses, content
    for method in ("GET", "DELETE"):
        assert (await offline.call(method, "/mcp"))[0] == 405
