"""The Model Context Protocol over HTTP: every request stands for itself, and is answered with JSON."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from gateway.http.auth import may_use_agent
from gateway.http.memories import check_user
from gateway.http.problems import Problem
from gateway.http.routes import Body, Call, Route, read_payload
from gateway.known import unknown_agent
from gateway.memory_tools import memory_tools
from gateway.person_tools import Asker, PersonTools
from gateway.viewers import viewer_of_tools
from gateway.workspaces import MemoryFileRead
from sessions.policy import Composed

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from gateway.parts import Parts

PATH = "/mcp"
DEFAULT_AGENT = "main"
NO_AGENT = "There is no such agent for this token. Name another one with ?agent=."
HOW = "Send JSON-RPC as application/json, and accept application/json and text/event-stream."

Name = Annotated[Composed, Field(min_length=1, max_length=256)]


class McpQuery(Body):
    """For whom a client calls."""

    user: Name | None = Field(default=None, description="For frontends and administrators: the person spoken for")
    project: Name | None = Field(
        default=None,
        description="Where memories go that are shared, and whose documents are found; of its members only. The "
        "agent's when left out",
    )
    agent: Name = Field(default=DEFAULT_AGENT, description="Whose notes are found, and read by MemoryFileRead")


class JsonRpcView(BaseModel):
    """A message of JSON-RPC."""

    model_config = ConfigDict(extra="allow")

    jsonrpc: str
    id: int | str | None = None


def routes(parts: Parts) -> list[Route]:
    notes = MemoryFileRead(parts.workspaces, parts.memory, parts.config.agents)
    tools = PersonTools(
        memory_tools(parts.memory, parts.config.agents, parts.reset_zone, parts.workspaces),
        parts.search,
        notes,
        timeout_s=parts.config.turn.tool_timeout_s,
    )

    async def answer(call: Call) -> web.Response:
        asker = asker_of(parts, call)
        payload = await read_payload(call.request)
        # it takes half a second to import, so nobody waits for it who does not use it
        serve = await asyncio.to_thread(_import_serving)
        return await _through_asgi(
            serve(tools, asker, version("sessiond"), parts.config.server.max_body_bytes), call.request, payload
        )

    return [
        Route(
            method="POST",
            path=PATH,
            endpoint=answer,
            summary="Model Context Protocol: the memory tools and TranscriptSearch, streamable HTTP",
            tag="mcp",
            query=McpQuery,
            answers={
                200: JsonRpcView,
                202: "application/octet-stream",
                406: (JsonRpcView, "application/problem+json"),
            },
            errors=JsonRpcView,
        )
    ]


def asker_of(parts: Parts, call: Call) -> Asker:
    """Raises Problem."""
    query: McpQuery = call.query
    check_user(call.caller, query.user)
    unknown = unknown_agent(query.agent, parts.config.agents, parts.data_dir)
    if unknown is not None or not may_use_agent(call.caller, query.agent):
        detail = unknown if call.caller.role == "admin" and unknown is not None else NO_AGENT
        raise Problem(404, "Not found", detail)
    agent = parts.config.agents.get(query.agent)
    project = query.project or (None if agent is None else agent.project)
    viewer = viewer_of_tools(call.caller, query.user, project)
    return Asker(caller=call.caller, user=query.user, viewer=viewer, agent=query.agent)


def _import_serving() -> Any:
    from gateway.surfaces.mcp_http import serving

    return serving


async def _through_asgi(app: Any, request: web.Request, payload: bytes) -> web.Response:
    """What an ASGI application answers that answers at once."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": request.path,
        "raw_path": request.raw_path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(n.lower().encode(), v.encode("utf-8", "surrogateescape")) for n, v in request.headers.items()],
        "client": None,
        "server": None,
    }
    gone = asyncio.Event()
    started: dict[str, Any] = {}
    chunks: list[bytes] = []

    async def receive() -> Mapping[str, Any]:
        if "asked" not in started:
            started["asked"] = True
            return {"type": "http.request", "body": payload, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            started.update(message)
        else:
            chunks.append(message.get("body", b""))

    await app(scope, receive, send)
    headers = {name.decode(): value.decode("latin-1") for name, value in started["headers"]}
    headers.pop("content-length", None)
    status, content = started["status"], b"".join(chunks)
    if status >= 400 and headers.get("content-type") != "application/json":
        raise Problem(status, "Not understood", content.decode(errors="replace") or HOW)
    if not content:
        headers.pop("content-type", None)
    return web.Response(status=status, headers=headers, body=content)
