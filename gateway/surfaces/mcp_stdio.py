"""The Model Context Protocol over standard input and output: a daemon's tools, for a program that started us."""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.types import INTERNAL_ERROR

from gateway.surfaces.mcp_server import build_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from mcp.types import Tool

TIMEOUT_S = 120.0


class Unanswered(Exception):
    """The daemon gave no usable answer; the message says what to do."""


async def serve(daemon: str, query: str, token: str | None) -> None:
    """Answers until standard input ends."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(headers=headers, timeout=TIMEOUT_S) as http:
        tools = RemoteTools(daemon, query, http)
        server = build_server(version("sessiond"), tools.list, tools.call)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())


class RemoteTools:
    """The tools of a daemon. Each call is a request of its own, so the daemon may be restarted meanwhile."""

    def __init__(self, daemon: str, query: str, http: httpx2.AsyncClient) -> None:
        self._daemon = daemon
        self._url = f"{daemon}/mcp{query}"
        self._http = http
        self._refusal: str | None = None
        http.event_hooks = {"response": [self._note_refusal]}

    async def list(self) -> list[Tool]:
        """Raises MCPError."""
        try:
            async with self._connected() as client:
                return (await client.list_tools()).tools
        except Unanswered as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from error

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """What a tool says, and whether it is an error."""
        try:
            async with self._connected() as client:
                result = await client.call_tool(name, dict(arguments))
        except Unanswered as error:
            return str(error), True
        return "".join(part.text for part in result.content if part.type == "text"), result.is_error

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Client]:
        """Raises Unanswered."""
        self._refusal = None
        try:
            async with Client(streamable_http_client(self._url, http_client=self._http)) as client:
                yield client
        except* httpx2.ConnectError as group:
            why = f"No daemon answers at {self._daemon}. Start one with: sessiond serve"
            raise Unanswered(why) from group
        except* (MCPError, httpx2.HTTPError, OSError) as group:
            raise Unanswered(self._refusal or f"{self._daemon} gave no answer that can be used ({group!r}).") from group

    async def _note_refusal(self, response: httpx2.Response) -> None:
        """What the daemon says of a request it refuses; the protocol's client tells the status only."""
        if response.headers.get("content-type") == "application/problem+json":
            await response.aread()
            self._refusal = f"{response.json()['title']}: {response.json()['detail']}"
