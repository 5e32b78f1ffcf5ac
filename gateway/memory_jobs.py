"""Runs jobs on memory in the background: one of a kind and pool at a time, with progress, resumed after a kill."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import structlog

from memory.errors import InvalidMemory, MemoryConflict, MemoryUnavailable, NotThere
from memory.jobs import MemoryJob, ended
from memory.records import UPKEEP, Viewer

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from gateway.clock import Clock
    from gateway.vectors import Opener
    from memory.job_store import JobStore
    from memory.memory import Memories
    from memory.records import Pool

T = TypeVar("T")
RETRY_S = 10.0
STARTING_S = 10.0
AT_ONCE = 2
"""Jobs that work at the same time; replies need the rest of the machine."""

log = structlog.get_logger()


class JobStopped(Exception):
    """Somebody asked for the end of the job."""


class JobFailed(Exception):
    """The job cannot go on; the message tells its owner why, and what to do."""


class Progress:
    """How far a job is, for its work to tell and to be told that it must stop."""

    def __init__(self, job: MemoryJob, store: JobStore) -> None:
        self.job = job
        self._store = store
        self._stopping = asyncio.Event()

    async def save(self, **fields: Any) -> None:
        """Sets fields of the job (done, total, failed, counts, model, place, problem). Raises JobStopped."""
        await self.note(**fields)
        self.check()

    async def note(self, **fields: Any) -> None:
        """Sets fields of a job that is about to end."""
        self.job = dataclasses.replace(self.job, **fields)
        await self._store.put(self.job)

    def check(self) -> None:
        """Between two steps. Raises JobStopped."""
        if self._stopping.is_set():
            raise JobStopped

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns; it is cut short when the job is stopped, so it must not write. Raises JobStopped."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise JobStopped
        finally:
            task.cancel()
            stopped.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)

    def stop(self) -> None:
        self._stopping.set()


class JobKind(Protocol):
    """A kind of job. `whole`: it concerns the instance, not one person, and only administrators start it."""

    @property
    def name(self) -> str: ...
    @property
    def whole(self) -> bool: ...

    def ready(self) -> object:
        """What it works with, such as a model. Raises JobFailed while there is none: no run could do anything."""
        ...

    async def run(self, job: MemoryJob, progress: Progress) -> None:
        """Does all of the work, or goes on at `job.place` after a kill; each step is kept before it is counted.

        What cannot be done is counted as `failed` and left out. Raises JobFailed, JobStopped and MemoryUnavailable;
        after the last it is called again a little later.
        """
        ...


class MemoryJobs:
    """All kinds of jobs, and those that run."""

    def __init__(self, memory: Opener, clock: Clock) -> None:
        self._memory = memory
        self._clock = clock
        self._kinds: dict[str, JobKind] = {}
        self._running: dict[str, Progress] = {}
        self._group: asyncio.TaskGroup | None = None
        self._begun = asyncio.Event()
        self._wanted: set[str] = set()
        self._wake = asyncio.Event()
        self._room = asyncio.Semaphore(AT_ONCE)

    def add(self, kind: JobKind) -> None:
        """Before `run`."""
        self._kinds[kind.name] = kind

    @property
    def kinds(self) -> Mapping[str, JobKind]:
        return self._kinds

    async def run(self) -> None:
        """Takes up what was left, and runs what is started, until it is cancelled."""
        while True:
            try:
                store = (await self._memory.open()).store.jobs
                left = await store.running()
                break
            except MemoryUnavailable as error:
                log.warning("memory_jobs.wait", error=str(error))
                await self._clock.sleep(RETRY_S)
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for job in left:
                    self._launch(job, store)
                self._begun.set()
                while True:
                    await self._wake.wait()
                    self._wake.clear()
                    await self._start_wanted()
            finally:
                self._group = None
                self._begun.clear()

    def want(self, kind: str) -> None:
        """Starts a job of the whole instance by itself, as soon as jobs run."""
        self._wanted.add(kind)
        self._wake.set()

    async def _start_wanted(self) -> None:
        for kind in sorted(self._wanted):
            try:
                await self.start(UPKEEP, kind, automatic=True)
                self._wanted.discard(kind)
            except MemoryUnavailable as error:
                log.warning("memory_jobs.wait", error=str(error))
                await self._clock.sleep(RETRY_S)
                self._wake.set()

    async def start(
        self,
        viewer: Viewer,
        kind: str,
        pool: Pool | None = None,
        *,
        asked: Mapping[str, Any] | None = None,
        automatic: bool = False,
    ) -> tuple[MemoryJob, bool]:
        """The job, and whether it is new: one that runs already is returned as it is. `pool` None: the viewer's own.

        Raises InvalidMemory for an unknown kind, NotThere for what is not the viewer's, MemoryConflict where the kind
        is not ready, and MemoryUnavailable. Nobody would hear why an automatic one is refused, so it begins and fails.
        """
        if kind not in self._kinds:
            raise InvalidMemory("kind", f"must be one of {', '.join(sorted(self._kinds))}")
        memories = await self._memory.open()
        await self._going_on()
        chosen = await _startable(memories, self._kinds[kind], viewer, pool)
        if not automatic:
            _check_ready(self._kinds[kind])
        store = memories.store.jobs
        job, fresh = await store.begin(kind, chosen, asked=asked or {}, automatic=automatic)
        if fresh:
            self._launch(job, store)
        running = self._running.get(job.id)
        return (job if running is None else running.job), fresh

    async def stop(self, viewer: Viewer, job_id: str) -> MemoryJob:
        """Ends a job after the step it is at. Raises NotThere, and MemoryConflict when it has ended."""
        job = await (await self._memory.open()).store.jobs.load(viewer, job_id)
        running = self._running.get(job.id)
        kind = self._kinds.get(job.kind)
        if kind is not None and kind.whole and running is not None:
            raise MemoryConflict("This job goes on to its end: what it makes is of no use before.")
        if running is None:
            raise MemoryConflict("This job has ended already.")
        running.stop()
        return running.job

    async def _going_on(self) -> None:
        """Once what was left by the daemon before goes on. Raises MemoryUnavailable."""
        try:
            async with asyncio.timeout(STARTING_S):
                await self._begun.wait()
        except TimeoutError as error:
            raise MemoryUnavailable("Jobs are not running yet. Try again in a moment.") from error

    def _launch(self, job: MemoryJob, store: JobStore) -> None:
        assert self._group is not None  # noqa: S101
        progress = self._running[job.id] = Progress(job, store)
        self._group.create_task(self._carry_out(progress, store), name=f"memory job {job.kind}")

    async def _carry_out(self, progress: Progress, store: JobStore) -> None:
        """The outermost of a job's task: however it ends, that is written down."""
        kind = self._kinds.get(progress.job.kind)
        fields: dict[str, Any] = {}
        try:
            await progress.unless_stopped(self._room.acquire())
            try:
                await self._until_done(kind, progress)
            finally:
                self._room.release()
        except JobStopped:
            fields = {"state": "stopped"}
        except JobFailed as error:
            fields = {"state": "failed", "problem": str(error)}
        except Exception as error:
            log.exception("memory_job.failed", kind=progress.job.kind)
            fields = {"state": "failed", "problem": f"It failed ({type(error).__name__}); the log says more."}
        job = ended(progress.job, self._clock.now(), **fields)
        await self._written_down(store, job)
        self._running.pop(job.id, None)
        log.info("memory_job.ended", kind=job.kind, state=job.state, done=job.done, total=job.total, failed=job.failed)

    async def _until_done(self, kind: JobKind | None, progress: Progress) -> None:
        if kind is None:
            raise JobFailed("There is no such job in this version.")
        while True:
            try:
                progress.check()
                return await kind.run(progress.job, progress)
            except MemoryUnavailable as error:
                log.warning("memory_job.waits", kind=kind.name, error=str(error))
                await progress.unless_stopped(self._pause())

    async def _pause(self) -> None:
        await self._clock.sleep(RETRY_S)

    async def _written_down(self, store: JobStore, job: MemoryJob) -> None:
        while True:
            try:
                return await store.put(job)
            except MemoryUnavailable as error:
                log.warning("memory_job.not_written", kind=job.kind, error=str(error))
                await self._clock.sleep(RETRY_S)


def _check_ready(kind: JobKind) -> None:
    """Raises MemoryConflict."""
    try:
        kind.ready()
    except JobFailed as error:
        raise MemoryConflict(str(error)) from error


async def _startable(memories: Memories, kind: JobKind, viewer: Viewer, pool: Pool | None) -> Pool | None:
    """The pool a job may be started for; None: the instance. Raises NotThere and InvalidMemory."""
    if kind.whole:
        if not viewer.admin or viewer.conversation:
            raise NotThere("job you may start; this one is an administrator's")
        return None
    chosen = await memories.topics.prepare(viewer, pool)
    if chosen.kind != "user":
        raise InvalidMemory("pool", "this job touches the memories of one person only; name user:<id>")
    return chosen
