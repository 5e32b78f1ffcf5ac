"""The files of agents over HTTP: which there are, what cannot be used of them, and their lines."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field

from gateway.http.problems import not_found
from gateway.http.routes import Body, Call, Route, json_answer
from gateway.shelves import agent_shelf
from gateway.workspaces import MAX_LINES, READ_LINES
from sessions.keys import clean_id

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.parts import Parts


class FileView(BaseModel):
    """One file. `indexed`: as it is now; `problem`: why it cannot be used, or not wholly."""

    path: str
    indexed: bool
    problem: str | None


class FilesView(BaseModel):
    """MEMORY.md and memory/**/*.md of an agent; `waiting` files, of all agents, are still to be indexed."""

    agent: str
    files: list[FileView]
    waiting: int
    problem: str | None


class FileQuery(Body):
    path: Annotated[str, Field(min_length=1, max_length=1000, description="Such as memory/garden/trees.md")]
    first_line: Annotated[int, Field(ge=1, le=2**31)] = 1
    count: Annotated[int, Field(ge=1, le=MAX_LINES, description="How many lines")] = READ_LINES


class FileTextView(BaseModel):
    """Some lines of a file; `lines` is how many it has."""

    path: str
    lines: int
    first_line: int
    text: str


def routes(parts: Parts) -> list[Route]:
    def shelf(call: Call) -> tuple[str, str]:
        """What a token may not speak to, it may not read. Raises Problem."""
        agent = clean_id("agent", call.path("agent"))
        if call.caller.agents is not None and agent not in call.caller.agents:
            raise not_found("agent")
        return agent, agent_shelf(agent)

    async def listed(call: Call) -> web.Response:
        agent, named = shelf(call)
        files = parts.workspaces.files
        found = [FileView(path=path, indexed=done, problem=why) for path, done, why in await files.listing(named)]
        status = await files.status()
        return json_answer(FilesView(agent=agent, files=found, waiting=status.waiting, problem=status.problem))

    async def read(call: Call) -> web.Response:
        query: FileQuery = call.query
        _, named = shelf(call)
        lines = await parts.workspaces.files.lines(named, query.path)
        first = query.first_line
        text = "\n".join(lines[first - 1 : first - 1 + query.count])
        return json_answer(FileTextView(path=query.path, lines=len(lines), first_line=first, text=text))

    listing = Route(
        method="GET",
        path="/v1/agents/{agent}/files",
        endpoint=listed,
        summary="The files of an agent, and what cannot be used of them",
        tag="memories",
        answers={200: FilesView},
    )
    one = dataclasses.replace(
        listing,
        path="/v1/agents/{agent}/file",
        endpoint=read,
        summary="Lines of one of them",
        query=FileQuery,
        answers={200: FileTextView},
    )
    return [listing, one]
