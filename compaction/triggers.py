"""When a compaction is due, and when it must wait."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from sessions.entries import format_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compaction.policy import CompactionPolicy
    from sessions.entries import JsonObject

Outcome = Literal["done", "failed", "outdated"]
OUTCOMES: tuple[Outcome, ...] = ("done", "failed", "outdated")
RETRIES = (timedelta(seconds=60), timedelta(minutes=5), timedelta(minutes=15))
LITTLE = 0.10
MAX_FAILURES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionState:
    """What a session's index record keeps of its compactions; it outlives restarts.

    `outcome` and `at`: what the last attempt came to, and when. `blocked_below`: after two compactions that freed
    little, none is made until the context has this many tokens. `outdated`: summaries thrown away in a row, because the
    conversation had changed under them.
    """

    outcome: Outcome | None = None
    at: datetime | None = None

    failures: int = 0
    retry_at: datetime | None = None
    error: str | None = None
    messages_at_last: int = 0
    little: int = 0
    blocked_below: int = 0
    outdated: int = 0

    def to_json(self) -> JsonObject:
        return {
            "outcome": self.outcome,
            "at": None if self.at is None else format_time(self.at),
            "failures": self.failures,
            "retry_at": None if self.retry_at is None else format_time(self.retry_at),
            "error": self.error,
            "messages_at_last": self.messages_at_last,
            "little": self.little,
            "blocked_below": self.blocked_below,
            "outdated": self.outdated,
        }

    @staticmethod
    def from_json(raw: Mapping[str, Any] | None) -> CompactionState:
        raw = raw or {}
        retry_at, at, outcome = raw.get("retry_at"), raw.get("at"), raw.get("outcome")
        return CompactionState(
            outcome=outcome if outcome in OUTCOMES else None,
            at=None if at is None else parse_time(at),
            failures=int(raw.get("failures") or 0),
            retry_at=None if retry_at is None else parse_time(retry_at),
            error=raw.get("error"),
            messages_at_last=int(raw.get("messages_at_last") or 0),
            little=int(raw.get("little") or 0),
            blocked_below=int(raw.get("blocked_below") or 0),
            outdated=int(raw.get("outdated") or 0),
        )

    def failed(self, error: str, now: datetime) -> CompactionState:
        """After a failure: 60 s, 5 min, then 15 min until the next attempt."""
        wait = RETRIES[min(self.failures, len(RETRIES) - 1)]
        return dataclasses.replace(
            self, outcome="failed", at=now, failures=self.failures + 1, retry_at=now + wait, error=error
        )

    def thrown_away(self, now: datetime) -> CompactionState:
        """After a summary of what is no longer so: no fault of the model's, but not to be tried at once."""
        return dataclasses.replace(
            self, outcome="outdated", at=now, retry_at=now + RETRIES[0], outdated=self.outdated + 1
        )

    def in_vain(self, *, tokens: int, window: int) -> CompactionState:
        """After a summary that would have been no shorter: no failure, but not to be tried before there is more."""
        return dataclasses.replace(self, blocked_below=int(tokens + LITTLE * window))

    def still_cooling(self, before: CompactionState) -> CompactionState:
        """With the failures of the state before, and the time of the next attempt."""
        return dataclasses.replace(self, failures=before.failures, retry_at=before.retry_at, error=before.error)

    def succeeded(self, *, before: int, after: int, messages: int, window: int, now: datetime) -> CompactionState:
        """Two in a row that free less than 10 % stop the trigger until the context has grown by 10 % of the window."""
        little = self.little + 1 if before - after < LITTLE * before else 0
        blocked = int(after + LITTLE * window) if little >= 2 else 0
        return CompactionState(outcome="done", at=now, messages_at_last=messages, little=little, blocked_below=blocked)


def is_due(
    policy: CompactionPolicy, state: CompactionState, *, tokens: int, window: int, messages: int, now: datetime
) -> str | None:
    """Why a compaction is due (`threshold`, `messages`), or None. `tokens`: size of the next prompt.

    A next attempt further away than any wait is of a clock that was ahead, and is now.
    """
    cooling = state.retry_at is not None and now < state.retry_at <= now + RETRIES[-1]
    if not policy.enabled or cooling:
        return None
    since = messages - state.messages_at_last
    if since < policy.min_messages or tokens < state.blocked_below:
        return None
    if tokens >= policy.threshold * window:
        return "threshold"
    return "messages" if policy.every_messages is not None and since >= policy.every_messages else None
