"""The job that tidies a person's memories: merges what is alike, corrects what is stale, shortens, sorts."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import structlog

from gateway.memory_jobs import JobFailed, JobStopped
from gateway.models.base import ModelError
from memory.consolidate import (
    SYSTEM,
    Shown,
    answer_schema,
    judge_tidying,
    parse_answer,
    render_question,
    together,
)
from memory.errors import Forgotten, InvalidMemory, MemoryConflict, NotThere
from memory.records import KEEP, Change, Filters, ListQuery, Viewer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gateway.asking import Asker
    from gateway.clock import Clock
    from gateway.memory_jobs import Progress
    from gateway.models.base import ChatModel
    from gateway.models.pool import ModelPool
    from gateway.vectors import Opener
    from memory.consolidate import Answer, Tidied, TidyStep
    from memory.jobs import MemoryJob
    from memory.memory import Memories
    from memory.records import Memory, Pool, Topic

log = structlog.get_logger()

AUTHOR = "consolidation"
OFFLINE = "offline"
PENDING = 200
SHOWN = 30
SHOWN_CHARACTERS = 12_000
SEEDS = 8
NEAR = 4
TRASH = 200
HOPELESS = 3
"""Questions in a row without an answer: the model counts as down."""

LEFT_ALONE = (MemoryConflict, Forgotten, NotThere, InvalidMemory)


class Consolidation:
    """Asks about some memories after the other, those that nobody has looked at since they changed.

    What was asked about is marked, and what was changed is known from the history, so a kill loses nothing: what is
    left is asked about again. Every write compares the revisions that were shown, of all its text comes from.
    """

    name = "consolidate"
    whole = False

    def __init__(
        self,
        memory: Opener,
        models: ModelPool,
        asker: Asker,
        clock: Clock,
        on_begin: Callable[[Pool], None] = lambda _: None,
    ) -> None:
        self._memory = memory
        self._models = models
        self._asker = asker
        self._clock = clock
        self._on_begin = on_begin

    def ready(self) -> ChatModel:
        model = self._models.for_role("consolidation") or self._models.choose("", None)
        if model.model == OFFLINE:
            raise JobFailed("Tidying needs a language model: set roles.consolidation, or roles.chat.")
        return model

    async def run(self, job: MemoryJob, progress: Progress) -> None:
        assert job.pool is not None  # noqa: S101  (it is no job of the whole)
        model = self.ready()
        run = _Run(await self._memory.open(), job.pool, model, progress)
        try:
            await self._go_through(run)
        except (JobStopped, JobFailed):
            await progress.note(counts=await run.memories.store.jobs.counts(job.id))
            raise

    async def _go_through(self, run: _Run) -> None:
        progress, job = run.progress, run.progress.job
        await run.memories.topics.prepare(run.viewer, run.pool)
        if not job.place:
            self._on_begin(run.pool)
            _, total = await run.pending()
            await progress.save(total=total, model=run.model.name, place={"failed": [], "in_vain": 0})
        while True:
            pending, left = await run.pending()
            await progress.save(**run.so_far(left), counts=await run.memories.store.jobs.counts(job.id))
            if not pending:
                return
            await self._step(run, pending)

    async def _step(self, run: _Run, pending: Sequence[Memory]) -> None:
        """One question and what comes of it. Raises JobFailed when the model does not answer any more."""
        shown = await run.group(pending)
        topics = [topic for topic in await run.memories.topics.topics(run.viewer, run.pool) if topic.owner == run.pool]
        problem = "The model gave no JSON that can be read."
        try:
            answer = await run.progress.unless_stopped(self._ask(run, shown, topics))
        except ModelError as error:
            answer, problem = None, str(error)
        if answer is None:
            await run.in_vain(shown, pending, problem)
            return
        tidied = judge_tidying(answer, await run.shown(shown, topics))
        await run.write(tidied)
        await run.memories.store.jobs.mark_checked(run.viewer, shown)
        await run.progress.save(place={**run.progress.job.place, "in_vain": 0})
        for why in tidied.refused:
            log.info("consolidation.refused", why=why)

    async def _ask(self, run: _Run, shown: Sequence[Memory], topics: Sequence[Topic]) -> Answer | None:
        return await self._asker.ask(
            run.model,
            role="consolidation",
            system=SYSTEM,
            question=render_question(shown, topics, self._clock.now()),
            schema=answer_schema(),
            parse=parse_answer,
            user=run.pool.id,
        )


class _Run:
    """One run: whose memories, which model, how far."""

    def __init__(self, memories: Memories, pool: Pool, model: ChatModel, progress: Progress) -> None:
        self.memories = memories
        self.pool = pool
        self.model = model
        self.progress = progress
        self.viewer = Viewer(user=pool.id, author=AUTHOR, origin="consolidation", job=progress.job.id)

    async def pending(self) -> tuple[list[Memory], int]:
        return await self.memories.store.jobs.unchecked(self.pool, self.progress.job, limit=PENDING)

    def so_far(self, left: int) -> dict[str, Any]:
        """What is left tells what was done, also after a kill."""
        job = self.progress.job
        total = max(job.total, left + job.failed)
        return {"total": total, "done": total - left - job.failed}

    async def group(self, pending: Sequence[Memory]) -> list[Memory]:
        """The next memories to ask about, with those that are like the first of them."""
        mine = Filters(pools=(self.pool,))
        seeds = [m for m in pending if m.topic == pending[0].topic][:SEEDS]
        near: list[Memory] = []
        for seed in seeds:
            found = await self.memories.search(self.viewer, seed.text[:1000], limit=NEAR, filters=mine)
            near += [seed, *(hit.memory for hit in found.hits)]
        return together(pending[0], pending, near, most=SHOWN, room=SHOWN_CHARACTERS)

    async def shown(self, memories: Sequence[Memory], topics: Sequence[Topic]) -> Shown:
        """What the model was shown, as far as nobody has changed it while it was asked."""
        mine = Filters(pools=(self.pool,))
        present = await self.memories.store.confirm([memory.id for memory in memories], self.viewer, mine)
        revisions = {memory.id: memory.revision for memory in present}
        same = [memory for memory in memories if revisions.get(memory.id) == memory.revision]
        trash = await self.memories.page(
            self.viewer, Filters(pools=(self.pool,)), ListQuery(state="trashed", limit=TRASH)
        )
        return Shown(
            pool=self.pool,
            memories=same,
            gone=[memory for memory in memories if memory not in same],
            topics=topics,
            deleted=[memory.text for memory in trash[0]],
            terms=self.memories.terms,
            allow_secrets=self.memories.policy.allow_secrets,
        )

    async def in_vain(self, shown: Sequence[Memory], pending: Sequence[Memory], problem: str) -> None:
        """They are left to the next run, and counted. Raises JobFailed after some in a row."""
        job = self.progress.job
        known = {memory.id for memory in pending}
        failed = [*job.place.get("failed", ()), *(memory.id for memory in shown if memory.id in known)]
        in_vain: int = job.place.get("in_vain", 0) + 1
        place = {"failed": failed, "in_vain": in_vain}
        await self.progress.save(failed=len(failed), place=place, problem=problem)
        if in_vain >= HOPELESS:
            raise JobFailed(f"{problem} Run it again when the model answers.")

    async def write(self, tidied: Tidied) -> None:
        """Step by step, each a change of its own; what somebody has changed meanwhile is left alone."""
        for draft in tidied.new_topics:
            self.progress.check()
            try:
                await self.memories.topics.add_topic(self.viewer, self.pool, draft)
            except LEFT_ALONE as error:
                log.info("consolidation.left_alone", error=str(error))
        own: dict[str, int] = {}
        for step in tidied.steps:
            self.progress.check()
            try:
                own |= await self._write(step, own)
            except LEFT_ALONE as error:
                log.info("consolidation.left_alone", error=str(error))
        for topic_id in tidied.old_topics:
            self.progress.check()
            try:
                await self.memories.topics.drop_unused(self.viewer, self.pool, topic_id)
            except LEFT_ALONE as error:
                log.info("consolidation.left_alone", error=str(error))

    async def _write(self, step: TidyStep, own: Mapping[str, int]) -> dict[str, int]:
        """The revisions it leaves behind. `own`: those left by the steps before, whose sources may be its sources."""
        viewer = dataclasses.replace(self.viewer, why=WHY[step.op])
        change = Change(
            topic=KEEP if step.topic is None else step.topic,
            importance=KEEP if step.importance is None else step.importance,
            revision=step.revisions[0],
            sources={memory_id: own.get(memory_id, revision) for memory_id, revision in step.sources.items()},
        )
        match step.op:
            case "merge":
                change = dataclasses.replace(change, others=step.revisions[1:])
                await self.memories.merge(viewer, step.ids, step.text, change)
            case "update":
                change = dataclasses.replace(change, text=step.text or KEEP)
                await self.memories.update(viewer, step.ids[0], change)
            case "delete":
                await self.memories.delete(viewer, step.ids[0], revision=step.revisions[0])
        return {memory_id: revision + 1 for memory_id, revision in zip(step.ids, step.revisions, strict=True)}


WHY = {"merge": "tidied: they say one thing", "update": "tidied", "delete": "tidied: of no use"}
