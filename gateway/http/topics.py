"""Topics and projects over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from gateway.documents import list_documents, shelf_folder
from gateway.http.memories import Name, PoolName, PoolQuery, WhoQuery, viewer_for
from gateway.http.memory_views import (
    GoneView,
    ProjectsView,
    ProjectView,
    TopicGoneView,
    TopicsView,
    TopicView,
    project_view,
    topic_view,
)
from gateway.http.routes import Body, Call, Route, json_answer
from memory.errors import MemoryConflict
from memory.records import KEEP, TopicChange, TopicDraft, parse_pool

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.parts import Parts
    from memory.records import Pool

Title = Annotated[str, Field(min_length=1, max_length=80)]
Words = Annotated[str, Field(min_length=1, max_length=4000)]
Scope = Annotated[list[Title], Field(max_length=16)]
People = Annotated[list[Name], Field(max_length=10_000)]


class TopicIn(Body):
    """A class of memories. The description is what is taken from conversations, and in which form."""

    name: Title
    description: Words
    leave_out: Annotated[str, Field(max_length=4000)] | None = Field(
        default=None, description="What is not to be remembered under it"
    )
    bounded: bool = Field(default=False, description="At most one memory for each scope: a running summary")
    scope_properties: Scope = Field(default_factory=list[str], description="Properties that keep memories apart")
    always_on: bool = Field(default=False, description="Always shown to the model, from the start of a session")
    project: Name | None = Field(default=None, description="Recalled only inside this project")
    pool: PoolName | None = Field(default=None, description="Whose topic it is; your own when left out")
    instance: bool = Field(default=False, description="A topic for everybody; administrators only")


class TopicPatch(Body):
    """Fields to set."""

    name: Title | None = None
    description: Words | None = None
    leave_out: Annotated[str, Field(max_length=4000)] | None = None
    bounded: bool | None = None
    scope_properties: Scope | None = None
    always_on: bool | None = None
    project: Name | None = None


class ProjectIn(Body):
    """A project, with the people who share its memories."""

    id: Name
    name: Name | None = None
    members: People = Field(default_factory=list[str])


class ProjectPatch(Body):
    """Fields to set; `members` replaces all of them."""

    name: Name | None = None
    members: People | None = None


def topic_routes(parts: Parts) -> list[Route]:
    async def listed(call: Call) -> web.Response:
        query: PoolQuery = call.query
        pool = _pool(query.pool)
        memories = await parts.memory.open()
        found = await memories.topics.topics(viewer_for(call, pool), pool)
        return json_answer(TopicsView(topics=[topic_view(topic) for topic in found]))

    async def add(call: Call) -> web.Response:
        body: TopicIn = call.body
        pool = _pool(body.pool)
        viewer = viewer_for(call, pool)
        memories = await parts.memory.open()
        owner = None if body.instance else await memories.topics.prepare(viewer, pool)
        draft = TopicDraft(
            name=body.name,
            description=body.description,
            leave_out=body.leave_out,
            bounded=body.bounded,
            scope_properties=tuple(body.scope_properties),
            always_on=body.always_on,
            project=body.project,
        )
        return json_answer(topic_view(await memories.topics.add_topic(viewer, owner, draft)), 201)

    async def show(call: Call) -> web.Response:
        memories = await parts.memory.open()
        return json_answer(topic_view(await memories.topics.topic(viewer_for(call), call.path("id"))))

    async def edit(call: Call) -> web.Response:
        body: TopicPatch = call.body
        memories = await parts.memory.open()
        changed = await memories.topics.edit_topic(viewer_for(call), call.path("id"), topic_change(body))
        return json_answer(topic_view(changed))

    async def delete(call: Call) -> web.Response:
        memories = await parts.memory.open()
        left = await memories.topics.delete_topic(viewer_for(call), call.path("id"))
        return json_answer(TopicGoneView(memories=left))

    def route(method: str, path: str, endpoint: Any, summary: str, answers: dict[int, Any], **more: Any) -> Route:
        more.setdefault("query", WhoQuery)
        return Route(
            method=method, path=path, endpoint=endpoint, summary=summary, tag="topics", answers=answers, **more
        )

    one = "/v1/topics/{id}"
    return [
        route("GET", "/v1/topics", listed, "Topics of a pool, and of everybody", {200: TopicsView}, query=PoolQuery),
        route("POST", "/v1/topics", add, "Make a topic", {201: TopicView}, body=TopicIn),
        route("GET", one, show, "One topic", {200: TopicView}),
        route("PATCH", one, edit, "Change a topic", {200: TopicView}, body=TopicPatch),
        route("DELETE", one, delete, "Delete a topic; its memories stay, without one", {200: TopicGoneView}),
    ]


def topic_change(body: TopicPatch) -> TopicChange:
    """Fields that were sent; `leave_out` and `project` may be sent as null."""
    sent = body.model_fields_set
    return TopicChange(
        name=KEEP if body.name is None else body.name,
        description=KEEP if body.description is None else body.description,
        leave_out=body.leave_out if "leave_out" in sent else KEEP,
        bounded=KEEP if body.bounded is None else body.bounded,
        scope_properties=KEEP if body.scope_properties is None else tuple(body.scope_properties),
        always_on=KEEP if body.always_on is None else body.always_on,
        project=body.project if "project" in sent else KEEP,
    )


def project_routes(parts: Parts) -> list[Route]:
    async def listed(call: Call) -> web.Response:
        memories = await parts.memory.open()
        found = await memories.topics.list_projects(viewer_for(call))
        return json_answer(ProjectsView(projects=[project_view(project) for project in found]))

    async def add(call: Call) -> web.Response:
        body: ProjectIn = call.body
        memories = await parts.memory.open()
        made = await memories.topics.put_project(
            viewer_for(call), body.id, name=body.name, with_members=body.members, must_be_new=True
        )
        return json_answer(project_view(made), 201)

    async def show(call: Call) -> web.Response:
        memories = await parts.memory.open()
        return json_answer(project_view(await memories.topics.project(viewer_for(call), call.path("id"))))

    async def edit(call: Call) -> web.Response:
        body: ProjectPatch = call.body
        memories = await parts.memory.open()
        viewer = viewer_for(call)
        present = await memories.topics.project(viewer, call.path("id"))
        changed = await memories.topics.put_project(viewer, present.id, name=body.name, with_members=body.members)
        return json_answer(project_view(changed))

    async def delete(call: Call) -> web.Response:
        memories = await parts.memory.open()
        viewer, project = viewer_for(call), call.path("id")
        await memories.topics.project(viewer, project)
        if await asyncio.to_thread(list_documents, shelf_folder(parts.data_dir, None, project)):
            raise MemoryConflict("The project has documents. Remove them first: the next of its name would find them.")
        await memories.topics.delete_project(viewer, project)
        return json_answer(GoneView())

    def route(method: str, path: str, endpoint: Any, summary: str, answers: dict[int, Any], **more: Any) -> Route:
        more.setdefault("query", WhoQuery)
        return Route(
            method=method, path=path, endpoint=endpoint, summary=summary, tag="projects", answers=answers, **more
        )

    one, admin = "/v1/projects/{id}", ("admin",)
    return [
        route("GET", "/v1/projects", listed, "Projects you are a member of", {200: ProjectsView}),
        route("POST", "/v1/projects", add, "Make a project", {201: ProjectView}, body=ProjectIn, roles=admin),
        route("GET", one, show, "One project, with its members", {200: ProjectView}),
        route("PATCH", one, edit, "Change a project", {200: ProjectView}, body=ProjectPatch, roles=admin),
        route("DELETE", one, delete, "Delete a project that has no memories", {200: GoneView}, roles=admin),
    ]


def routes(parts: Parts) -> list[Route]:
    """All addresses of topics and projects."""
    return [*topic_routes(parts), *project_routes(parts)]


def _pool(given: str | None) -> Pool | None:
    return None if given is None else parse_pool(given)
