"""Memories over HTTP: written, found, corrected, forgotten, taken along."""

from __future__ import annotations

import dataclasses
import io
from typing import IO, TYPE_CHECKING, Annotated, Any

from pydantic import Field

from gateway.http.auth import may_use_agent
from gateway.http.memory_views import (
    FoundView,
    HistoryView,
    ImportView,
    MemoriesView,
    MemoryPageView,
    MemoryView,
    PurgedView,
    WrittenView,
    audit_view,
    file_hit,
    memory_fields,
)
from gateway.http.problems import Problem
from gateway.http.routes import Body, Call, Route, json_answer
from gateway.http.spool import file_answer, read_into, spool
from gateway.moments import FORM, Moment, moment_at
from gateway.shelves import readable_shelves
from gateway.viewers import viewer_of_caller
from memory.errors import NotThere
from memory.records import (
    KEEP,
    Change,
    Draft,
    Filters,
    Kind,
    ListQuery,
    Mode,
    Origin,
    Sort,
    State,
    parse_pool,
)
from sessions.keys import clean_id
from sessions.policy import Composed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date, datetime

    from aiohttp import web

    from gateway.http.auth import Caller
    from gateway.parts import Parts
    from memory.memory import Memories
    from memory.records import Memory, Pool, Viewer, Written
    from memory.removal import Deleted

MAIN = "main"
Text = Annotated[str, Field(min_length=1, max_length=200_000)]
Id = Annotated[str, Field(min_length=1, max_length=64)]
Name = Annotated[Composed, Field(min_length=1, max_length=256)]
PoolName = Annotated[str, Field(min_length=6, max_length=300, description="user:<id> or project:<id>")]
TopicName = Annotated[str, Field(min_length=1, max_length=80, description="Name or id of a topic")]
Importance = Annotated[int, Field(ge=1, le=10)]
Properties = Annotated[dict[str, Annotated[str, Field(max_length=512)]], Field(max_length=16)]
Why = Annotated[str, Field(max_length=500, description="Kept in the history")]


MAX_IMPORT_BYTES = 512 * 1024 * 1024


class WhoQuery(Body):
    """Whose memories are meant. A person's token means that person; a frontend names a user."""

    user: Name | None = Field(default=None, description="For frontends and administrators: the person spoken for")


class MemoryIn(Body):
    """A fact to remember: one that stands for itself."""

    text: Text
    topic: TopicName | None = None
    kind: Kind | None = None
    importance: Importance | None = Field(default=None, description="What forgetting it would cost; 5 when left out")
    pool: PoolName | None = Field(default=None, description="Where it belongs; your own when left out")
    properties: Properties = Field(default_factory=dict[str, str])
    supersedes: Id | None = Field(default=None, description="A memory that is no longer true because of this one")
    valid_from: Moment | None = Field(default=None, description=f"Since when, or from when on, it is true. {FORM}")


class MemoryPatch(Body):
    """Fields to set. A changed text leaves what it said before behind, as a superseded version."""

    text: Text | None = None
    topic: TopicName | None = None
    kind: Kind | None = None
    importance: Importance | None = None
    properties: Properties | None = None
    revision: Annotated[int, Field(ge=1, le=2**53)] | None = Field(
        default=None, description="Refuse with 409 when the memory has changed since this revision"
    )
    why: Why = ""


class MergeIn(Body):
    """Makes one memory of several; the first keeps its id."""

    ids: list[Id] = Field(min_length=2, max_length=50)
    text: Text
    topic: TopicName | None = None
    importance: Importance | None = None
    why: Why = ""


class Narrowed(WhoQuery):
    """What a list is narrowed to."""

    pool: PoolName | None = None
    topic: TopicName | None = None
    kind: Kind | None = None
    origin: Origin | None = Field(default=None, description="How it came to be remembered")
    as_of: Moment | None = Field(default=None, description=f"What was true then. {FORM}")


class MemoryListQuery(Narrowed):
    state: State = "active"
    sort: Sort = "updated"
    unclassified: bool = Field(default=False, description="Only memories without topic")
    min_importance: Importance = 1
    limit: Annotated[int, Field(ge=1, le=500)] = 50
    cursor: Annotated[str, Field(max_length=200)] | None = None


class SearchIn(Body):
    """A search by meaning and words, as far as there are vectors."""

    query: Annotated[str, Field(max_length=8000)] = ""
    mode: Mode = "hybrid"
    limit: Annotated[int, Field(ge=1, le=100)] = 10
    as_of: Moment | None = Field(default=None, description=f"What was true then. {FORM}")
    pool: PoolName | None = None
    topics: list[TopicName] | None = Field(default=None, max_length=50)
    kinds: list[Kind] | None = Field(default=None, max_length=4)
    origins: list[Origin] | None = Field(default=None, max_length=9, description="How they came to be remembered")
    properties: Properties = Field(default_factory=dict[str, str])
    min_importance: Importance = 1
    agent: Name | None = Field(
        default=None, description=f"Whose notes are searched as well, with the documents of projects; {MAIN}'s if null"
    )

    @property
    def of_files(self) -> bool:
        """Whether files can be meant: they have words, and nothing else that is asked for."""
        narrowed = (self.as_of, self.topics, self.kinds, self.origins)
        plain = all(one is None for one in narrowed) and not self.properties and self.min_importance == 1
        return plain and bool(self.query.strip())


class UndoIn(Body):
    operation: Id | None = Field(
        default=None, description="From the history; left out: one step back, and again one further"
    )


class PoolQuery(WhoQuery):
    pool: PoolName | None = None


class MemoryImportIn(Body):
    """JSON lines, as exported. Files that are too long for a body of JSON go to `/v1/memories/import-file`."""

    content: str = Field(description="The file's text")
    pool: PoolName | None = None


class MemoryRoutes:
    """The endpoints, each with a viewer made of its caller."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def _asked(self, call: Call, pool: str | None = None) -> tuple[Memories, Viewer, Pool | None]:
        memories = await self._parts.memory.open()
        named = None if pool is None else parse_pool(pool)
        return memories, viewer_for(call, named), named

    def _instant(self, moment: date | None) -> datetime | None:
        return None if moment is None else moment_at(moment, self._parts.reset_zone)

    async def add(self, call: Call) -> web.Response:
        body: MemoryIn = call.body
        memories, viewer, pool = await self._asked(call, body.pool)
        draft = Draft(
            text=body.text,
            topic=body.topic,
            kind=body.kind,
            importance=body.importance,
            pool=pool,
            properties=body.properties,
            supersedes=body.supersedes,
            valid_from=self._instant(body.valid_from),
        )
        written = await memories.add(viewer, draft)
        return await self._written(memories, viewer, written, 201 if written.outcome == "added" else 200)

    async def page(self, call: Call) -> web.Response:
        query: MemoryListQuery = call.query
        memories, viewer, pool = await self._asked(call, query.pool)
        filters = await narrowed(memories, viewer, pool, None if query.topic is None else [query.topic])
        filters = dataclasses.replace(
            filters,
            kinds=None if query.kind is None else (query.kind,),
            origins=None if query.origin is None else (query.origin,),
            as_of=self._instant(query.as_of),
            no_topic=query.unclassified,
            min_importance=query.min_importance,
        )
        wanted = ListQuery(state=query.state, sort=query.sort, limit=query.limit, after=query.cursor)
        found, after = await memories.page(viewer, filters, wanted)
        return json_answer({"memories": await self._shown(memories, viewer, found), "next": after})

    async def search(self, call: Call) -> web.Response:
        body: SearchIn = call.body
        memories, viewer, pool = await self._asked(call, body.pool)
        filters = await narrowed(memories, viewer, pool, body.topics)
        filters = dataclasses.replace(
            filters,
            kinds=None if body.kinds is None else tuple(body.kinds),
            origins=None if body.origins is None else tuple(body.origins),
            as_of=self._instant(body.as_of),
            properties=body.properties,
            min_importance=body.min_importance,
        )
        found = await memories.search(viewer, body.query, mode=body.mode, limit=body.limit, filters=filters)
        shown = await self._shown(memories, viewer, [hit.memory for hit in found.hits])
        hits = [{**fields, "score": round(hit.score, 6)} for fields, hit in zip(shown, found.hits, strict=True)]
        files, problem = await self._files(call, viewer, pool)
        return json_answer({"memories": hits, "files": files, "total": len(hits), "problem": found.problem or problem})

    async def _files(self, call: Call, viewer: Viewer, pool: Pool | None) -> tuple[list[dict[str, Any]], str | None]:
        """Pieces of files the caller may read, and why there are none."""
        body: SearchIn = call.body
        if body.mode == "fetch" or not body.of_files or (pool is not None and pool.kind == "user"):
            return [], None
        agent = agent_for(call, body.agent) if pool is None else None
        project = None if pool is None else pool.id
        shelves = await readable_shelves(self._parts.memory, viewer, agent=agent, project=project)
        found, problem = await self._parts.workspaces.search(
            list(shelves), body.query, limit=body.limit, mode=body.mode
        )
        return [file_hit(one, shelves[one.piece.shelf]) for one in found], problem

    async def merge(self, call: Call) -> web.Response:
        body: MergeIn = call.body
        memories, viewer, _ = await self._asked(call)
        viewer = dataclasses.replace(viewer, why=body.why)
        change = Change(
            topic=KEEP if body.topic is None else body.topic,
            importance=KEEP if body.importance is None else body.importance,
        )
        return await self._written(memories, viewer, await memories.merge(viewer, body.ids, body.text, change))

    async def show(self, call: Call) -> web.Response:
        memories, viewer, _ = await self._asked(call)
        return await self._one(memories, viewer, await memories.load(viewer, call.path("id")))

    async def edit(self, call: Call) -> web.Response:
        body: MemoryPatch = call.body
        memories, viewer, _ = await self._asked(call)
        no_topic_sent = body.topic is None and "topic" not in body.model_fields_set
        change = Change(
            text=KEEP if body.text is None else body.text,
            topic=KEEP if no_topic_sent else body.topic,
            kind=KEEP if body.kind is None else body.kind,
            importance=KEEP if body.importance is None else body.importance,
            properties=KEEP if body.properties is None else body.properties,
            revision=body.revision,
        )
        viewer = dataclasses.replace(viewer, why=body.why)
        return await self._written(memories, viewer, await memories.update(viewer, call.path("id"), change))

    async def delete(self, call: Call) -> web.Response:
        memories, viewer, _ = await self._asked(call)
        return await self._one(memories, viewer, await memories.delete(viewer, call.path("id")))

    async def restore(self, call: Call) -> web.Response:
        memories, viewer, _ = await self._asked(call)
        return await self._one(memories, viewer, await memories.restore(viewer, call.path("id")))

    async def purge(self, call: Call) -> web.Response:
        memories, viewer, _ = await self._asked(call)
        return json_answer(_purged(await memories.purge(viewer, [call.path("id")])))

    async def empty_trash(self, call: Call) -> web.Response:
        """The own pool's where none is named: what others share, or own, is never meant by silence."""
        query: PoolQuery = call.query
        memories, viewer, pool = await self._asked(call, query.pool)
        filters = Filters(pools=(await memories.topics.prepare(viewer, pool),))
        return json_answer(_purged(await memories.empty_trash(viewer, filters)))

    async def history(self, call: Call) -> web.Response:
        memories, viewer, _ = await self._asked(call)
        entries = await memories.history(viewer, call.path("id"))
        return json_answer(HistoryView(changes=[audit_view(entry) for entry in entries]))

    async def undo(self, call: Call) -> web.Response:
        body: UndoIn = call.body
        memories, viewer, _ = await self._asked(call)
        if body.operation is None:
            changed = await memories.undo_latest(viewer, call.path("id"))
        elif body.operation in {entry.operation for entry in await memories.history(viewer, call.path("id"))}:
            changed = await memories.undo(viewer, body.operation)
        else:
            raise NotThere("change of this memory")
        return json_answer({"memories": await self._shown(memories, viewer, changed)})

    async def export(self, call: Call) -> web.Response:
        query: PoolQuery = call.query
        memories, viewer, pool = await self._asked(call, query.pool)
        file = spool(self._parts.data_dir)
        try:
            await memories.export(viewer, file, pool)
        except BaseException:
            file.close()
            raise
        return file_answer(file, "application/jsonl")

    async def take_in(self, call: Call) -> web.Response:
        body: MemoryImportIn = call.body
        return await self._taken_in(call, io.BytesIO(body.content.encode()), body.pool)

    async def take_in_file(self, call: Call) -> web.Response:
        query: PoolQuery = call.query
        with spool(self._parts.data_dir) as file:
            await read_into(file, call.request, MAX_IMPORT_BYTES)
            return await self._taken_in(call, file, query.pool)

    async def _taken_in(self, call: Call, file: IO[bytes], named: str | None) -> web.Response:
        memories, viewer, pool = await self._asked(call, named)
        done = await memories.take_in(viewer, file, pool)
        return json_answer(ImportView(**dataclasses.asdict(done)))

    # --- answers --------------------------------------------------------------------------------------------------

    async def _shown(self, memories: Memories, viewer: Viewer, found: Sequence[Memory]) -> list[dict[str, Any]]:
        names = await memories.topic_names(viewer, found)
        now, policy = self._parts.clock.now(), memories.policy.retention
        return [MemoryView(**memory_fields(memory, names, policy, now)).model_dump(mode="json") for memory in found]

    async def _one(self, memories: Memories, viewer: Viewer, memory: Memory) -> web.Response:
        (shown,) = await self._shown(memories, viewer, [memory])
        return json_answer(shown)

    async def _written(self, memories: Memories, viewer: Viewer, written: Written, status: int = 200) -> web.Response:
        shown, *similar = await self._shown(memories, viewer, [written.memory, *written.similar])
        note = await memories.unsorted_note(written.memory)
        more = {"note": note, "outcome": written.outcome, "redacted": list(written.redacted), "similar": similar}
        return json_answer({**shown, **more}, status)


def viewer_for(call: Call, pool: Pool | None = None) -> Viewer:
    """The viewer of a request. Raises Problem when a frontend says for nobody that it asks, or anybody for whom they
    may not."""
    user: str | None = getattr(call.query, "user", None)
    check_user(call.caller, user)
    if call.caller.role == "frontend" and pool is not None and pool.kind == "user":
        check_user(call.caller, pool.id)
    viewer = viewer_of_caller(call.caller, user, pool)
    if viewer.user is None:
        detail = "Say for whom you ask: add ?user=<id>, or a pool user:<id>."
        raise Problem(422, "Invalid request", detail, [("user", detail)])
    return viewer


def agent_for(call: Call, named: str | None) -> str | None:
    """The agent whose notes are meant. Raises Problem for one that was named and the token may not speak to."""
    agent = clean_id("agent", named or MAIN)
    if may_use_agent(call.caller, agent):
        return agent
    if named is None:
        return None
    raise Problem(404, "Not found", "There is no such agent for this token. Name another one.")


def check_user(caller: Caller, user: str | None) -> None:
    """Raises Problem for a user whom the token may not speak for."""
    if user is None or caller.may_speak_for(user):
        return
    if caller.role == "user":
        raise Problem(404, "Not found", "This token speaks for one person only. Leave out user.")
    whom = "people outside its project" if caller.project else "the users of an Engram project"
    raise Problem(404, "Not found", f"This token does not speak for {whom}. Name another user.")


async def narrowed(memories: Memories, viewer: Viewer, pool: Pool | None, topics: Sequence[str] | None) -> Filters:
    """Filters for a pool and topics by name or id. Raises NotThere for what the viewer may not see."""
    filters = Filters(pools=None if pool is None else (await memories.topics.prepare(viewer, pool),))
    if topics is None:
        return filters
    owners = await memories.store.pools(viewer, filters)
    found = await memories.topics.find(viewer, topics, owners)
    return dataclasses.replace(filters, topics=tuple(topic.id for topic in found))


def _purged(deleted: Deleted) -> PurgedView:
    return PurgedView(purged=len(deleted.memories), cleared=deleted.cleared)


def routes(parts: Parts) -> list[Route]:
    """All addresses under /v1/memories."""
    r = MemoryRoutes(parts)
    one, written = {200: MemoryView}, {200: WrittenView}
    base = "/v1/memories"
    named = f"{base}/{{id}}"

    def route(method: str, path: str, endpoint: Any, summary: str, answers: dict[int, Any], **more: Any) -> Route:
        more.setdefault("query", WhoQuery)
        return Route(
            method=method, path=path, endpoint=endpoint, summary=summary, tag="memories", answers=answers, **more
        )

    lines = f"Take over JSON lines, sent as they are: up to {MAX_IMPORT_BYTES} bytes"
    found, purged, listed = {200: FoundView}, {200: PurgedView}, {200: MemoryPageView}
    return [
        route("POST", base, r.add, "Remember a fact", {**written, 201: WrittenView}, body=MemoryIn),
        route("GET", base, r.page, "Memories, a page at a time", listed, query=MemoryListQuery),
        route("POST", f"{base}/search", r.search, "Find memories", found, body=SearchIn),
        route("POST", f"{base}/merge", r.merge, "Make one memory of several", written, body=MergeIn),
        route("GET", f"{base}/export", r.export, "A pool as JSON lines", {200: "application/jsonl"}, query=PoolQuery),
        route("POST", f"{base}/import", r.take_in, "Take over JSON lines", {200: ImportView}, body=MemoryImportIn),
        route("POST", f"{base}/import-file", r.take_in_file, lines, {200: ImportView}, query=PoolQuery),
        route("POST", f"{base}/empty-trash", r.empty_trash, "Delete the trash for good", purged, query=PoolQuery),
        route("GET", named, r.show, "One memory, also a former version", one),
        route("PATCH", named, r.edit, "Correct a memory", written, body=MemoryPatch),
        route("DELETE", named, r.delete, "Put a memory into the trash", one),
        route("POST", f"{named}/restore", r.restore, "Take a memory out of the trash", one),
        route("POST", f"{named}/purge", r.purge, "Delete a memory for good, with all it said", purged),
        route("GET", f"{named}/history", r.history, "The changes of a memory", {200: HistoryView}),
        route(
            "POST",
            f"{named}/undo",
            r.undo,
            "Undo a change, with all that belongs to it",
            {200: MemoriesView},
            body=UndoIn,
            body_optional=True,
        ),
    ]
