"""When a compaction is due, and when it must wait."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sessions.entries import format_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compaction.policy import CompactionPolicy
    from sessions.entries import JsonObject

RETRIES = (timedelta(seconds=60), timedelta(minutes=5), timedelta(minutes=15))
LITTLE = 0.10
MAX_FAILURES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionState:
    """What a session's index record keeps of its compactions; it outlives restarts.

    `blocked_below`: after two compactions that freed little, none is made until the context has this many tokens.
    """

    failures: int = 0
    retry_at: datetime | None = None
    error: str | None = None
    messages_at_last: int = 0
    little: int = 0
    blocked_below: int = 0

    def to_json(self) -> JsonObject:
        return {
            "failures": self.failures,
            "retry_at": None if self.retry_at is None else format_time(self.retry_at),
            "error": self.error,
            "messages_at_last": self.messages_at_last,
            "little": self.little,
            "blocked_below": self.blocked_below,
        }

    @staticmethod
    def from_json(raw: Mapping[str, Any] | None) -> CompactionState:
        raw = raw or {}
        retry_at = raw.get("retry_at")
        return CompactionState(
            failures=int(raw.get("failures") or 0),
            retry_at=None if retry_at is None else parse_time(retry_at),
            error=raw.get("error"),
            messages_at_last=int(raw.get("messages_at_last") or 0),
            little=int(raw.get("little") or 0),
            blocked_below=int(raw.get("blocked_below") or 0),
        )

    def failed(self, error: str, now: datetime) -> CompactionState:
        """After a failure: 60 s, 5 min, then 15 min until the next attempt."""
        wait = RETRIES[min(self.failures, len(RETRIES) - 1)]
        return CompactionState(
            failures=self.failures + 1,
            retry_at=now + wait,
            error=error,
            messages_at_last=self.messages_at_last,
            little=self.little,
            blocked_below=self.blocked_below,
        )

    def succeeded(self, *, before: int, after: int, messages: int, window: int) -> CompactionState:
        """Two in a row that free less than 10 % stop the trigger until the context has grown by 10 % of the window."""
        little = self.little + 1 if before - after < LITTLE * before else 0
        blocked = int(after + LITTLE * window) if little >= 2 else 0
        return CompactionState(messages_at_last=messages, little=little, blocked_below=blocked)


def is_due(
    policy: CompactionPolicy, state: CompactionState, *, tokens: int, window: int, messages: int, now: datetime
) -> str | None:
    """Why a compaction is due (`threshold`, `messages`), or None. `tokens`: size of the next prompt."""
    if not policy.enabled or (state.retry_at is not None and now < state.retry_at):
        return None
    since = messages - state.messages_at_last
    if since < policy.min_messages or tokens < state.blocked_below:
        return None
    if tokens >= policy.threshold * window:
        return "threshold"
    return "messages" if policy.every_messages is not None and since >= policy.every_messages else None
