"""One request of the Model Context Protocol; imported when it is needed, because of what it imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from gateway.surfaces.mcp_server import build_server, offered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp.types import Tool

    from gateway.person_tools import Asker, PersonTools


def serving(tools: PersonTools, asker: Asker, version: str, max_bytes: int) -> Callable[..., Awaitable[None]]:
    """An ASGI application for one request of this caller: a server of its own, so nobody is taken for somebody else."""

    async def list_tools() -> list[Tool]:
        return offered(tools.specs)

    async def call_tool(name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        return await tools.call(name, arguments, asker)

    manager = StreamableHTTPSessionManager(
        build_server(version, list_tools, call_tool),
        json_response=True,
        stateless=True,
        max_request_body_size=max_bytes,
        # hosts and origins are checked before, for all addresses alike
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    return answer
