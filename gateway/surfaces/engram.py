"""Engram's API, so that its published clients work with sessiond as they are."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from aiohttp import web

from gateway.http.json import dump
from gateway.http.problems import CONTENT_TYPE, Problem, body_of, not_found
from gateway.http.routes import Call, Route, json_answer
from gateway.surfaces.engram_bodies import (
    AddIn,
    EngramErrorView,
    EngramImportIn,
    EngramImportView,
    EngramListIn,
    EngramMemoriesView,
    EngramMemoryView,
    EngramSearchIn,
    GroupsView,
    ImportQuery,
    OneQuery,
    RunStatusView,
    RunView,
    SlicesView,
    TopicIn,
)
from gateway.surfaces.engram_intake import given_facts, given_time, input_type, spoken
from gateway.surfaces.engram_places import open_places
from gateway.surfaces.engram_runs import Run
from gateway.surfaces.engram_scope import (
    DEFAULT_GROUP,
    belongs,
    checked_group,
    known_topics,
    own_ids,
    project_of,
    project_to_fill,
    public_id,
    refused,
    wanted_parts,
)
from gateway.surfaces.engram_takeover import take_over, taken_view, topics_of
from gateway.surfaces.engram_views import group_view, memory_view, run_status_view
from memory.errors import NotThere
from memory.records import Filters, ListQuery

if TYPE_CHECKING:
    from gateway.parts import Parts
    from gateway.surfaces.engram_bodies import ScopeIn
    from gateway.surfaces.engram_places import Place
    from gateway.surfaces.engram_scope import Project
    from memory.memory import Memories
    from memory.records import Memory, Mode, Viewer

BASE = "/engram/v1"
MODES: dict[str, Mode] = {"vector": "vector", "bm25": "keyword", "hybrid": "hybrid", "fetch": "fetch"}
SEARCH_LIMIT = 10
LIMITS: dict[Mode, int] = {"fetch": 100}


class Engram:
    """The dialect. What a token reaches is its project, and of a user-scoped topic one user at a time."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def add(self, call: Call) -> web.Response:
        body: AddIn = call.body
        project = await self._project(call)
        memories = await self._parts.memory.open()
        group, now = checked_group(project, body.group), self._parts.clock.now()
        run = Run(
            id=public_id(self._parts.clock.new_id()),
            project=project.name,
            token=call.caller.name,
            group=group,
            user_id=body.user_id,
            input_type=input_type(body.input),
            status="running",
            at=now,
        )
        places = await open_places(memories, project, call.caller.name, body.user_id)
        known = known_topics(project, group, places.user.topics.values() if places.user else ())
        facts = given_facts(body, known)
        if facts is not None:
            run = await self._parts.engram.keep(run, facts, places, body.properties)
        else:
            said = spoken(body, known, now)
            learning = self._parts.engram_learning
            if learning.can_learn:
                run = await learning.accept(run, said, body.properties, given_time(body.input))
            else:
                run = await self._parts.engram.keep_as_said(run, said, known, places, body.properties)
        shown = {"run_id": run.id, "status": run.status, "error": run.error, "note": run.note}
        return json_answer({name: value for name, value in shown.items() if value is not None})

    async def run(self, call: Call) -> web.Response:
        project = await self._project(call)
        run = await self._parts.engram_book.load(project.name, call.path("id"))
        if run is None:
            raise not_found("run")
        return json_answer(run_status_view(run))

    async def search(self, call: Call) -> web.Response:
        body: EngramSearchIn = call.body
        mode = MODES[body.retrieval_config.retrieval_type] if body.retrieval_config else "hybrid"
        if not body.query.strip() and mode != "fetch":
            raise refused("query", "is empty; only the retrieval type fetch needs none")
        limit = (body.retrieval_config.limit if body.retrieval_config else None) or LIMITS.get(mode, SEARCH_LIMIT)
        project = await self._project(call)
        memories = await self._parts.memory.open()
        hits: list[tuple[float, Viewer, Memory]] = []
        names: dict[str, str] = {}
        for viewer, filters in await self._searches(memories, project, call, body):
            found = await memories.search(viewer, body.query, mode=mode, limit=limit, filters=filters)
            if mode == "vector" and found.problem is not None:
                found = await memories.search(viewer, body.query, mode="keyword", limit=limit, filters=filters)
            hits += [(hit.score, viewer, hit.memory) for hit in found.hits]
            names |= await memories.topic_names(viewer, [hit.memory for hit in found.hits])
        if mode != "fetch":
            hits.sort(key=lambda hit: -hit[0])
        for viewer in {viewer.user: viewer for _, viewer, _ in hits[:limit]}.values():
            used = [memory.id for _, asker, memory in hits[:limit] if asker == viewer]
            await memories.note_recalled(viewer, used)
        shown = [{**memory_view(project, memory, names), "score": round(score, 6)} for score, _, memory in hits[:limit]]
        return json_answer({"memories": shown, "total": len(shown)})

    async def page(self, call: Call) -> web.Response:
        body: EngramListIn = call.body
        project = await self._project(call)
        memories = await self._parts.memory.open()
        searches = await self._searches(memories, project, call, body)
        at, after = _read_cursor(body.cursor)
        if at >= len(searches):
            raise refused("cursor", "is none of this list; start without one")
        viewer, filters = searches[at]
        found, more = await memories.page(viewer, filters, ListQuery(sort="created", limit=body.limit, after=after))
        names = await memories.topic_names(viewer, found)
        following = f"{at}.{more}" if more is not None else f"{at + 1}." if at + 1 < len(searches) else None
        shown = [memory_view(project, memory, names) for memory in found]
        return json_answer({"memories": shown, "total": len(shown), **({"next": following} if following else {})})

    async def show(self, call: Call) -> web.Response:
        project = await self._project(call)
        memories, place, memory = await self._one(project, call)
        return json_answer(memory_view(project, memory, await memories.topic_names(place.viewer, [memory])))

    async def delete(self, call: Call) -> web.Response:
        memories, place, memory = await self._one(await self._project(call), call)
        await memories.purge(place.viewer, [memory.id])
        return web.Response(status=204)

    async def groups(self, call: Call) -> web.Response:
        project = await self._project(call)
        return json_answer({"groups": [group_view(project, group) for group in project.groups]})

    async def verify(self, call: Call) -> web.Response:
        await self._project(call)
        return web.Response(status=204)

    async def slices(self, call: Call) -> web.Response:
        project = await self._filled(call)
        return json_answer({"slices": await self._parts.engram_book.slices(project.name)})

    async def take_over(self, call: Call) -> web.Response:
        body: EngramImportIn = call.body
        project = await self._filled(call)
        memories, book = await self._parts.memory.open(), self._parts.engram_book
        if body.groups:
            await book.put_topics(project.name, topics_of(body.groups))
            project = await self._filled(call)
        taken = await take_over(memories, project, call.caller.name, body.memories)
        await book.note_slices(project.name, body.slices, ended=body.ended)
        return json_answer(taken_view(taken))

    # --- what they share ------------------------------------------------------------------------------------------

    async def _project(self, call: Call) -> Project:
        """The project of the token. Raises Problem."""
        return await self._parts.engram.project(project_of(self._parts.config.engram, call.caller))

    async def _filled(self, call: Call) -> Project:
        """The project an import goes to. Raises Problem."""
        query: ImportQuery = call.query
        name = project_to_fill(self._parts.config.engram, call.caller, query.project)
        return await self._parts.engram.project(name)

    async def _searches(
        self, memories: Memories, project: Project, call: Call, body: ScopeIn
    ) -> list[tuple[Viewer, Filters]]:
        """What is looked for, and as whom. Raises Problem for a topic, group or property nobody knows."""
        group = checked_group(project, body.group)
        places = await open_places(memories, project, call.caller.name, body.user_id)
        known = known_topics(project, group, places.user.topics.values() if places.user else ())
        selectors = None if body.topics is None else [_selector(topic) for topic in body.topics]
        out: list[tuple[Viewer, Filters]] = []
        for part in wanted_parts(known, selectors, body.properties):
            for user_scoped in (True, False):
                named = [topic for topic in part.topics if topic.user_scoped == user_scoped]
                if not named:
                    continue
                place = places.of(named[0])
                if place is None:
                    raise refused("user_id", f"is required: {named[0].name} belongs to a user")
                ids = tuple(place.topic(topic).id for topic in named)
                filters = Filters(pools=(place.pool,), topics=ids, properties=dict(part.properties))
                out.append((place.viewer, filters))
        if body.topics is None and not body.properties and group == DEFAULT_GROUP and places.user is not None:
            out.append((places.user.viewer, Filters(pools=(places.user.pool,), no_topic=True)))
        return out

    async def _one(self, project: Project, call: Call) -> tuple[Memories, Place, Memory]:
        """The memory of the address, of this user or of the whole project. Raises Problem."""
        query: OneQuery = call.query
        group = checked_group(project, query.group)
        if query.user_id is None and not project.has_shared:
            raise refused("user_id", "is required: the topics of this project belong to users")
        memories = await self._parts.memory.open()
        for place in await open_places(memories, project, call.caller.name, query.user_id):
            for memory_id in own_ids(call.path("id")):
                memory = await _loaded(memories, place, memory_id)
                if memory is None:
                    continue
                names = await memories.topic_names(place.viewer, [memory])
                if project.shown(names.get(memory.topic or "", ""))[1] == group:
                    return memories, place, memory
        raise not_found("memory")


async def _loaded(memories: Memories, place: Place, memory_id: str) -> Memory | None:
    try:
        memory = await memories.load(place.viewer, memory_id)
    except NotThere:
        return None
    shown = place.pool.kind == "user" or memory.topic in {topic.id for topic in place.topics.values()}
    return memory if belongs(memory, place.pool) and shown else None


def _selector(topic: str | TopicIn) -> tuple[str, dict[str, str | None]]:
    return (topic, {}) if isinstance(topic, str) else (topic.name, dict(topic.properties or {}))


def _read_cursor(cursor: str | None) -> tuple[int, str | None]:
    """Which part of a list, and where in it. Raises Problem."""
    if cursor is None:
        return 0, None
    part, dot, after = cursor.partition(".")
    if not dot or not part.isascii() or not part.isdigit() or len(part) > 4:
        raise refused("cursor", "is none of this list; start without one")
    return int(part), after or None


def _refused(problem: Problem, _: web.Request) -> web.Response:
    """An error as Engram's clients read it: `detail` and `message`; what is not understood is a bad request."""
    shown = dataclasses.replace(problem, status=400) if problem.status == 422 else problem
    body = {**body_of(shown), "message": shown.detail}
    return web.Response(status=shown.status, body=dump(body), content_type=CONTENT_TYPE, headers=dict(shown.headers))


def routes(parts: Parts) -> list[Route]:
    """All addresses under /engram/v1."""
    r = Engram(parts)
    named, found = f"{BASE}/memories/{{id}}", {200: EngramMemoriesView}

    def route(method: str, path: str, endpoint: Any, summary: str, answers: dict[int, Any], **more: Any) -> Route:
        told = {"tag": "engram", "refuse": _refused, "errors": EngramErrorView}
        return Route(method=method, path=path, endpoint=endpoint, summary=summary, answers=answers, **told, **more)

    none = {204: "application/json"}
    return [
        route("POST", f"{BASE}/memories", r.add, "Engram: store memories", {200: RunView}, body=AddIn),
        route("POST", f"{BASE}/memories/search", r.search, "Engram: find memories", found, body=EngramSearchIn),
        route("POST", f"{BASE}/memories/list", r.page, "Engram: list memories", found, body=EngramListIn),
        route("GET", named, r.show, "Engram: one memory", {200: EngramMemoryView}, query=OneQuery),
        route("DELETE", named, r.delete, "Engram: delete a memory for good", none, query=OneQuery),
        route("GET", f"{BASE}/runs/{{id}}", r.run, "Engram: what became of a write", {200: RunStatusView}),
        route("GET", f"{BASE}/groups", r.groups, "Engram: groups and topics", {200: GroupsView}),
        route(
            "GET",
            f"{BASE}/import",
            r.slices,
            "How far an import from Engram has come",
            {200: SlicesView},
            query=ImportQuery,
        ),
        route(
            "POST",
            f"{BASE}/import",
            r.take_over,
            "Take over memories of Engram",
            {200: EngramImportView},
            body=EngramImportIn,
            query=ImportQuery,
        ),
        route("GET", f"{BASE}/auth/verify", r.verify, "Engram: whether a key is valid", none),
    ]
