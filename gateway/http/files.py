"""Files of agents and of projects over HTTP: which there are, what cannot be used of them, and their lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from gateway.http.auth import may_use_agent
from gateway.http.memories import WhoQuery, viewer_for
from gateway.http.problems import not_found
from gateway.http.routes import Body, Call, Route, json_answer
from gateway.shelves import agent_shelf, project_shelf, readable_projects
from gateway.workspaces import MAX_LINES, READ_LINES
from sessions.keys import clean_id

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.parts import Parts
    from memory.files import WorkspaceFiles


class FileView(BaseModel):
    """One file. `indexed`: as it is now; `problem`: why it cannot be used, or not wholly."""

    path: str
    indexed: bool
    problem: str | None


class FilesView(BaseModel):
    """MEMORY.md and memory/**/*.md of an agent, or a project's documents, as searches name them; `waiting` files, of
    everybody's, are still to be indexed."""

    agent: str | None = None
    project: str | None = None
    files: list[FileView]
    waiting: int
    problem: str | None


class FileQuery(Body):
    path: Annotated[str, Field(min_length=1, max_length=1000, description="Such as memory/garden/trees.md")]
    first_line: Annotated[int, Field(ge=1, le=2**31)] = 1
    count: Annotated[int, Field(ge=1, le=MAX_LINES, description="How many lines")] = READ_LINES


class ProjectFileQuery(FileQuery, WhoQuery):
    """Frontends say for whom they ask."""


class FileTextView(BaseModel):
    """Some lines of a file; `lines` is how many it has."""

    path: str
    lines: int
    first_line: int
    text: str


def routes(parts: Parts) -> list[Route]:
    files = parts.workspaces.files

    def agent_of(call: Call) -> str:
        """What a token may not speak to, it may not read. Raises Problem."""
        agent = clean_id("agent", call.path("agent"))
        if not may_use_agent(call.caller, agent):
            raise not_found("agent")
        return agent

    async def project_of(call: Call) -> str:
        """One the caller is a member of, or keeps. Raises Problem and MemoryProblem."""
        found = await readable_projects(await parts.memory.open(), viewer_for(call), call.path("id"))
        if not found:
            raise not_found("project")
        return found[0]

    async def list_agents(call: Call) -> web.Response:
        agent = agent_of(call)
        return await _list(files, agent_shelf(agent), agent=agent)

    async def read_agents(call: Call) -> web.Response:
        return await _read(files, agent_shelf(agent_of(call)), call.query)

    async def list_projects(call: Call) -> web.Response:
        project = await project_of(call)
        return await _list(files, project_shelf(project), project=project)

    async def read_projects(call: Call) -> web.Response:
        return await _read(files, project_shelf(await project_of(call)), call.query)

    def route(path: str, endpoint: Any, summary: str, answer: type[BaseModel], query: type[Body] | None) -> Route:
        return Route(
            method="GET",
            path=path,
            endpoint=endpoint,
            summary=summary,
            tag="memories",
            query=query,
            answers={200: answer},
        )

    agents, projects = "/v1/agents/{agent}", "/v1/projects/{id}"
    unused = "and what cannot be used of them"
    return [
        route(f"{agents}/files", list_agents, f"The files of an agent, {unused}", FilesView, None),
        route(f"{agents}/file", read_agents, "Lines of one of them", FileTextView, FileQuery),
        route(f"{projects}/files", list_projects, f"The files of a project, {unused}", FilesView, WhoQuery),
        route(f"{projects}/file", read_projects, "Lines of one of them", FileTextView, ProjectFileQuery),
    ]


async def _list(files: WorkspaceFiles, shelf: str, **owner: str) -> web.Response:
    found = [FileView(path=path, indexed=done, problem=why) for path, done, why in await files.listing(shelf)]
    status = await files.status()
    return json_answer(FilesView(**owner, files=found, waiting=status.waiting, problem=status.problem))


async def _read(files: WorkspaceFiles, shelf: str, query: FileQuery) -> web.Response:
    lines = await files.lines(shelf, query.path)
    first = query.first_line
    text = "\n".join(lines[first - 1 : first - 1 + query.count])
    return json_answer(FileTextView(path=query.path, lines=len(lines), first_line=first, text=text))
