"""The memory tools for programs that speak the Model Context Protocol over standard input and output."""

from __future__ import annotations

import os
from typing import Annotated
from urllib.parse import urlencode

import typer

from gateway.cli.chat import Url
from gateway.cli.client import Daemon


def register(app: typer.Typer) -> None:
    app.command()(mcp)


def mcp(
    user: Annotated[
        str | None, typer.Option("--user", help="The person spoken for, with a frontend's or administrator's token.")
    ] = None,
    project: Annotated[str | None, typer.Option("--project", help="Where shared memories go.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Whose notes can be read; main when left out.")] = None,
    url: Url = None,
) -> None:
    """Offer the memory tools of a running daemon over MCP (standard input and output).

    Programs start it themselves; the token comes from SESSIOND_TOKEN.
    """
    import asyncio

    from gateway.surfaces.mcp_stdio import serve

    given = {"user": user, "project": project, "agent": agent}
    query = urlencode({name: value for name, value in given.items() if value is not None})
    asyncio.run(serve(Daemon(url).url, f"?{query}" if query else "", os.environ.get("SESSIOND_TOKEN")))
