"""Archives and deletes sessions that are not used any more (spec sessions.md, "Clean-up")."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import time, timedelta
from typing import TYPE_CHECKING

import structlog

from sessions.cleanup import Candidate, Step, estimated_bytes, plan_cleanup
from sessions.files import StorageError
from sessions.keys import MalformedKey, parse_key
from sessions.recovery import list_transcripts
from sessions.resets import next_boundary
from sessions.session import SessionGone

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path
    from zoneinfo import ZoneInfo

    from gateway.clock import Clock
    from gateway.turns import Turns
    from sessions.files import Files
    from sessions.policy import CleanupPolicy
    from sessions.record import SessionState
    from sessions.store import SessionStore

SLICE = 50
AFTER_START = timedelta(hours=1)
STATES: tuple[SessionState, ...] = ("active", "former", "archived")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport:
    """What was done, or would be. `bytes_before` and `bytes_after` are those of transcripts and attachments;
    of a dry run the second is an estimate. `failed` sessions stay as they were, and are tried again next time."""

    dry_run: bool
    steps: tuple[Step, ...]
    bytes_before: int
    bytes_after: int
    failed: tuple[str, ...] = ()

    @property
    def freed_bytes(self) -> int:
        """Less than nothing when more was said meanwhile than was freed."""
        return self.bytes_before - self.bytes_after


@dataclass(frozen=True, slots=True)
class Measured:
    """Bytes on the disk: of each session's transcripts, and of everything with the attachments."""

    by_session: dict[str, int]
    total: int


class Cleanup:
    """The clean-up of one daemon; a thing of the scheduler. `lock` is held while files move."""

    name = "clean-up"

    def __init__(
        self,
        *,
        store: SessionStore,
        turns: Turns,
        files: Files,
        data_dir: Path,
        clock: Clock,
        policy: CleanupPolicy,
        zone: ZoneInfo,
    ) -> None:
        self._store = store
        self._turns = turns
        self._files = files
        self._data_dir = data_dir
        self._clock = clock
        self._policy = policy
        self._zone = zone
        self._due_after = clock.now()
        self._first = True
        self.lock = asyncio.Lock()

    # --- when -----------------------------------------------------------------------------------------------------

    def next_due(self, now: datetime) -> datetime | None:
        """Once a day at its time. A machine that is off at that time cleans up an hour after its start; a clock that is
        set back makes nobody wait longer than a day."""
        if self._policy.daily_at is None:
            return None
        self._due_after = min(self._due_after, now)
        at = next_boundary(time.fromisoformat(self._policy.daily_at), self._zone, self._due_after)
        return min(at, self._due_after + AFTER_START) if self._first else at

    async def run_due(self, now: datetime) -> None:
        self._first, self._due_after = False, now
        await self.run(dry_run=False)

    # --- what -----------------------------------------------------------------------------------------------------

    async def run(self, *, dry_run: bool) -> CleanupReport:
        """Cleans up as the settings say; with a limit of size until that is kept, or nothing is left to take.

        What is archived for its age now is deleted for its age tomorrow at the earliest.
        """
        async with self.lock:
            before = await self._measured()
            planned = await self._planned(before, self._policy)
            if dry_run:
                after_bytes = estimated_bytes(planned, before.total)
                return CleanupReport(
                    dry_run=True, steps=tuple(planned), bytes_before=before.total, bytes_after=after_bytes
                )
            done: list[Step] = []
            failed: list[str] = []
            by_size = self._policy.model_copy(update={"after_days": None, "delete_after_days": None})
            while planned:
                taken = [step for step in planned if await self._taken(step, failed)]
                done += taken
                planned = await self._planned(await self._measured(), by_size, failed) if taken else []
            after = await self._measured()
            report = CleanupReport(
                dry_run=False,
                steps=tuple(done),
                bytes_before=before.total,
                bytes_after=after.total,
                failed=tuple(failed),
            )
            _tell(report)
            return report

    async def _taken(self, step: Step, failed: list[str]) -> bool:
        """Whether the step was done; a session that somebody has used meanwhile stays."""
        record = step.candidate.record
        try:
            key = parse_key(record.key)
            if step.action == "delete":
                return await self._turns.discard(key, record)
            return await self._turns.archive(key, record.session, unchanged=record)
        except SessionGone:
            return False
        except (StorageError, MalformedKey) as error:
            log.warning("cleanup.not_done", session=record.session, action=step.action, error=str(error))
            failed.append(record.session)
            return False

    async def _planned(self, measured: Measured, policy: CleanupPolicy, failed: Sequence[str] = ()) -> list[Step]:
        now = self._clock.now()
        found: list[Candidate] = []
        for number, session_id in enumerate(self._worth_a_look(policy, now), 1):
            record = self._store.index.find(session_id)
            if record is not None and session_id not in failed:
                size = measured.by_session.get(session_id, 0)
                found.append(Candidate(record, size, self._turns.busy(session_id)))
            if number % SLICE == 0:
                await asyncio.sleep(0)
        return await asyncio.to_thread(plan_cleanup, found, policy, now, measured.total)

    def _worth_a_look(self, policy: CleanupPolicy, now: datetime) -> list[str]:
        """All sessions where the size is limited; else those that are old enough, which are first in the index."""
        index = self._store.index
        everything = policy.max_bytes is not None
        sessions: list[str] = []
        for state in STATES:
            days = policy.delete_after_days if state == "archived" else policy.after_days
            if everything or days is not None:
                sessions += index.oldest(state, None if everything or days is None else now - timedelta(days=days))
        return sessions

    async def _measured(self) -> Measured:
        return await asyncio.to_thread(measure, self._files, self._data_dir)


def measure(files: Files, data_dir: Path) -> Measured:
    """Blocking: looks at every folder once. Raises StorageError."""
    found = list_transcripts(files, data_dir)
    by_session: dict[str, int] = {}
    for file in (*found.named, *found.packed):
        by_session[file.session] = by_session.get(file.session, 0) + file.size
    blobs = sum(sum(files.list_sizes(folder).values()) for folder in files.folders(data_dir / "blobs"))
    return Measured(by_session, blobs + sum(by_session.values()))


def _tell(report: CleanupReport) -> None:
    if report.steps or report.failed:
        log.info(
            "cleanup.done",
            archived=sum(step.action == "archive" for step in report.steps),
            deleted=sum(step.action == "delete" for step in report.steps),
            failed=len(report.failed),
            freed_bytes=report.freed_bytes,
        )
