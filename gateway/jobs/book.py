"""All jobs: what is configured and what people have added, when they are due, and how they stand."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import structlog

from gateway.jobs.decisions import (
    ON_TIME,
    Planned,
    after_run,
    again_after_cut,
    anchor_at,
    done_with,
    latest_look,
    overlapping,
    plan_job,
    set_aside,
    start_times,
    waits_too_long,
    waits_until,
)
from gateway.jobs.runs import is_open, run_facts
from gateway.jobs.timing import next_after, zone_of
from gateway.jobs.values import Delivery, Job, Run, Trigger
from gateway.schedules import BadSchedule

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from gateway.clock import Clock
    from gateway.jobs.outbox import Outbox
    from gateway.jobs.policy import JobPolicy, JobsPolicy
    from gateway.jobs.runs import Runs
    from gateway.jobs.store import JobStore
    from gateway.turns import Turns

log = structlog.get_logger()

YIELD_EVERY = 25
Times = Sequence[tuple[datetime, Trigger]]


class NameTaken(Exception):
    """There is a job of that name already."""


class SetAside(Exception):
    """A job whose definition cannot be used on this machine; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class _Looks:
    """What a look at the clock needs of all jobs: when the first is due, and those whose times are the furthest ahead,
    by which a clock that was set back is noticed."""

    first_at: datetime | None
    furthest: tuple[Job, ...]


class JobBook:
    """The jobs, in memory and in `state.db`; what is changed is on disk first. `run_due` makes runs of what is due."""

    name = "jobs"

    def __init__(
        self,
        *,
        store: JobStore,
        runs: Runs,
        outbox: Outbox,
        turns: Turns,
        clock: Clock,
        policy: JobsPolicy,
        machine_zone: ZoneInfo,
    ) -> None:
        self._store = store
        self._runs = runs
        self._outbox = outbox
        self._turns = turns
        self._clock = clock
        self._policy = policy
        self._machine_zone = machine_zone
        self._jobs: dict[str, Job] = {}
        self._looks: _Looks | None = None
        self._skips: dict[str, Run] = {}
        self._lock = asyncio.Lock()
        self._loaded = asyncio.Event()
        self.retimed: Callable[[], None] = lambda: None

    # --- reading --------------------------------------------------------------------------------------------------

    async def all(self) -> list[Job]:
        """In the order of their names."""
        await self._loaded.wait()
        return sorted(self._jobs.values(), key=lambda job: job.policy.name)

    async def find(self, wanted: str) -> Job | None:
        """By id or name."""
        await self._loaded.wait()
        known = self._jobs.get(wanted)
        return known or next((job for job in self._jobs.values() if job.policy.name == wanted), None)

    @property
    def aside(self) -> list[str]:
        """The names of jobs that cannot be used on this machine."""
        return sorted(job.policy.name for job in self._jobs.values() if job.aside)

    def due_times(self, job: Job, count: int) -> list[datetime]:
        """The next times of a job, whether it is active or not; none of one that is set aside."""
        if job.aside:
            return []
        following = next_after(job.policy, self._machine_zone, job.anchor)
        times: list[datetime] = []
        at = job.due_at if job.active else following(self._clock.now())
        while at is not None and len(times) < count:
            times.append(at)
            at = following(at)
        return times

    def next_due(self, now: datetime) -> datetime | None:
        """When the next job is due; now when the clock was set back by days."""
        if self._looks is None:
            jobs = [job for job in self._jobs.values() if not job.aside]
            self._looks = _Looks(
                first_at=min((at for job in jobs if (at := job.next_at) is not None), default=None),
                furthest=(
                    *sorted(jobs, key=latest_look)[-1:],
                    *sorted((job for job in jobs if job.retry_at), key=lambda job: job.retry_at or now)[-1:],
                ),
            )
        return now if any(waits_too_long(job, now) for job in self._looks.furthest) else self._looks.first_at

    # --- changing -------------------------------------------------------------------------------------------------

    async def add(self, policy: JobPolicy) -> Job:
        """Raises NameTaken and JobsClosed."""
        await self._loaded.wait()
        async with self._lock:
            if any(job.policy.name == policy.name for job in self._jobs.values()):
                raise NameTaken(
                    f"There is a job called {policy.name!r} already. Choose another name, or change that one."
                )
            now = self._clock.now()
            job = Job(id=self._clock.new_id(), origin="api", policy=policy, created_at=now, anchor=now)
            return await self._keep(self._timed(job))

    async def change(self, job_id: str, policy: JobPolicy) -> Job | None:
        """Another definition; it counts anew from now. None: the job has gone."""
        async with self._lock:
            job = self._jobs.get(job_id)
            if job is None:
                return None
            if any(other.policy.name == policy.name and other.id != job_id for other in self._jobs.values()):
                raise NameTaken(f"There is a job called {policy.name!r} already. Choose another name.")
            changed = _anew(job, policy, anchor=self._clock.now())
            return await self._keep(self._timed(changed))

    async def pause(self, job_id: str, paused: bool) -> Job | None:
        """Stops it from running by itself, or lets it again, also after too many failures. Nothing is caught up.

        Raises SetAside.
        """
        async with self._lock:
            job = self._jobs.get(job_id)
            if job is None:
                return None
            _check_usable(job)
            changed = dataclasses.replace(job, paused=paused)
            if not paused:
                changed = self._timed(dataclasses.replace(changed, failures=0, retry_at=None, disabled=None))
            return await self._keep(changed)

    async def remove(self, job_id: str) -> None:
        """The job; the records of its runs stay, and a run that goes on ends."""
        async with self._lock:
            await self._store.save(removed=[job_id])
            self._replace((), [job_id])

    async def run_now(self, job: Job) -> Run:
        """A run by hand, beside the schedule. Raises SetAside."""
        _check_usable(job)
        now = self._clock.now()
        run = self._run(job, now, now, "manual")
        await self._store.save(runs=[run])
        self._runs.enter([run])
        return run

    async def _keep(self, job: Job) -> Job:
        await self._store.save(jobs=[job])
        self._replace([job])
        self.retimed()
        return job

    def _replace(self, jobs: Sequence[Job], removed: Sequence[str] = ()) -> None:
        """What is on disk is known here, too; when the next job is due is looked for anew."""
        self._jobs.update({job.id: job for job in jobs})
        for job_id in removed:
            self._jobs.pop(job_id, None)
        self._looks = None

    def _timed(self, job: Job) -> Job:
        """Due next after now; a job that is never due any more is told, since it would be silent."""
        now = self._clock.now()
        due = next_after(job.policy, self._machine_zone, job.anchor)(now)
        if due is None:
            log.warning("job.never_due", job=job.policy.name, do="Its time has passed: set another, or remove it.")
        return dataclasses.replace(job, due_at=due, last_due=now)

    # --- start ----------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Reads the jobs, brings them up to the configuration, and settles runs that were open. Raises JobsClosed."""
        stored = {job.id: job for job in await self._store.jobs()}
        known = dict(stored)
        now = self._clock.now()
        by_name = {job.policy.name: job for job in known.values()}
        configured = {policy.name: policy for policy in self._policy.scheduled}
        changed: list[Job] = []
        for name, policy in configured.items():
            job = by_name.get(name)
            if job is None:
                job = Job(id=self._clock.new_id(), origin="config", policy=policy, created_at=now, anchor=now)
                changed.append(self._timed_or_aside(job))
            elif job.aside or job.policy != policy or job.origin != "config":
                job = _anew(dataclasses.replace(job, origin="config"), policy, anchor=job.anchor)
                changed.append(self._timed_or_aside(job))
        removed = [job.id for job in known.values() if job.origin == "config" and job.policy.name not in configured]
        known.update({job.id: job for job in changed})
        for number, job in enumerate(list(known.values()), 1):
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            known[job.id] = self._as_of(job, now)
        changed = [job for job in known.values() if not job.aside and job is not stored.get(job.id)]
        await self._store.save(jobs=changed, removed=removed)
        self._replace(list(known.values()), removed)
        for job in known.values():
            if job.aside:
                log.warning("job.set_aside", job=job.policy.name, why=job.disabled)
        self._loaded.set()

    def _timed_or_aside(self, job: Job) -> Job:
        try:
            return self._timed(job)
        except BadSchedule as error:
            return set_aside(job, str(error))

    def _as_of(self, job: Job, now: datetime) -> Job:
        """A job that was kept, on this machine at this time: a cron expression that is not due yet is due by the zone
        of today, and what has no schedule here is set aside."""
        if job.aside:
            return job
        try:
            due = waits_until(job, now, next_after(job.policy, self._machine_zone, job.anchor))
        except BadSchedule as error:
            return set_aside(job, str(error))
        return job if due == job.due_at else dataclasses.replace(job, due_at=due)

    async def recover(self, opened: Sequence[Run]) -> None:
        """Runs of jobs that were open when the daemon ended: finished, taken up again, or left."""
        for run in opened:
            if run.status == "waiting":
                await self._still_due(run)
            else:
                await self._cut(run)

    async def _still_due(self, run: Run) -> None:
        job = self._jobs.get(run.owner)
        late = self._clock.now() - run.due_at > ON_TIME
        if job is None or (late and not again_after_cut(job.policy.missed)):
            why = "The daemon was down when it was due."
            await self._store.save(runs=[dataclasses.replace(run, status="skipped", error=why, ended_at=run.due_at)])
        else:
            self._runs.enter([run])

    async def _cut(self, run: Run) -> None:
        turn, result = await self._runs.found(run)
        if turn is not None and result is not None:
            await self.settle(self._runs.finished(run, turn, result))
            return
        now = self._clock.now()
        why = "The daemon ended while it was going."
        cut = dataclasses.replace(run, status="interrupted", error=why, ended_at=now, turn=turn, text=None)
        job = self._jobs.get(run.owner)
        if job is not None and again_after_cut(job.policy.missed):
            again = dataclasses.replace(
                self._run(job, run.due_at, now, "again"), request=run.request, attempt=run.attempt + 1
            )
            await self._store.save(runs=[cut, again])
            self._runs.enter([again])
            return
        await self._store.save(runs=[cut])
        if turn is not None:
            await self._turns.abandon(turn, why)

    # --- due ------------------------------------------------------------------------------------------------------

    async def run_due(self, now: datetime) -> None:
        """Makes runs of what is due. The runs and the jobs' next times are written together, so that a crash neither
        loses nor doubles one. Raises JobsClosed."""
        async with self._lock:
            due: list[tuple[Job, Times]] = []
            changed: list[Job] = []
            notes: list[Run] = []
            for number, job in enumerate(self._jobs.values(), 1):
                if number % YIELD_EVERY == 0:
                    await asyncio.sleep(0)  # a thousand jobs at once do not hold up replies
                if job.aside or (not waits_too_long(job, now) and (job.next_at is None or job.next_at > now)):
                    continue
                plan = plan_job(job, now, next_after(job.policy, self._machine_zone, anchor_at(job, now)))
                if plan is not None:
                    changed.append(plan.job)
                    due.extend([(plan.job, plan.runs)] if plan.runs else ())
                    notes.extend([self._missed(plan, now)] if plan.left_out else ())
            if not changed:
                return
            entered, cancelled, skipped = self._admitted(due, now)
            await self._store.save(jobs=changed, runs=[*entered, *notes, *skipped])
            self._replace(changed)
            self._runs.enter(entered)
        for run in cancelled:
            await self._runs.cancel(run, "The next run of the job was due.")

    def _admitted(self, due: Sequence[tuple[Job, Times]], now: datetime) -> tuple[list[Run], list[Run], list[Run]]:
        """(runs to enter, open runs to cancel, records of what is skipped), as `overlap` of each job says. Runs of one
        job that are caught up together go one after the other."""
        count = sum(len(times) for _, times in due)
        starts = iter(start_times(now, count, self._policy.max_parallel, self._policy.spread_s))
        entered: list[Run] = []
        cancelled: list[Run] = []
        skipped: list[Run] = []
        open_runs = self._runs.open_by_owner("job")
        for job, times in due:
            opened = open_runs.get(job.id, [])
            verdict = overlapping(job.policy.overlap, opened)
            if verdict == "skip":
                skipped.append(self._left_out(job, times[0][0], now, len(times), "The run before it was still going."))
                continue
            self._skips.pop(job.id, None)
            entered.extend(self._run(job, due_at, next(starts), trigger) for due_at, trigger in times)
            cancelled.extend(opened if verdict == "cancel" else ())
        return entered, cancelled, skipped

    def _run(self, job: Job, due_at: datetime, start_at: datetime, trigger: Trigger) -> Run:
        run_id = self._clock.new_id()
        policy = job.policy
        isolated = policy.session == "isolated"
        return Run(
            id=run_id,
            kind="job",
            owner=job.id,
            name=policy.name,
            due_at=due_at,
            start_at=start_at,
            trigger=trigger,
            key=f"cron:{job.id}" if policy.session in ("isolated", "continuing") else policy.session,
            request=f"job-{run_id}",
            agent=policy.agent,
            model=policy.model,
            attempt=job.failures + 1,
            own_session=isolated,
            timeout_s=policy.timeout_s,
            deliver=policy.deliver,
        )

    def _missed(self, plan: Planned, now: datetime) -> Run:
        why = f"Due while the daemon was down or asleep (missed: {plan.job.policy.missed})."
        return self._left_out(plan.job, plan.since or now, now, plan.left_out, why)

    def _left_out(self, job: Job, due_at: datetime, now: datetime, count: int, why: str) -> Run:
        """The record of due times that are not run for. What is left out for the same reason, without a run between,
        is one record."""
        before = self._skips.get(job.id)
        if before is not None and before.error == why:
            run = dataclasses.replace(before, ended_at=now, skipped=before.skipped + count)
        else:
            run = self._run(job, due_at, now, "schedule")
            run = dataclasses.replace(run, status="skipped", ended_at=now, skipped=count, error=why, own_session=False)
        self._skips[job.id] = run
        return run

    # --- the runs' owner ------------------------------------------------------------------------------------------

    async def text_of(self, run: Run) -> str:
        """The job's message as it is now. Raises BadTemplate."""
        job = self._jobs.get(run.owner)
        if job is None:
            raise ValueError("The job was removed before it ran.")
        source = job.policy.message
        if "{" not in source:
            return source
        from gateway.jobs.templates import render

        recent = await self._store.runs("job", job.id, limit=20)
        last = next((one for one in recent if one.id != run.id and not is_open(one)), None)
        zone = zone_of(job.policy, self._machine_zone)
        values: dict[str, Any] = {
            "now": self._clock.now().astimezone(zone),
            "job": {"id": job.id, "name": job.policy.name},
            "last_run": None if last is None else _last_run(last, zone),
        }
        return await asyncio.to_thread(render, source, values)

    async def settle(self, run: Run) -> None:
        """The end of a run, the job after it and the delivery of its reply: in one transaction."""
        async with self._lock:
            job = self._jobs.get(run.owner)
            deliveries: list[Delivery] = []
            if run.status == "ok" and run.deliver is not None:
                deliveries.append(
                    self._outbox.draft(
                        run.deliver, key=run.key, kind="job.reply", run=run.id, turn=run.turn, facts=run_facts(run)
                    )
                )
            jobs: list[Job] = []
            removed: list[str] = []
            if job is not None and not job.aside and run.trigger != "manual":
                after = after_run(job, run, self._clock.now())
                if after.disabled and not job.disabled:
                    log.warning("job.disabled", job=job.policy.name, why=after.disabled)
                    deliveries.extend(self._notice(after, run))
                if done_with(after):
                    removed.append(job.id)
                else:
                    jobs.append(after)
            await self._store.save(jobs=jobs, removed=removed, runs=[run], deliveries=deliveries)
            self._replace(jobs, removed)
            self.retimed()
        if deliveries:
            self._outbox.wake()

    def _notice(self, job: Job, run: Run) -> list[Delivery]:
        if job.policy.deliver is None:
            return []
        name = job.policy.name
        text = f"The job {name} is disabled: {job.disabled}. Let it run again with: sessiond jobs resume {name}"
        return [
            self._outbox.draft(
                job.policy.deliver, key=run.key, kind="job.disabled", notice=text, facts={"job": job.policy.name}
            )
        ]


def _anew(job: Job, policy: JobPolicy, *, anchor: datetime) -> Job:
    """A job with another definition; what went wrong with the one before is forgotten."""
    return dataclasses.replace(job, policy=policy, anchor=anchor, failures=0, retry_at=None, disabled=None, aside=False)


def _check_usable(job: Job) -> None:
    """Raises SetAside."""
    if job.aside:
        raise SetAside(f"The job {job.policy.name} cannot run: {job.disabled}")


def _last_run(run: Run, zone: ZoneInfo) -> dict[str, Any]:
    return {
        "status": run.status,
        "due_at": run.due_at.astimezone(zone),
        "ended_at": None if run.ended_at is None else run.ended_at.astimezone(zone),
        "error": run.error,
    }
