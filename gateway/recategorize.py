"""The job that sorts a person's memories into topics: those without one, or all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.classifier import AUTHOR, BATCH
from gateway.memory_jobs import JobFailed
from gateway.models.base import ModelError
from gateway.sorting import NoAnswer
from memory.records import Filters, ListQuery, Viewer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.memory_jobs import MemoryJobs, Progress
    from gateway.models.base import ChatModel
    from gateway.models.pool import ModelPool
    from gateway.sorting import TopicSorter
    from gateway.vectors import Opener
    from memory.jobs import MemoryJob
    from memory.memory import Memories
    from memory.records import Memory

HOPELESS = 3
"""Batches in a row without an answer: the model counts as down, and not the memories as unfit."""


class Recategorize:
    """Goes through the memories from the newest to the oldest; `place` is the cursor of the next page.

    What somebody has changed since a page was read is left alone, and so is the one memory of a bounded topic.
    """

    name = "recategorize"
    whole = False

    def __init__(self, memory: Opener, models: ModelPool, sorter: TopicSorter) -> None:
        self._memory = memory
        self._models = models
        self._sorter = sorter

    def ready(self) -> ChatModel:
        model = self._models.for_role("helper")
        if model is None:
            raise JobFailed("Sorting needs a helper model: set roles.helper.")
        return model

    async def run(self, job: MemoryJob, progress: Progress) -> None:
        assert job.pool is not None  # noqa: S101  (it is no job of the whole)
        model = self.ready()
        memories = await self._memory.open()
        viewer = Viewer(user=None, author=AUTHOR, origin="recategorising", admin=True, job=job.id)
        filters = Filters(pools=(job.pool,), no_topic=not job.asked.get("all"))
        place: dict[str, Any] = dict(job.place)
        if not place:
            place = {"cursor": None, "in_vain": 0}
            total = await memories.store.count(viewer, filters)
            await progress.save(total=total, model=model.name, place=place)
        while True:
            query = ListQuery(sort="created", limit=BATCH, after=place["cursor"])
            found, after = await memories.page(viewer, filters, query)
            batch = [memory for memory in found if memory.place is None]
            fields, place = await self._step(memories, model, viewer, batch, progress, {**place, "cursor": after})
            fields["done"] = fields.get("done", progress.job.done) + len(found) - len(batch)
            await progress.save(**fields, place=place)
            if after is None:
                await progress.note(counts=await memories.store.jobs.counts(job.id))
                return

    async def _step(
        self,
        memories: Memories,
        model: ChatModel,
        viewer: Viewer,
        batch: Sequence[Memory],
        progress: Progress,
        place: dict[str, Any],
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What to keep of a batch, and where to go on. Raises JobFailed when the model does not answer any more."""
        if not batch:
            return {}, place
        job = progress.job
        try:
            moved = await self._sorter.sort(memories, model, viewer, batch, progress.unless_stopped)
        except (ModelError, NoAnswer) as error:
            in_vain = place["in_vain"] + 1
            failed = job.failed + len(batch)
            if in_vain >= HOPELESS:
                raise JobFailed(f"{error} Try again when the helper model answers.") from error
            return {"failed": failed, "problem": str(error)}, {**place, "in_vain": in_vain}
        counts = {**job.counts, "changed": job.counts.get("changed", 0) + moved}
        return {"done": job.done + len(batch), "counts": counts}, {**place, "in_vain": 0}


async def begin_recategorize(jobs: MemoryJobs, viewer: Viewer, everything: bool) -> str:
    """For the tool and commands: starts it for whoever asks, and says so."""
    if viewer.user is None or viewer.delegated:
        return "There is no personal memory for this sender."
    job, fresh = await jobs.start(viewer, Recategorize.name, asked={"all": everything})
    if not fresh:
        return f"Memories are being sorted already (run {job.id}, {job.done} of {job.total} done)."
    return f"Memories are being sorted into topics in the background (run {job.id})."
