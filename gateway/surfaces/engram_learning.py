"""Learning from the texts and conversations that Engram's clients bring, behind their requests."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import structlog

from gateway.surfaces.engram_intake import pieces
from gateway.surfaces.engram_places import open_places
from gateway.surfaces.engram_runs import Work, committed, source_of
from gateway.surfaces.engram_scope import known_topics, scope_of
from memory.errors import MemoryProblem, MemoryUnavailable
from memory.learning import Lesson
from memory.redact import redact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from gateway.clock import Clock
    from gateway.learning import Learner
    from gateway.memories import MemoryPart
    from gateway.surfaces.engram_book import EngramBook
    from gateway.surfaces.engram_places import Place
    from gateway.surfaces.engram_runs import Run, Spoken
    from gateway.surfaces.engram_writes import EngramWrites
    from memory.learning import LearnRun
    from memory.memory import Memories

log = structlog.get_logger()

RETRY_S = 5.0
AT_ONCE = 2


class EngramLearning:
    """Runs that need a helper model; those of one user one after the other."""

    def __init__(
        self, memory: MemoryPart, learner: Learner, book: EngramBook, writes: EngramWrites, clock: Clock
    ) -> None:
        self._memory = memory
        self._learner = learner
        self._book = book
        self._writes = writes
        self._clock = clock
        self._waiting: asyncio.Queue[tuple[Run, Work]] = asyncio.Queue()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._lines: WeakValueDictionary[tuple[str, str | None], asyncio.Lock] = WeakValueDictionary()

    @property
    def can_learn(self) -> bool:
        """Whether there is a model that takes facts from texts."""
        return self._learner.helper() is not None

    async def accept(
        self, run: Run, said: Sequence[Spoken], properties: Mapping[str, str], created_at: datetime | None
    ) -> Run:
        """Keeps what is to be learnt from, without secrets, until the run has ended."""
        if not (await self._memory.open()).policy.allow_secrets:
            said = [dataclasses.replace(one, text=redact(one.text).text) for one in said]
        steps = 2 * len(pieces(said))  # the user's pool and the shared one
        lessons = tuple(self._clock.new_id() for _ in range(steps))
        work = Work(said=tuple(said), properties=dict(properties), created_at=created_at, lessons=lessons)
        await self._book.save(run, work)
        self._waiting.put_nowait((run, work))
        return run

    async def run(self) -> None:
        """Ends what was cut short, then what comes."""
        if not self._writes.has_projects:
            return
        async with asyncio.TaskGroup() as lines:
            unfinished = await self._unfinished()
            for run, work in unfinished:
                lines.create_task(self._in_line(run, work), name="engram run")
            early = {run.id for run, _ in unfinished}
            while True:
                run, work = await self._waiting.get()
                if run.id not in early:
                    lines.create_task(self._in_line(run, work), name="engram run")

    async def _unfinished(self) -> list[tuple[Run, Work]]:
        while True:
            try:
                await self._memory.open()
                return await self._book.unfinished()
            except MemoryUnavailable:
                await self._clock.sleep(RETRY_S)

    async def _in_line(self, run: Run, work: Work) -> None:
        key = (run.project, run.user_id)
        line = self._lines.get(key) or self._lines.setdefault(key, asyncio.Lock())
        async with line, self._slots:
            while True:
                try:
                    ended = await self._ended(run, work)
                    await self._book.save(dataclasses.replace(ended, ended_at=self._clock.now()))
                    return
                except MemoryUnavailable as error:
                    log.warning("engram.waits", run=run.id, error=str(error))
                    await self._clock.sleep(RETRY_S)

    async def _ended(self, run: Run, work: Work) -> Run:
        """How a run ended. Raises MemoryUnavailable."""
        try:
            return await self._learn(run, work)
        except MemoryUnavailable:
            raise
        except MemoryProblem as error:
            return dataclasses.replace(run, status="failed", error=str(error))
        except Exception:
            log.exception("engram.run_failed", run=run.id)
            return dataclasses.replace(run, status="failed", error="The run failed inside; the log says more.")

    async def _learn(self, run: Run, work: Work) -> Run:
        """The run as it ended. A step that is done already is not taken again."""
        memories = await self._memory.open()
        project = await self._writes.project(run.project)
        places = await open_places(memories, project, run.token, run.user_id, "learning")
        known = known_topics(project, run.group, places.user.topics.values() if places.user else ())
        lessons = iter(work.lessons)
        for said in pieces(work.said):
            for user_scoped in (True, False):
                lesson_id = next(lessons)
                place = places.user if user_scoped else places.shared
                topics = [topic for topic in known.values() if topic.user_scoped == user_scoped]
                if place is None or not topics:
                    continue
                lesson = Lesson(
                    viewer=place.viewer,
                    pool=place.pool,
                    said=said,
                    source=source_of(run, "learning"),
                    now=self._clock.now(),
                    topics=[place.topic(topic) for topic in topics],
                    properties={n: v for topic in topics for n, v in scope_of(topic, work.properties).items()},
                    created_at=work.created_at,
                    run=lesson_id,
                )
                done = await self._lesson(memories, place, lesson)
                run = committed(run, created=done.created, updated=done.updated, deleted=done.deleted)
                if done.state == "failed":
                    return dataclasses.replace(run, status="failed", error=done.problem)
        return dataclasses.replace(run, status="completed")

    async def _lesson(self, memories: Memories, place: Place, lesson: Lesson) -> LearnRun:
        assert lesson.run is not None  # noqa: S101
        done = await memories.store.learning.run(place.viewer, lesson.run)
        return done if done is not None and done.state != "failed" else await self._learner.learn(lesson)
