"""Jobs on memory over HTTP: started, watched, stopped and undone."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from gateway.http.memories import PoolName, PoolQuery, WhoQuery, viewer_for
from gateway.http.problems import Problem
from gateway.http.routes import Body, Call, Route, json_answer
from memory.errors import MemoryConflict
from memory.jobs import JobState
from memory.records import parse_pool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp import web

    from gateway.memory_jobs import JobKind
    from gateway.parts import Parts
    from memory.jobs import JobChange, MemoryJob
    from memory.memory import Memories
    from memory.records import Pool, Viewer

KindName = Annotated[str, Field(min_length=1, max_length=32, description="GET /v1/memory-runs lists the kinds")]
Limit = Annotated[int, Field(ge=1, le=200)]

CONFIRM = (
    "Sorting all memories again may move some that were put under a topic by hand. Send confirmed: true to do it; the "
    "run can be undone."
)


class RunIn(Body):
    """A job to start. One of its kind that runs already is answered instead."""

    kind: KindName
    pool: PoolName | None = Field(default=None, description="Whose memories; your own when left out")
    all: bool = Field(default=False, description="recategorize: also memories that have a topic")
    confirmed: bool = Field(default=False, description="recategorize with all: yes, do it")


class RunsQuery(PoolQuery):
    kind: KindName | None = None
    limit: Limit = 50


class MemoryRunView(BaseModel):
    """One run of a job. `state`: running, done, incomplete (something failed and was left out), failed, stopped.

    `done` and `failed` of `total` tell how far it is; `counts` what it has changed, by kind of change. `pool` null: it
    concerns the whole instance. `can_undo`: its changes can be taken back.
    """

    id: str
    kind: str
    pool: str | None
    state: JobState
    automatic: bool
    model: str | None
    started_at: datetime
    ended_at: datetime | None
    undone_at: datetime | None
    done: int
    total: int
    failed: int
    counts: dict[str, int]
    problem: str | None
    can_undo: bool


class RunPageView(BaseModel):
    """Runs, the newest first, and the kinds of jobs there are."""

    runs: list[MemoryRunView]
    kinds: list[str]


class SideView(BaseModel):
    """What a memory was at a time; `topic` is a name."""

    text: str
    topic: str | None
    kind: str
    importance: int
    state: str


class ChangeView(BaseModel):
    """What a run did to one memory. `before` null: it was new; both null: it was deleted for good since."""

    memory: str
    action: str
    before: SideView | None
    after: SideView | None
    undone: bool


class MemoryRunDetail(MemoryRunView):
    """One run with what it did to each memory."""

    changes: list[ChangeView]


class RunUndoneView(MemoryRunDetail):
    """A run that was undone: `back` memories are as before, `left` stay since somebody has changed them meanwhile."""

    back: int
    left: int


class MemoryRunRoutes:
    """The endpoints, each with a viewer made of its caller."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def page(self, call: Call) -> web.Response:
        query: RunsQuery = call.query
        memories, viewer, pool = await self._asked(call, query.pool)
        if pool is not None:
            await memories.topics.prepare(viewer, pool)
        found = await memories.store.jobs.page(viewer, kind=query.kind, pool=pool, limit=query.limit)
        kinds = [name for name, kind in self._parts.memory_jobs.kinds.items() if viewer.admin or not kind.whole]
        return json_answer(RunPageView(runs=[self._view(job) for job in found], kinds=sorted(kinds)))

    async def start(self, call: Call) -> web.Response:
        body: RunIn = call.body
        _, viewer, pool = await self._asked(call, body.pool)
        if body.all and not body.confirmed:
            raise Problem(422, "Invalid request", CONFIRM, [("confirmed", CONFIRM)])
        job, fresh = await self._parts.memory_jobs.start(viewer, body.kind, pool, asked={"all": body.all})
        return json_answer(self._view(job), 202 if fresh else 200)

    async def show(self, call: Call) -> web.Response:
        memories, viewer, _ = await self._asked(call)
        job = await memories.store.jobs.load(viewer, call.path("id"))
        return json_answer(await self._detail(memories, viewer, job))

    async def stop(self, call: Call) -> web.Response:
        _, viewer, _ = await self._asked(call)
        return json_answer(self._view(await self._parts.memory_jobs.stop(viewer, call.path("id"))))

    async def undo(self, call: Call) -> web.Response:
        memories, viewer, _ = await self._asked(call)
        job = await memories.store.jobs.load(viewer, call.path("id"))
        if not changes_memories(job, self._parts.memory_jobs.kinds):
            raise MemoryConflict("This kind of job changes no memories, so there is nothing to undo.")
        undone = await memories.undo_job(viewer, job.id)
        detail = await self._detail(memories, viewer, undone.job)
        back = sum(memory.state != "superseded" for memory in undone.memories)
        return json_answer({**detail.model_dump(mode="json"), "back": back, "left": undone.left})

    # --- answers --------------------------------------------------------------------------------------------------

    async def _asked(self, call: Call, pool: str | None = None) -> tuple[Memories, Viewer, Pool | None]:
        named = None if pool is None else parse_pool(pool)
        viewer = viewer_for(call, named)
        return await self._parts.memory.open(), viewer, named

    def _view(self, job: MemoryJob) -> MemoryRunView:
        plain = {name: getattr(job, name) for name in MemoryRunView.model_fields if name not in ("pool", "can_undo")}
        pool = None if job.pool is None else str(job.pool)
        return MemoryRunView(**plain, pool=pool, can_undo=can_undo(job, self._parts.memory_jobs.kinds))

    async def _detail(self, memories: Memories, viewer: Viewer, job: MemoryJob) -> MemoryRunDetail:
        return MemoryRunDetail(**dict(self._view(job)), changes=await changes_of(memories, viewer, job))


def changes_memories(job: MemoryJob, kinds: Mapping[str, JobKind]) -> bool:
    """Whether a run changes what people remember: one of the whole instance does not."""
    kind = kinds.get(job.kind)
    return kind is None or not kind.whole


def can_undo(job: MemoryJob, kinds: Mapping[str, JobKind]) -> bool:
    """Whether a run has made changes that can be taken back now."""
    ended = job.state != "running" and job.undone_at is None
    return ended and any(job.counts.values()) and changes_memories(job, kinds)


async def changes_of(memories: Memories, viewer: Viewer, job: MemoryJob) -> list[ChangeView]:
    """What a run did to each memory, with topics by their names."""
    changes = await memories.store.jobs.changes(viewer, job.id)
    ids = {side["topic"] for change in changes for side in (change.before, change.after) if side is not None}
    names = {topic.id: topic.name for topic in (await memories.topics.by_id(viewer, list(ids - {None}))).values()}
    return change_views(changes, names)


def change_views(changes: Sequence[JobChange], names: Mapping[str, str]) -> list[ChangeView]:
    return [
        ChangeView(
            memory=change.memory,
            action=change.action,
            before=_side(change.before, names),
            after=_side(change.after, names),
            undone=change.undone,
        )
        for change in changes
    ]


def _side(row: Mapping[str, Any] | None, names: Mapping[str, str]) -> SideView | None:
    if row is None:
        return None
    plain = {name: row[name] for name in SideView.model_fields if name != "topic"}
    return SideView(**plain, topic=names.get(row["topic"] or "", row["topic"]))


def routes(parts: Parts) -> list[Route]:
    """All addresses under /v1/memory-runs."""
    r = MemoryRunRoutes(parts)
    base, one = "/v1/memory-runs", "/v1/memory-runs/{id}"

    def route(method: Literal["GET", "POST"], path: str, endpoint: Any, summary: str, **more: Any) -> Route:
        more.setdefault("query", WhoQuery)
        return Route(method=method, path=path, endpoint=endpoint, summary=summary, tag="memory runs", **more)

    view = MemoryRunView
    return [
        route("GET", base, r.page, "Runs of jobs on memory", answers={200: RunPageView}, query=RunsQuery),
        route("POST", base, r.start, "Start a job on memory", answers={200: view, 202: view}, body=RunIn),
        route("GET", one, r.show, "One run, with what it did to each memory", answers={200: MemoryRunDetail}),
        route("POST", f"{one}/stop", r.stop, "End a run after the step it is at", answers={200: view}),
        route("POST", f"{one}/undo", r.undo, "Take back what a run has changed", answers={200: RunUndoneView}),
    ]
