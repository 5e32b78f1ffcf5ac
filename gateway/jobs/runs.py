"""Runs of jobs and webhooks: started in order within their limits, each carried to an end that is on disk."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from gateway.clock import within
from gateway.jobs.store import JobsClosed
from gateway.jobs.values import OPEN, Run
from gateway.models.base import UnknownModel
from gateway.turn import Incoming
from gateway.turns import MessageTooLong, Stopping
from sessions.entries import UserEntry
from sessions.files import StorageError
from sessions.keys import SessionKey, parse_key
from sessions.queues import QueueFull

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from decimal import Decimal

    from gateway.clock import Clock
    from gateway.jobs.policy import JobsPolicy
    from gateway.jobs.store import JobStore
    from gateway.jobs.values import RunKind
    from gateway.turn import Turn, TurnResult
    from gateway.turns import Turns
    from sessions.session import Session

log = structlog.get_logger()

RETRY_S = 5.0
STOPPING_S = 10.0
SPOKEN_S = 2.0
LONGEST_SPREAD = timedelta(seconds=60)
RESTS_S = 0.4
"""A model that answers slower than this is not slowed down by giving way."""


class Owner(Protocol):
    """What becomes of the runs of one kind."""

    async def text_of(self, run: Run) -> str:
        """What is said. Raises ValueError when it cannot be made."""
        ...

    async def settle(self, run: Run) -> None:
        """Writes the end of a run, with what follows from it. Raises JobsClosed."""
        ...


class Runs:
    """All runs that are open. `run` starts them until it is cancelled; what is cut then stays open on disk."""

    name = "runs"

    def __init__(
        self,
        *,
        store: JobStore,
        turns: Turns,
        clock: Clock,
        policy: JobsPolicy,
        cost: Callable[[TurnResult], Decimal | None],
    ) -> None:
        self._store = store
        self._turns = turns
        self._clock = clock
        self._limits: dict[RunKind, int] = {"job": policy.max_parallel, "hook": policy.hooks_parallel}
        self._cost = cost
        self.owners: dict[RunKind, Owner] = {}
        self._waiting: dict[RunKind, list[Run]] = {kind: [] for kind in self._limits}
        self._going: dict[str, Run] = {}
        self._turn_of: dict[str, Turn] = {}
        self._cancelled: dict[str, str] = {}
        self._ends: dict[str, asyncio.Event] = {}
        self._wake = asyncio.Event()
        self._next_start: datetime | None = None
        self._spoken_at = self._job_started_at = -math.inf
        self.retimed: Callable[[], None] = lambda: None

    # --- in -------------------------------------------------------------------------------------------------------

    def enter(self, runs: Sequence[Run]) -> None:
        """Puts runs that are on disk in line."""
        for run in runs:
            if run.id not in self._ends:
                self._ends[run.id] = asyncio.Event()
                self._waiting[run.kind].append(run)
        self._wake.set()

    @property
    def going(self) -> int:
        return len(self._going)

    @property
    def waiting(self) -> int:
        return sum(len(runs) for runs in self._waiting.values())

    def open_by_owner(self, kind: RunKind) -> dict[str, list[Run]]:
        """Runs that wait or go on, of each job or webhook."""
        found: dict[str, list[Run]] = {}
        for run in (*self._going.values(), *self._waiting[kind]):
            if run.kind == kind:
                found.setdefault(run.owner, []).append(run)
        return found

    def spoken(self, session: Session) -> None:
        """A hook for the turns: somebody waits for a reply. For a moment runs of jobs start one by one."""
        said = next((entry for entry in reversed(session.entries) if isinstance(entry, UserEntry)), None)
        if said is not None and said.source is None:
            self._spoken_at = self._clock.monotonic()

    async def ended(self, run_id: str) -> None:
        """Waits for the end of a run; returns at once when it is not open."""
        end = self._ends.get(run_id)
        if end is not None:
            await end.wait()

    async def cancel(self, run: Run, why: str) -> None:
        """Ends a run as interrupted: its reply is stopped, or it never starts."""
        if run in self._waiting[run.kind]:
            self._waiting[run.kind].remove(run)
            await self._end(dataclasses.replace(run, status="interrupted", error=why))
            return
        self._cancelled[run.id] = why
        turn = self._turn_of.get(run.id)
        if turn is not None:
            await self._turns.stop(turn)

    # --- the loop -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                self._start_ready(group)
                self.retimed()
                await self._wake.wait()

    def next_due(self, now: datetime) -> datetime | None:
        """When the next run may start that waits for its time; after a clock was set back, no later than ever."""
        if self._next_start is not None:
            self._next_start = min(self._next_start, now + LONGEST_SPREAD)
        return self._next_start

    async def run_due(self, now: datetime) -> None:
        self._next_start = None
        self._wake.set()

    def _start_ready(self, group: asyncio.TaskGroup) -> None:
        """Starts what may start, without a look at those who wait where all places are taken."""
        now = self._clock.now()
        later: list[datetime] = []
        for kind in self._waiting:
            places = self._limits[kind] - sum(run.kind == kind for run in self._going.values())
            rest_s = self._rest_s() if kind == "job" and places else 0.0
            if rest_s:
                later.append(now + timedelta(seconds=rest_s))
            elif places > 0:
                later += self._start_some(kind, places, now, group)
        self._next_start = min(later, default=None)

    def _start_some(self, kind: RunKind, places: int, now: datetime, group: asyncio.TaskGroup) -> list[datetime]:
        """Starts the first that may start; when others may that were looked at. Runs of one session go one after the
        other."""
        keys = {run.key for run in self._going.values()}
        later: list[datetime] = []
        left: list[Run] = []
        waiting = iter(self._waiting[kind])
        for run in waiting:
            early = now < run.start_at <= now + LONGEST_SPREAD  # further ahead: the clock was, when that was decided
            if early or run.key in keys:
                later.extend([run.start_at] if early else ())
                left.append(run)
            else:
                self._start(run, group)
                places -= 1
            keys.add(run.key)
            rest_s = self._rest_s() if kind == "job" else 0.0
            if not places or rest_s:
                later.extend([now + timedelta(seconds=rest_s)] if places else ())
                break
        self._waiting[kind] = [*left, *waiting]
        return later

    def _start(self, run: Run, group: asyncio.TaskGroup) -> None:
        if run.kind == "job":
            self._job_started_at = self._clock.monotonic()
        self._going[run.id] = run
        group.create_task(self._carry(run), name=f"{run.kind} {run.name}")

    def _rest_s(self) -> float:
        """Seconds until the next run of a job may start: while somebody is answered each place rests between two."""
        ticks = self._clock.monotonic()
        if ticks - self._spoken_at > SPOKEN_S:
            return 0.0
        return max(0.0, self._job_started_at + RESTS_S / self._limits["job"] - ticks)

    async def _carry(self, run: Run) -> None:
        """A run from its start to its end."""
        try:
            started = dataclasses.replace(run, status="running", started_at=run.started_at or self._clock.now())
            self._going[run.id] = started
            ended = await self._performed(started)
        except Stopping:
            # its row stays open: the next start takes it up, or marks it interrupted
            return
        except Exception as error:
            log.exception("run.failed", run=run.id, name=run.name)
            why = f"The run failed inside sessiond ({type(error).__name__}). The log has the details."
            ended = dataclasses.replace(run, status="error", error=why)
        finally:
            self._turn_of.pop(run.id, None)
        try:
            await self._end(ended)
        finally:
            self._going.pop(run.id, None)
            self._wake.set()

    async def _performed(self, run: Run) -> Run:
        """Says it, and waits for the reply. Raises Stopping."""
        deadline = self._clock.monotonic() + run.timeout_s
        try:
            text = await self.owners[run.kind].text_of(run)
            await self._written(run)
            turn = await self._accepted(run, text, deadline)
        except (ValueError, MessageTooLong, UnknownModel) as error:
            return dataclasses.replace(run, status="error", error=str(error))
        except (QueueFull, StorageError) as error:
            return dataclasses.replace(run, status="timeout", error=str(error))
        run = dataclasses.replace(run, turn=turn.id, session=turn.record.session, text=None)
        self._going[run.id], self._turn_of[run.id] = run, turn
        await self._written(run)
        if run.id in self._cancelled:
            await self._turns.stop(turn)
        if not await self._done(turn, max(0.0, deadline - self._clock.monotonic())):
            await self._turns.stop(turn)
            await self._done(turn, STOPPING_S)
            why = f"No reply within {run.timeout_s:g} s."
            return self._with_result(dataclasses.replace(run, status="timeout", error=why), turn.result)
        assert turn.result is not None  # noqa: S101
        return self._with_result(self._judged(run, turn.result), turn.result)

    async def _done(self, turn: Turn, seconds: float) -> bool:
        """Whether a turn ends within the time."""
        try:
            await within(self._clock, seconds, turn.done())
        except TimeoutError:
            return False
        return True

    async def _accepted(self, run: Run, text: str, deadline: float) -> Turn:
        """The turn of the run's message: the one that a crash has cut goes on. A full queue or disk is waited for."""
        key = key_of(run)
        while True:
            known = await self._turns.turn_of(key, run.request)
            if known is not None:
                turn = await self._turns.resume(known)
                if turn is not None:
                    return turn
            incoming = Incoming(
                text=text,
                request_id=run.request,
                request_sha256=hashlib.sha256(run.request.encode()).hexdigest(),
                model=run.model,
                source=f"{run.kind}:{run.id}",
                queue="followup",
                commands=False,
                fresh=run.own_session,
            )
            try:
                return await self._turns.start(key, incoming)
            except (QueueFull, StorageError) as error:
                if self._clock.monotonic() + RETRY_S > deadline:
                    raise
                log.warning("run.not_started", run=run.id, name=run.name, error=str(error), retry_s=RETRY_S)
                await self._clock.sleep(RETRY_S)

    def _judged(self, run: Run, result: TurnResult) -> Run:
        if run.id in self._cancelled:
            return dataclasses.replace(run, status="interrupted", error=self._cancelled[run.id])
        return judged(run, result)

    def _with_result(self, run: Run, result: TurnResult | None) -> Run:
        if result is None:
            return run
        cost = self._cost(result)
        return dataclasses.replace(
            run,
            usage=None if result.usage is None else result.usage.to_json(),
            cost=None if cost is None else str(cost),
        )

    async def _written(self, run: Run) -> None:
        """On disk, however long the disk takes."""
        while True:
            try:
                return await self._store.save(runs=[run])
            except JobsClosed as error:
                await self._pause(run, error)

    async def _end(self, run: Run) -> None:
        ended = dataclasses.replace(run, ended_at=self._clock.now(), text=None)
        while True:
            try:
                await self.owners[run.kind].settle(ended)
                break
            except JobsClosed as error:
                await self._pause(run, error)
        log.info("run.ended", kind=run.kind, name=run.name, run=run.id, status=run.status, error=run.error)
        self._cancelled.pop(run.id, None)
        end = self._ends.pop(run.id, None)
        if end is not None:
            end.set()

    async def _pause(self, run: Run, error: Exception) -> None:
        log.warning("run.not_written", run=run.id, error=str(error), retry_s=RETRY_S)
        await self._clock.sleep(RETRY_S)

    # --- after a crash --------------------------------------------------------------------------------------------

    async def found(self, run: Run) -> tuple[str | None, TurnResult | None]:
        """(turn, result) of a run that was open when the daemon ended, as its transcript tells."""
        known = await self._turns.turn_of(key_of(run), run.request)
        if known is None:
            return None, None
        return known, await self._turns.result_of(known)

    def finished(self, run: Run, turn: str, result: TurnResult) -> Run:
        """A run whose reply was on disk before its end was."""
        known = dataclasses.replace(run, turn=turn, session=result.session, ended_at=self._clock.now(), text=None)
        return self._with_result(judged(known, result), result)


def judged(run: Run, result: TurnResult) -> Run:
    """How a run ended whose turn has ended."""
    if result.error_code == "stopped" or result.finish in ("stopped", "interrupted"):
        return dataclasses.replace(run, status="interrupted", error="It was stopped.")
    if result.failed:
        return dataclasses.replace(run, status="error", error=result.error)
    if result.finish == "incomplete":
        return dataclasses.replace(run, status="error", error="The model broke off in the middle of its reply.")
    return dataclasses.replace(run, status="ok")


def key_of(run: Run) -> SessionKey:
    """The key of a run's session; keys of jobs and webhooks do not name their agent."""
    key = parse_key(run.key)
    return dataclasses.replace(key, agent=run.agent) if key.type in ("cron", "hook") else key


def is_open(run: Run) -> bool:
    return run.status in OPEN


def run_facts(run: Run) -> dict[str, Any]:
    """What a receiver is told of a run."""
    return {"run": run.id, run.kind: run.name, "session": run.session, "status": run.status}
