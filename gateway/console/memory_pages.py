"""The pages of memory: list, one memory with its history, map, topics and projects."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from gateway.console.memory_map import COLOURS, draw, flatten, place
from gateway.http.memories import narrowed, viewer_for
from gateway.http.memory_views import audit_view
from gateway.http.problems import Problem
from gateway.http.routes import Body, Call, Route
from gateway.moments import Moment, moment_at
from memory.embed import EmbeddingFailed
from memory.records import KINDS, ORIGINS, ListQuery, Origin, parse_pool
from memory.vitality import due_at, vitality

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from aiohttp import web

    from gateway.console.desk import Desk
    from gateway.parts import Parts
    from memory.memory import Memories
    from memory.records import Memory, Pool, Source, Topic, Viewer

NOBODYS = (
    "This token speaks for many people, and the console shows the memory of one. Sign out, and sign in with a token of "
    "the person (role user) or of an administrator. Over the API a frontend says for whom it asks: ?user=<id>."
)
PAGE = 50
SHOWN: tuple[Literal["50", "100", "200"], ...] = ("50", "100", "200")
"""Hits of a search on one page: each step searches once more for twice as many."""
ON_MAP = 600
MAP_WAIT_S = 20.0

Text = Annotated[str, Field(max_length=300)]


class PoolQuery(Body):
    pool: Text = ""


async def asked(parts: Parts, call: Call) -> tuple[Memories, Viewer, Pool | None]:
    """Memory, who looks at it, and the pool they name, if any. Raises Problem."""
    pool = getattr(call.query, "pool", "")
    if call.caller.role == "frontend" and not pool:
        raise Problem(403, "Memory belongs to people", NOBODYS)
    named = parse_pool(pool) if pool else None
    viewer = viewer_for(call, named)
    return await parts.memory.open(), viewer, named


class MemoriesQuery(PoolQuery):
    q: Annotated[str, Field(max_length=1000)] = ""
    mode: Literal["hybrid", "keyword", "vector"] = "hybrid"
    topic: Text = ""
    kind: Literal["", "user", "feedback", "project", "reference"] = ""
    origin: Literal[""] | Origin = ""
    state: Literal["active", "trashed", "superseded"] = "active"
    min_importance: Literal["", "3", "5", "7", "9"] = ""
    sort: Literal["updated", "created", "importance"] = "updated"
    as_of: Literal[""] | Moment = ""
    cursor: Text = ""
    shown: Literal["50", "100", "200"] = "50"


class MergeQuery(PoolQuery):
    id: list[Annotated[str, Field(max_length=64)]] | Annotated[str, Field(max_length=64)] = Field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A memory in a list, with how alive it is (0 to 1) and when it goes to the trash."""

    memory: Memory
    topic: str | None
    alive: float
    due: datetime | None


class MemoryPages:
    """The endpoints under /console/memory, each with a viewer made of its caller."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._parts = desk.parts

    def routes(self) -> list[Route]:
        page = self._desk.page
        return [
            page("GET", "/memory", self.index, "Memories", query=MemoriesQuery),
            page("GET", "/memory/map", self.map, "The page of the map", query=PoolQuery),
            page("GET", "/memory/map/drawn", self.drawn_map, "Memories as a map", query=PoolQuery),
            page("GET", "/memory/topics", self.topics, "Topics and projects", query=PoolQuery),
            page("GET", "/memory/merge", self.merge, "Merge memories", query=MergeQuery),
            page("GET", "/memory/{id}", self.one, "One memory, with its history"),
        ]

    async def index(self, call: Call) -> web.StreamResponse:
        query: MemoriesQuery = call.query
        memories, viewer, pool = await asked(self._parts, call)
        topics = await memories.topics.topics(viewer, pool)
        filters = await narrowed(memories, viewer, pool, [query.topic] if query.topic not in ("", "-") else None)
        filters = replace(
            filters,
            no_topic=query.topic == "-",
            kinds=(query.kind,) if query.kind else None,
            origins=(query.origin,) if query.origin else None,
            min_importance=int(query.min_importance or 1),
            as_of=None if query.as_of == "" else moment_at(query.as_of, self._parts.reset_zone),
        )
        problem = after = more = most = None
        if query.q.strip() or filters.as_of is not None:  # only what counts, so it must not look like the trash
            query = query.model_copy(update={"state": "active"})
        if query.q.strip():
            limit = int(query.shown)
            found = await memories.search(viewer, query.q, mode=query.mode, limit=limit + 1, filters=filters)
            shown, problem = [hit.memory for hit in found.hits[:limit]], found.problem
            more, most = _further(query.shown) if len(found.hits) > limit else (None, None)
        else:
            wanted = ListQuery(state=query.state, sort=query.sort, limit=PAGE, after=query.cursor or None)
            shown, after = await memories.page(viewer, filters, wanted)
        return self._desk.show(
            "memories.html",
            call,
            query=query,
            rows=await self._rows(memories, viewer, shown),
            after=after,
            more=more,
            most=most,
            trash_days=_days(memories),
            problem=problem,
            topics=topics,
            kinds=KINDS,
            origins=ORIGINS,
            vectors=self._parts.vectors.configured,
        )

    async def _rows(self, memories: Memories, viewer: Viewer, shown: Sequence[Memory]) -> list[Row]:
        names = await memories.topic_names(viewer, shown)
        now, policy = self._parts.clock.now(), memories.policy.retention
        return [
            Row(
                memory=memory,
                topic=names.get(memory.topic or ""),
                alive=vitality(memory, now, policy) / 100,
                due=due_at(memory, policy) if memory.state == "active" else None,
            )
            for memory in shown
        ]

    async def one(self, call: Call) -> web.StreamResponse:
        memories, viewer, _ = await asked(self._parts, call)
        memory = await memories.load(viewer, call.path("id"))
        (row,) = await self._rows(memories, viewer, [memory])
        history = [audit_view(entry) for entry in await memories.history(viewer, memory.id)]
        return self._desk.show(
            "memory.html",
            call,
            row=row,
            memory=memory,
            history=history,
            topics=await memories.topics.topics(viewer, memory.pool),
            kinds=KINDS,
            trash_days=_days(memories),
            source=self._said_in(call, memory.source),
        )

    def _said_in(self, call: Call, source: Source) -> dict[str, Any] | None:
        """Where a memory was said, if that is still there."""
        record = None if source.session is None else self._parts.store.index.find(source.session)
        return None if record is None else {"key": record.key, "session": record.session, "seq": source.first_seq}

    async def merge(self, call: Call) -> web.StreamResponse:
        query: MergeQuery = call.query
        memories, viewer, _ = await asked(self._parts, call)
        ids = [query.id] if isinstance(query.id, str) else query.id
        chosen = [await memories.load(viewer, one) for one in dict.fromkeys(ids[:50])]
        return self._desk.show("memory_merge.html", call, memories=chosen)

    async def topics(self, call: Call) -> web.StreamResponse:
        query: PoolQuery = call.query
        memories, viewer, pool = await asked(self._parts, call)
        return self._desk.show(
            "topics.html",
            call,
            pool=query.pool,
            own=str(await memories.topics.prepare(viewer, pool)),
            topics=await memories.topics.topics(viewer, pool),
            projects=await memories.topics.list_projects(viewer),
        )

    async def map(self, call: Call) -> web.StreamResponse:
        """What stands round the map, which comes by itself: the page is seen before the map is drawn."""
        query: PoolQuery = call.query
        memories, viewer, pool = await asked(self._parts, call)
        await narrowed(memories, viewer, pool, None)
        configured = self._parts.vectors.configured
        return self._desk.show("memory_map.html", call, pool=query.pool, configured=configured)

    async def drawn_map(self, call: Call) -> web.StreamResponse:
        memories, viewer, pool = await asked(self._parts, call)
        filters = await narrowed(memories, viewer, pool, None)
        shown, more = await memories.page(viewer, filters, ListQuery(limit=ON_MAP))
        topics = await self._topics_of(memories, viewer, shown)
        colours = {topic.id: 1 + at % (COLOURS - 1) for at, topic in enumerate(topics)}
        problem, drawn = None, None
        if shown:
            try:
                async with asyncio.timeout(MAP_WAIT_S):
                    vectors = await self._parts.vectors.of([memory.text for memory in shown])
                title = self._desk.pages.texts["memory"]["map_title"]
                drawn = await asyncio.to_thread(lambda: draw(place(shown, flatten(vectors), colours), title))
            except EmbeddingFailed as error:
                problem = str(error)
            except TimeoutError:
                problem = self._desk.pages.texts["memory"]["map_slow"]
        return self._desk.show(
            "memory_map_drawn.html",
            call,
            drawn=drawn,
            problem=problem,
            count=len(shown),
            more=more is not None,
            topics=[(topic, colours[topic.id]) for topic in topics],
            without=any(memory.topic is None for memory in shown),
        )

    async def _topics_of(self, memories: Memories, viewer: Viewer, shown: Sequence[Memory]) -> list[Topic]:
        ids = {memory.topic for memory in shown if memory.topic is not None}
        found = await memories.topics.by_id(viewer, sorted(ids)) if ids else {}
        return sorted(found.values(), key=lambda topic: topic.name.casefold())


def _further(shown: str) -> tuple[str | None, str | None]:
    """How many hits the next step shows; or, where there is none, how many there are at most."""
    following = [step for step in SHOWN if int(step) > int(shown)]
    return (following[0], None) if following else (None, shown)


def _days(memories: Memories) -> str | None:
    """How long the trash keeps something; None: for ever."""
    days = memories.policy.trash.days
    return None if days is None else f"{days:g}"
