"""Jobs on memory: one of a kind at a time, stopped, failed, waiting, and gone on with after an end of the daemon."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from gateway.clock import ManualClock
from gateway.memory_jobs import AT_ONCE, RETRY_S, JobFailed, MemoryJobs
from memory.errors import InvalidMemory, MemoryConflict, MemoryUnavailable, NotThere
from memory.records import parse_pool
from tests.gateway.test_memory_tools import Opened
from tests.memory.opened import ROOT, opened, person
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from gateway.memory_jobs import Progress
    from memory.jobs import MemoryJob
    from memory.memory import Memories

ANA, BOB = person("ana"), person("bob")
STEPS = 5


class Counting:
    """A job of five steps that waits for a permit before each, and keeps where it is."""

    def __init__(self, name: str = "count", *, whole: bool = False) -> None:
        self.name = name
        self.whole = whole
        self.permits = asyncio.Semaphore(0)
        self.steps: list[int] = []
        self.problem: Exception | None = None
        self.raised = 0
        self.failing: set[int] = set()
        self.missing: str | None = None

    def ready(self) -> None:
        if self.missing is not None:
            raise JobFailed(self.missing)

    def let(self, steps: int) -> None:
        for _ in range(steps):
            self.permits.release()

    async def run(self, job: MemoryJob, progress: Progress) -> None:
        self.ready()
        for step in range(job.place.get("step", 0), STEPS):
            await progress.unless_stopped(self.permits.acquire())
            if self.problem is not None:
                self.raised += 1
                raise self.problem
            self.steps.append(step)
            failed = progress.job.failed + (step in self.failing)
            done = progress.job.done + (step not in self.failing)
            await progress.save(done=done, failed=failed, total=STEPS, place={"step": step + 1})


@asynccontextmanager
async def working(
    path: Path, *kinds: Counting, clock: ManualClock | None = None
) -> AsyncIterator[tuple[Memories, MemoryJobs]]:
    clock = clock or ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
    async with opened(path / "state.db", clock) as memories:
        jobs = MemoryJobs(Opened(path, memories), clock)
        for kind in kinds:
            jobs.add(kind)
        task = asyncio.create_task(jobs.run())
        await jobs._begun.wait()
        try:
            yield memories, jobs
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until(memories: Memories, job: MemoryJob, **fields: object) -> MemoryJob:
    """The job when it is like that in the store."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await memories.store.jobs.load(ROOT, job.id)
            if all(getattr(found, name) == value for name, value in fields.items()):
                return found
            await asyncio.sleep(0.001)


async def test_a_job_tells_how_far_it_is_and_how_it_ended(tmp_path: Path) -> None:
    kind = Counting()
    async with working(tmp_path, kind) as (memories, jobs):
        job, fresh = await jobs.start(ANA, "count", asked={"all": True})
        assert (fresh, job.state, str(job.pool), job.asked) == (True, "running", "user:ana", {"all": True})
        kind.let(2)
        assert (await until(memories, job, done=2)).state == "running"
        kind.let(3)
        ended = await until(memories, job, state="done")
        assert (ended.done, ended.total, ended.failed, ended.problem) == (5, 5, 0, None)
        assert ended.ended_at is not None
        with pytest.raises(MemoryConflict, match="ended already"):
            await jobs.stop(ANA, job.id)


async def test_one_that_runs_is_answered_to_who_starts_it_again_and_others_have_their_own(tmp_path: Path) -> None:
    kind = Counting()
    async with working(tmp_path, kind) as (memories, jobs):
        first, _ = await jobs.start(ANA, "count")
        again = await asyncio.gather(*(jobs.start(ANA, "count") for _ in range(5)))
        assert {(job.id, fresh) for job, fresh in again} == {(first.id, False)}
        other, fresh = await jobs.start(BOB, "count")
        assert fresh
        assert other.id != first.id
        kind.let(10)
        await until(memories, first, state="done")
        await until(memories, other, state="done")
        assert (await jobs.start(ANA, "count"))[1]


async def test_a_job_is_its_owners_alone(tmp_path: Path) -> None:
    kind, whole = Counting(), Counting("index", whole=True)
    async with working(tmp_path, kind, whole) as (memories, jobs):
        job, _ = await jobs.start(ANA, "count")
        store = memories.store.jobs
        for other in (BOB, person(None), person("ana", delegated=True)):
            assert await store.page(other) == []
            for asked in (store.load(other, job.id), jobs.stop(other, job.id)):
                with pytest.raises(NotThere):
                    await asked
        with pytest.raises(NotThere):
            await jobs.start(BOB, "count", parse_pool("user:ana"))
        with pytest.raises(NotThere, match="administrator"):
            await jobs.start(ANA, "index")
        run, _ = await jobs.start(ROOT, "index")
        assert run.pool is None
        assert [one.id for one in await store.page(ANA)] == [job.id]
        assert [one.id for one in await store.page(ROOT)] == [run.id, job.id]
        assert [one.id for one in await store.page(ROOT, pool=parse_pool("user:ana"))] == [job.id]
        with pytest.raises(NotThere):
            await store.load(ANA, run.id)


async def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    async with working(tmp_path, Counting()) as (memories, jobs):
        with pytest.raises(InvalidMemory, match="must be one of count"):
            await jobs.start(ANA, "dance")
        await memories.topics.put_project(ROOT, "shop", with_members=["ana"])
        with pytest.raises(InvalidMemory, match="one person only"):
            await jobs.start(ANA, "count", parse_pool("project:shop"))


async def test_stop_ends_it_after_the_step_it_is_at_also_while_it_waits_for_its_turn(tmp_path: Path) -> None:
    kind = Counting()
    async with working(tmp_path, kind) as (memories, jobs):
        people = [person(f"p{number}") for number in range(AT_ONCE + 1)]
        started = [(await jobs.start(one, "count"))[0] for one in people]
        kind.let(1)
        await until(memories, started[0], done=1)
        for one, job in zip(people, started, strict=True):
            await jobs.stop(one, job.id)
            assert (await until(memories, job, state="stopped")).ended_at is not None
        assert kind.steps == [0]
        kind.let(STEPS)
        again, fresh = await jobs.start(people[0], "count")
        assert fresh
        await until(memories, again, state="done")


async def test_what_failed_is_never_told_as_success(tmp_path: Path) -> None:
    kind = Counting()
    async with working(tmp_path, kind) as (memories, jobs):
        kind.failing = {1, 2}
        kind.let(STEPS)
        job, _ = await jobs.start(ANA, "count")
        assert (await until(memories, job, state="incomplete")).failed == 2
        for problem, told in ((JobFailed("Set roles.helper."), "Set roles.helper."), (KeyError("x"), "KeyError")):
            kind.problem = problem
            kind.let(1)
            job, _ = await jobs.start(ANA, "count")
            ended = await until(memories, job, state="failed")
            assert told in (ended.problem or "")
        assert (await jobs.start(BOB, "count"))[1], "others go on"


async def test_while_the_records_are_away_a_job_waits_and_then_goes_on(tmp_path: Path) -> None:
    kind, clock = Counting(), ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
    async with working(tmp_path, kind, clock=clock) as (memories, jobs):
        job, _ = await jobs.start(ANA, "count")
        kind.let(2)
        await until(memories, job, done=2)
        kind.problem = MemoryUnavailable("locked")
        kind.let(1)
        while not kind.raised:
            await asyncio.sleep(0.001)
        kind.problem = None
        kind.let(3)
        await asyncio.sleep(0.01)
        assert kind.steps == [0, 1]
        await clock.advance(RETRY_S)
        assert (await until(memories, job, state="done")).done == 5
        assert kind.steps == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("after", range(STEPS))
async def test_ended_after_any_step_it_goes_on_from_there(tmp_path: Path, after: int) -> None:
    first = Counting()
    async with working(tmp_path, first) as (memories, jobs):
        job, _ = await jobs.start(ANA, "count", asked={"all": False})
        first.let(after)
        await until(memories, job, done=after)
    second = Counting()
    second.let(STEPS)
    async with working(tmp_path, second) as (memories, jobs):
        ended = await until(memories, job, state="done")
        assert (ended.done, ended.total) == (5, 5)
        assert first.steps + second.steps == [0, 1, 2, 3, 4]
        assert len(await memories.store.jobs.page(ANA)) == 1


async def test_a_job_this_version_does_not_know_is_failed_and_not_kept_for_ever(tmp_path: Path) -> None:
    async with working(tmp_path, Counting("old")) as (memories, jobs):
        job, _ = await jobs.start(ANA, "old")
    async with working(tmp_path, Counting("new")) as (memories, _):
        assert "no such job" in ((await until(memories, job, state="failed")).problem or "")


async def test_a_job_that_cannot_work_is_refused_to_people_and_runs_by_itself_are_written_down(tmp_path: Path) -> None:
    kind = Counting()
    kind.missing = "There is no model: set one."
    async with working(tmp_path, kind) as (memories, jobs):
        with pytest.raises(MemoryConflict, match="set one"):
            await jobs.start(ANA, "count")
        assert await memories.store.jobs.page(ROOT) == []
        job, _ = await jobs.start(ANA, "count", automatic=True)
        assert (await until(memories, job, state="failed")).problem == kind.missing
