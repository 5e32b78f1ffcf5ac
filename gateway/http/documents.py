"""Documents over HTTP: an administrator keeps those of agents, the members of a project those of the project."""

from __future__ import annotations

import asyncio
import base64
import binascii
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from gateway.documents import converted, kept_name, list_documents, put_document, remove_document, shelf_folder
from gateway.http.memories import Name, WhoQuery, viewer_for
from gateway.http.problems import Problem
from gateway.http.routes import Body, Call, Route, json_answer
from gateway.known import unknown_agent, unknown_project
from memory.access import check_admin
from memory.errors import InvalidMemory, NotThere

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp import web

    from gateway.parts import Parts

DocumentName = Annotated[str, Field(min_length=1, max_length=200)]


class DocumentIn(Body):
    """A document of an agent or of a project; the ending of its name says how it is read."""

    name: DocumentName = Field(description="With its ending: md, txt, html, pdf, or json and yaml of OpenAPI")
    text: str | None = Field(default=None, description="What it says, of everything that is text")
    base64: str | None = Field(default=None, description="Its bytes, as of a PDF")
    agent: Name | None = None
    project: Name | None = None


class ShelfQuery(WhoQuery):
    """Whose documents."""

    agent: Name | None = None
    project: Name | None = None


class DocumentView(BaseModel):
    """A document as it is kept: as Markdown."""

    name: str
    size_bytes: int


class DocumentsView(BaseModel):
    """By name."""

    documents: list[DocumentView]


def routes(parts: Parts) -> list[Route]:
    """All addresses under /v1/documents."""

    converting = asyncio.Lock()  # one after the other: documents that take long leave threads to everybody else

    async def folder_of(call: Call, agent: str | None, project: str | None) -> Path:
        """Raises Problem when it is not said whose, and NotThere for what is not the caller's."""
        if (agent is None) == (project is None):
            raise Problem(422, "Invalid request", "Say whose it is: agent or project.", [("project", "or agent")])
        viewer = viewer_for(call)
        if project is not None:
            topics = (await parts.memory.open()).topics
            refusal = unknown_project(project, [one.id for one in await topics.list_projects(viewer)])
        else:
            try:
                check_admin(viewer)
            except InvalidMemory as error:
                raise NotThere("agent whose documents you may change") from error
            refusal = await asyncio.to_thread(unknown_agent, agent or "", parts.config.agents, parts.data_dir)
        if refusal is not None:
            raise Problem(404, "Not found", refusal)
        return shelf_folder(parts.data_dir, agent, project)

    async def add(call: Call) -> web.Response:
        body: DocumentIn = call.body
        folder = await folder_of(call, body.agent, body.project)
        kept_name(body.name)
        content, most = _content(body), parts.config.memory.files.max_bytes
        async with converting:
            text = await asyncio.to_thread(partial(converted, body.name, content, max_bytes=most))
        name = await asyncio.to_thread(put_document, folder, body.name, text)
        parts.workspaces.files.check()
        return json_answer(DocumentView(name=name, size_bytes=len(text.encode())), 201)

    async def listed(call: Call) -> web.Response:
        query: ShelfQuery = call.query
        found = await asyncio.to_thread(list_documents, await folder_of(call, query.agent, query.project))
        return json_answer(DocumentsView(documents=[DocumentView(name=name, size_bytes=size) for name, size in found]))

    async def remove(call: Call) -> web.Response:
        query: ShelfQuery = call.query
        folder = await folder_of(call, query.agent, query.project)
        if not await asyncio.to_thread(remove_document, folder, call.path("name")):
            raise NotThere("document of this name")
        parts.workspaces.files.check()
        return await listed(call)

    def route(method: str, path: str, endpoint: Any, summary: str, answers: dict[int, Any], **more: Any) -> Route:
        return Route(
            method=method, path=path, endpoint=endpoint, summary=summary, tag="documents", answers=answers, **more
        )

    base = "/v1/documents"
    kept, all_of_them = {201: DocumentView}, {200: DocumentsView}
    return [
        route("POST", base, add, "Keep a document as Markdown", kept, body=DocumentIn, query=WhoQuery),
        route("GET", base, listed, "The documents of an agent or a project", all_of_them, query=ShelfQuery),
        route(
            "DELETE",
            f"{base}/{{name}}",
            remove,
            "Delete a document, by the name it is kept under or was given with",
            all_of_them,
            query=ShelfQuery,
        ),
    ]


def _content(body: DocumentIn) -> bytes:
    """Raises Problem."""
    if (body.text is None) == (body.base64 is None):
        raise Problem(422, "Invalid request", "Give text or base64.", [("text", "or base64")])
    if body.base64 is None:
        return (body.text or "").encode()
    try:
        return base64.b64decode(body.base64, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Problem(422, "Invalid request", "base64 is none.", [("base64", "is not base64")]) from error
