"""What is done with jobs that are due, runs that were cut and runs that failed: pure decisions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from gateway.jobs.values import FAILED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gateway.jobs.policy import Missed, Overlap
    from gateway.jobs.values import Job, Run, Trigger

# the first due time after an instant; None: never again
NextAfter = Callable[[datetime], datetime | None]

ON_TIME = timedelta(seconds=60)
CAUGHT_UP = 5
SET_BACK = timedelta(days=1)
RETRIES = tuple(timedelta(seconds=s) for s in (30, 60, 300, 900, 3600))
GIVEN_UP_AFTER = 10
QUEUED = 5
DELIVERY_WAITS_S = (5, 15, 60, 120, 300, 600, 900)
LONGEST_WAIT_S = 3600
LONGEST_WAIT = timedelta(seconds=LONGEST_WAIT_S * 1.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What a job runs now: due times with why, oldest first. `left_out` due times are not run for; `noted`: that is
    worth a record. `following` is the next due time."""

    runs: tuple[tuple[datetime, Trigger], ...]
    left_out: int
    noted: bool
    following: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A job after a look at the clock, and what it runs now. `left_out` due times since `since` are worth a record."""

    job: Job
    runs: tuple[tuple[datetime, Trigger], ...] = ()
    left_out: int = 0
    since: datetime | None = None


def plan_job(job: Job, now: datetime, next_after: NextAfter) -> Planned | None:
    """What a look at the clock means for a job; None: nothing.

    While its last run has failed, it waits for the retry, which stands for all that is due meanwhile. After the clock
    was set back by days, it counts anew from now: what was waited for was a mistake of the clock. `next_after` counts
    from `anchor_at`.
    """
    if set_back(job, now):
        return Planned(
            job=dataclasses.replace(
                job, due_at=next_after(now), last_due=None, retry_at=None, anchor=anchor_at(job, now)
            )
        )
    if job.retry_at is not None and job.retry_at - now > RETRIES[-1]:
        return Planned(job=dataclasses.replace(job, retry_at=now + RETRIES[-1]))
    if job.next_at is None or job.next_at > now:
        return None
    plan = None if job.due_at is None or job.due_at > now else due_now(job.due_at, now, next_after, job.policy.missed)
    moved = job if plan is None else dataclasses.replace(job, due_at=plan.following, last_due=now)
    if job.retry_at is not None:
        return Planned(job=dataclasses.replace(moved, retry_at=None), runs=((job.retry_at, "retry"),))
    assert plan is not None  # noqa: S101
    return Planned(job=moved, runs=plan.runs, left_out=plan.left_out if plan.noted else 0, since=job.due_at)


def due_now(due_at: datetime, now: datetime, next_after: NextAfter, missed: Missed) -> Due:
    """Everything due from `due_at` to `now`. What is a minute old was missed: the daemon was down, or asleep."""
    times, exact = _recent(due_at, now, next_after)
    following = next_after(max(times[-1], now))
    on_time = now - times[-1] <= ON_TIME
    late = times[:-1] if on_time else times
    chosen = _chosen(late, missed, covered=on_time)
    runs: list[tuple[datetime, Trigger]] = [(at, "missed") for at in chosen]
    if on_time:
        runs.append((times[-1], "schedule"))
    left_out = len(late) - len(chosen)
    return Due(
        runs=tuple(runs),
        left_out=left_out,
        noted=left_out > 0 and (missed == "all" or not exact or now - late[0] > ON_TIME),
        following=following,
    )


def _chosen(late: Sequence[datetime], missed: Missed, *, covered: bool) -> Sequence[datetime]:
    match missed:
        case "skip":
            return ()
        case "once":
            return () if covered else late[-1:]
        case "all":
            return late[-CAUGHT_UP:]


def _recent(due_at: datetime, now: datetime, next_after: NextAfter) -> tuple[list[datetime], bool]:
    """The newest due times up to `now`, and whether these are all: of a job that was due 100,000 times while a
    laptop slept only the last ones are looked for."""
    span = timedelta(minutes=1)
    while True:
        start = now - span
        if start <= due_at:
            return [due_at, *_between(due_at, now, next_after)], True
        times = list(_between(start, now, next_after))
        if len(times) > CAUGHT_UP:
            return times, False
        span *= 4


def _between(after: datetime, until: datetime, next_after: NextAfter) -> Iterator[datetime]:
    at = next_after(after)
    while at is not None and at <= until:
        yield at
        at = next_after(at)


def set_back(job: Job, now: datetime) -> bool:
    """Whether the clock was set back so far that waiting for it would be wrong: it had been wrong before."""
    return latest_look(job) - now > SET_BACK


def latest_look(job: Job) -> datetime:
    """The latest time at which a job was certainly looked at: what it waits for was found by the clock of then."""
    return max(job.anchor, job.last_due or job.anchor)


def waits_too_long(job: Job, now: datetime) -> bool:
    """Whether it waits by a clock that was wrong, for its schedule or for a retry."""
    return set_back(job, now) or (job.retry_at is not None and job.retry_at - now > RETRIES[-1])


def anchor_at(job: Job, now: datetime) -> datetime:
    """From where spans count; what was made while the clock was ahead counts from now."""
    return min(job.anchor, now)


def waits_until(job: Job, now: datetime, next_after: NextAfter) -> datetime | None:
    """What a job waits for that is not due yet, named anew: the zone, what is known of it, or the clock may have
    changed since. What was dealt with before a clock was set back stays dealt with."""
    if job.due_at is None or job.due_at <= now or set_back(job, now):
        return job.due_at
    return next_after(max(now, job.last_due or now))


def set_aside(job: Job, why: str) -> Job:
    """A job that cannot be used on this machine; what is on the disk is not touched."""
    return dataclasses.replace(
        job, aside=True, disabled=f"{why.rstrip('.')}. Mend what is missing on this machine, or define the job anew."
    )


def start_times(now: datetime, count: int, at_once: int, spread_s: float) -> list[datetime]:
    """When runs that are due together start: as many as may run do so now, the others over a few seconds."""
    later = max(0, count - at_once)
    return [now + timedelta(seconds=spread_s * max(0, n - at_once + 1) / max(1, later)) for n in range(count)]


def overlapping(rule: Overlap, open_runs: Sequence[Run]) -> Literal["start", "skip", "cancel"]:
    """What becomes of a run that is due while others of its job are open. Queued runs start one after the other."""
    if not open_runs or (rule == "queue" and len(open_runs) <= QUEUED):
        return "start"
    return "cancel" if rule == "cancel" else "skip"


def after_run(job: Job, run: Run, now: datetime) -> Job:
    """The job after one of its runs: retried after a failure, later each time, and disabled after ten in a row."""
    if run.status == "ok":
        return dataclasses.replace(job, failures=0, retry_at=None)
    if run.status not in FAILED:
        return job
    failures = job.failures + 1
    if failures < GIVEN_UP_AFTER:
        wait = RETRIES[min(failures, len(RETRIES)) - 1]
        return dataclasses.replace(job, failures=failures, retry_at=now + wait)
    why = f"{failures} runs in a row have failed, the last one with: {run.error or run.status}"
    return dataclasses.replace(job, failures=failures, retry_at=None, disabled=why[:1000])


def done_with(job: Job) -> bool:
    """Whether a job is to be removed: it was for one run, and has had it."""
    return job.policy.delete_after_run and job.retry_at is None and job.disabled is None


def again_after_cut(missed: Missed) -> bool:
    """Whether a run that a crash or a stop has cut is taken up again."""
    return missed != "skip"


def delivery_wait_s(attempts: int, asked_s: float | None, jitter: float) -> float:
    """Seconds until the next attempt, after `attempts` of them; `jitter` from 0 to 1 adds up to a tenth."""
    step = DELIVERY_WAITS_S[min(attempts, len(DELIVERY_WAITS_S)) - 1]
    return min(LONGEST_WAIT_S, max(step, asked_s or 0)) * (1 + jitter / 10)
