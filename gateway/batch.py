"""The daily batch: learns from every session in which enough was said, for people who are not learnt from at once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import structlog

from gateway.exchanges import people_in
from gateway.memory_jobs import JobFailed
from gateway.remember import WITHOUT_PERSON, Wanted
from gateway.schedules import next_time, parse_cron
from memory.records import Viewer, user_pool
from sessions.files import StorageError
from sessions.session import SessionGone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from gateway.memory_jobs import MemoryJobs, Progress
    from gateway.remember import Remember
    from gateway.vectors import Opener
    from memory.jobs import MemoryJob
    from memory.learning import LearnRun
    from memory.memory import Memories
    from memory.policy import LearnPolicy
    from sessions.record import SessionRecord
    from sessions.store import SessionStore

log = structlog.get_logger()

HOPELESS = 3
"""Sessions in a row that could not be learnt from: the model counts as down."""
LOOK_BACK = timedelta(days=7)
"""How long before the last batch a session must have been used to be looked at again: what failed is tried again."""
SLICE = 100
DAEMON = Viewer(user=None, author="sessiond", origin="batch", admin=True)


class LearnBatch:
    """The job of one person: session by session. What was learnt is kept with each session's watermark, so that a kill
    costs nothing."""

    name = "batch"
    whole = False

    def __init__(self, *, store: SessionStore, memory: Opener, remember: Remember, policy: LearnPolicy) -> None:
        self._store = store
        self._memory = memory
        self._remember = remember
        self._policy = policy

    @property
    def learns(self) -> bool:
        return self._remember.learns

    def ready(self) -> None:
        if not self.learns:
            raise JobFailed("Learning needs a helper model: set roles.helper.")

    async def run(self, job: MemoryJob, progress: Progress) -> None:
        assert job.pool is not None  # noqa: S101  (it is no job of the whole)
        self.ready()
        place: dict[str, Any] = dict(job.place)
        if not place:
            given = job.asked.get("sessions")
            sessions = await self._sessions_of(job.pool.id) if given is None else list(given)
            place = {"sessions": sessions, "at": 0, "in_vain": 0}
            await progress.save(total=len(sessions), place=place)
        while place["at"] < len(place["sessions"]):
            place = await self._step(job.pool.id, place, progress)

    async def _step(self, person: str, place: dict[str, Any], progress: Progress) -> dict[str, Any]:
        """One session. Raises JobFailed when the model does not answer any more."""
        session = place["sessions"][place["at"]]
        least, job = self._policy.batch_messages, progress.job
        wanted = Wanted(session=session, trigger="batch", least=least, person=person, job=job.id)
        problem: str | None = None
        runs: list[LearnRun] = []
        try:
            runs = await self._remember.learn_from(wanted)
            problem = next((run.problem for run in runs if run.state == "failed"), None)
        except SessionGone:
            pass  # deleted since: nothing of it is to be learnt
        except StorageError as error:
            problem = str(error)
        in_vain = 0 if problem is None else place["in_vain"] + 1
        place = {**place, "at": place["at"] + 1, "in_vain": in_vain}
        fields: dict[str, Any] = {"place": place, "counts": _counted(job, runs)}
        fields |= {"done": job.done + 1} if problem is None else {"failed": job.failed + 1, "problem": problem}
        fields |= {"model": next((run.model for run in runs if run.model), job.model)}
        await progress.save(**fields)
        if in_vain >= HOPELESS:
            raise JobFailed(f"{problem} Try again when the helper model answers.")
        return place

    # --- whose sessions -------------------------------------------------------------------------------------------

    async def _sessions_of(self, person: str) -> list[str]:
        """Sessions in which the person may have said enough; the transcript tells for sure."""
        marks = await (await self._memory.open()).store.learning.marks()
        found: list[str] = []
        for number, record in enumerate(self._going_on(), 1):
            known = next((m.through_seq for m in marks.get(record.session, ()) if m.pool == user_pool(person)), 0)
            enough = record.last_seq - known >= self._policy.batch_messages
            if enough and (record.owner in (None, person) or f"{record.channel}:{record.owner}" == person):
                found.append(record.session)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        return found

    async def everybody(self, since: datetime | None) -> dict[str, list[str]]:
        """The people who wait for the batch, with the sessions in which something new was said."""
        memories = await self._memory.open()
        marks = await memories.store.learning.marks()
        found: dict[str, list[str]] = {}
        for number, record in enumerate(self._going_on(), 1):
            if since is None or record.active_at >= since:
                known = {mark.pool.id: mark.through_seq for mark in marks.get(record.session, ())}
                if record.last_seq - min(known.values(), default=0) >= self._policy.batch_messages:
                    for person in await self._people(record):
                        if record.last_seq - known.get(person, 0) >= self._policy.batch_messages:
                            found.setdefault(person, []).append(record.session)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        return {one: found[one] for one in found if await self._waits(memories, one)}

    def _going_on(self) -> Iterator[SessionRecord]:
        for record in self._store.index.all():
            if record.state != "archived" and record.ended != "deleted" and record.type not in WITHOUT_PERSON:
                yield record

    async def _people(self, record: SessionRecord) -> list[str]:
        try:
            return people_in(await self._store.peek(record.session, former=record.generation > 1))
        except (StorageError, SessionGone) as error:
            log.warning("batch.not_read", session=record.session, error=str(error))
            return []

    async def _waits(self, memories: Memories, person: str) -> bool:
        """Whether a person is not learnt from at once, and wants to be at all."""
        chosen = await self._remember.choices(memories, user_pool(person))
        return chosen.max_changes > 0 and not chosen.after_reply


class BatchTimer:
    """A thing of the scheduler: starts everybody's batch when the cron expression is due, also when the daemon was off
    at that time."""

    name = "learning from the day"

    def __init__(self, batch: LearnBatch, jobs: MemoryJobs, memory: Opener, expression: str, zone: ZoneInfo) -> None:
        self._batch = batch
        self._jobs = jobs
        self._memory = memory
        self._schedule = parse_cron(expression, zone)
        self._after: datetime | None = None

    def next_due(self, now: datetime) -> datetime | None:
        if not self._batch.learns:
            return None
        return now if self._after is None else next_time(self._schedule, self._after)

    async def run_due(self, now: datetime) -> None:
        """The first time it only learns when it is due. Raises MemoryProblem: then it is tried again."""
        learning = (await self._memory.open()).store.learning
        if self._after is None:
            self._after = await learning.batch_due_after(now)
            return
        last = await learning.batch_at()
        people = await self._batch.everybody(None if last is None else last - LOOK_BACK)
        for person, sessions in people.items():
            await self._jobs.start(DAEMON, "batch", user_pool(person), asked={"sessions": sessions}, automatic=True)
        await learning.put_batch_at(now)
        self._after = now
        log.info("batch.started", people=len(people))


def _counted(job: MemoryJob, runs: list[LearnRun]) -> dict[str, int]:
    counts = dict(job.counts)
    for name, number in (
        ("added", sum(len(run.created) for run in runs)),
        ("changed", sum(len(run.updated) for run in runs)),
        ("deleted", sum(len(run.deleted) for run in runs)),
    ):
        counts[name] = counts.get(name, 0) + number
    return counts
