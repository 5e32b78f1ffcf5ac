"""The job that makes the vector index anew: for a new embedding model by itself, or because somebody asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.memory_jobs import JobFailed

if TYPE_CHECKING:
    from gateway.clock import Clock
    from gateway.memory_jobs import Progress
    from gateway.vectors import VectorPart
    from memory.jobs import MemoryJob

LOOK_S = 0.5


class Reindex:
    """Shows what the index does, and asks it to begin anew where a person wants that.

    The index itself builds beside the old one, compares all points before it serves, and goes on after a kill. Keywords
    serve meanwhile.
    """

    name = "reindex"
    whole = True

    def __init__(self, vectors: VectorPart, clock: Clock) -> None:
        self._vectors = vectors
        self._clock = clock

    def ready(self) -> None:
        if not self._vectors.configured:
            raise JobFailed("There is no embedding model: set roles.embedding.")

    async def run(self, job: MemoryJob, progress: Progress) -> None:
        self.ready()
        after = await self._begin(job, progress)
        while True:
            status = self._vectors.status
            if status is not None:
                done = {"done": status.done, "total": status.total, "failed": status.failed}
                told = {**done, "model": self._vectors.model, "problem": status.problem or self._told(status.failed)}
                if any(getattr(progress.job, name) != value for name, value in told.items()):
                    await progress.save(**told)
                if status.state == "serving" and status.builds > after:
                    return
            await self._clock.sleep(LOOK_S)

    async def _begin(self, job: MemoryJob, progress: Progress) -> int:
        """How many builds were done before the one that counts. After a kill the index has begun by itself."""
        if job.automatic or job.place:
            return 0
        while (status := self._vectors.status) is None or not self._vectors.rebuild():
            await self._clock.sleep(LOOK_S)
        await progress.save(place={"asked": True})
        return status.builds

    @staticmethod
    def _told(failed: int) -> str | None:
        return None if not failed else f"{failed} texts have no vector, as the model refused them; keywords find them."
