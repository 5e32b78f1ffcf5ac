"""What a clean-up would do: which sessions are archived, which archives are deleted, and why; pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from sessions.policy import CleanupPolicy
    from sessions.record import SessionRecord

PACKED_SHARE = 0.25
"""What an archive is taken to need of the transcript's size, before it is made."""

Action = Literal["archive", "delete"]
Reason = Literal["age", "size"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A session with the bytes its transcripts take on the disk. `busy`: something runs or waits in it."""

    record: SessionRecord
    size_bytes: int
    busy: bool = False

    @property
    def used_at(self) -> datetime:
        return used_at(self.record)

    @property
    def protected(self) -> bool:
        """Never touched: running, pinned, main (spec sessions.md, "Clean-up")."""
        record = self.record
        return self.busy or record.open_turns > 0 or record.pinned or record.type == "main"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do."""

    action: Action
    reason: Reason
    candidate: Candidate


def used_at(record: SessionRecord) -> datetime:
    """When a person last wrote in a session, or took it up or out of the archive again."""
    return max(record.active_at, record.resumed_at or record.active_at)


def plan_cleanup(candidates: Iterable[Candidate], policy: CleanupPolicy, now: datetime, total_bytes: int) -> list[Step]:
    """By age first; then, while everything together is larger than `max_bytes`, the longest unused: all are archived
    before the first archive is deleted for its size."""
    free = sorted((one for one in candidates if not one.protected), key=lambda one: (one.used_at, one.record.session))
    steps: list[Step] = []
    rest: list[Candidate] = []
    for one in free:
        action = _by_age(one, policy, now)
        if action is None:
            rest.append(one)
        else:
            steps.append(Step(action, "age", one))
    return steps + _by_size(rest, steps, policy.max_bytes, total_bytes)


def _by_age(one: Candidate, policy: CleanupPolicy, now: datetime) -> Action | None:
    unused = now - one.used_at
    if one.record.state == "archived":
        days = policy.delete_after_days
        return "delete" if days is not None and unused >= timedelta(days=days) else None
    days = policy.after_days
    return "archive" if days is not None and unused >= timedelta(days=days) else None


def _by_size(rest: Sequence[Candidate], before: Sequence[Step], max_bytes: int | None, total_bytes: int) -> list[Step]:
    if max_bytes is None:
        return []
    over = estimated_bytes(before, total_bytes) - max_bytes
    steps: list[Step] = []
    archives = [one for one in rest if one.record.state == "archived"]
    archives += [step.candidate for step in before if step.action == "archive"]
    for one in rest:
        if over > 0 and one.record.state != "archived":
            steps.append(Step("archive", "size", one))
            archives.append(one)
            over -= one.size_bytes - _packed_bytes(one)
    for one in sorted(archives, key=lambda one: (one.used_at, one.record.session)):
        if over > 0:
            steps.append(Step("delete", "size", one))
            over -= _packed_bytes(one)
    return steps


def _packed_bytes(one: Candidate) -> int:
    return one.size_bytes if one.record.state == "archived" else round(one.size_bytes * PACKED_SHARE)


def estimated_bytes(steps: Iterable[Step], total_bytes: int) -> int:
    """About what is left of `total_bytes` after the steps."""
    archived: set[str] = set()
    for step in steps:
        one = step.candidate
        if step.action == "archive":
            archived.add(one.record.session)
            total_bytes -= one.size_bytes - _packed_bytes(one)
        else:
            total_bytes -= _packed_bytes(one) if one.record.session in archived else one.size_bytes
    return total_bytes
