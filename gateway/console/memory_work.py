"""The pages of what works on memory: runs of jobs with before and after, what was learnt, and what a person chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from gateway.console.memory_pages import PoolQuery, asked
from gateway.console.personal import choices_of
from gateway.http.memory_runs import can_undo, changes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from gateway.console.desk import Desk
    from gateway.http.routes import Call, Route
    from memory.jobs import MemoryJob
    from memory.learning import LearnRun

RUNS = 30
LESSONS = 30


class WorkQuery(PoolQuery):
    before: Annotated[str, Field(max_length=64)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a job. `share`: how far it is, 0 to 1; None while that is not known."""

    job: MemoryJob
    can_undo: bool

    @property
    def share(self) -> float | None:
        return min(1.0, (self.job.done + self.job.failed) / self.job.total) if self.job.total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What was learnt from one piece of a conversation, and the key of the chat, if that is still there."""

    run: LearnRun
    key: str | None

    @property
    def changed(self) -> Sequence[str]:
        """Memories that still have a page; the first is where the whole can be undone."""
        return (*self.run.created, *self.run.updated)


class MemoryWork:
    """The endpoints, each with a viewer made of its caller."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._parts = desk.parts

    def routes(self) -> list[Route]:
        page = self._desk.page
        return [
            page("GET", "/memory/runs", self.index, "Work on memory, and what was learnt", query=WorkQuery),
            page("GET", "/memory/runs/{id}", self.one, "One run, with what it did to each memory"),
            page("GET", "/memory/settings", self.settings, "What a person chooses for their memory", query=PoolQuery),
        ]

    async def index(self, call: Call) -> web.StreamResponse:
        query: WorkQuery = call.query
        memories, viewer, pool = await asked(self._parts, call)
        jobs = await memories.store.jobs.page(viewer, pool=pool, limit=RUNS)
        lessons = await memories.store.learning.runs(viewer, limit=LESSONS + 1, before=query.before or None)
        kinds = [kind for kind in self._parts.memory_jobs.kinds.values() if viewer.admin or not kind.whole]
        return self._desk.show(
            "memory_runs.html",
            call,
            pool=query.pool,
            kinds=sorted(kinds, key=lambda kind: kind.name),
            runs=[self._run(job) for job in jobs],
            lessons=[self._lesson(run) for run in lessons[:LESSONS]],
            more=lessons[LESSONS - 1].id if len(lessons) > LESSONS else None,
            learns=self._parts.remember.learns,
        )

    def _run(self, job: MemoryJob) -> Run:
        return Run(job=job, can_undo=can_undo(job, self._parts.memory_jobs.kinds))

    def _lesson(self, run: LearnRun) -> Lesson:
        record = None if run.session is None else self._parts.store.index.find(run.session)
        return Lesson(run=run, key=None if record is None else record.key)

    async def one(self, call: Call) -> web.StreamResponse:
        memories, viewer, _ = await asked(self._parts, call)
        job = await memories.store.jobs.load(viewer, call.path("id"))
        changes = await changes_of(memories, viewer, job)
        return self._desk.show("memory_run.html", call, run=self._run(job), changes=changes)

    async def settings(self, call: Call) -> web.StreamResponse:
        query: PoolQuery = call.query
        memories, viewer, pool = await asked(self._parts, call)
        whose = await memories.topics.prepare(viewer, pool)
        chosen = await self._parts.personal.chosen(viewer, whose)
        return self._desk.show(
            "memory_settings.html",
            call,
            pool=query.pool,
            whose=str(whose),
            groups=choices_of(self._parts.personal.configured, chosen),
            learns=self._parts.remember.learns,
        )
