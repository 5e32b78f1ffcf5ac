"""How alive a memory is: it falls with disuse, and what is nearly forgotten becomes due for the trash."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory.policy import RetentionPolicy
    from memory.records import Memory

NEVER_RECALLED = 50.0
RECALLED = 100.0
ONE_RECALL = timedelta(days=1)


def vitality(memory: Memory, now: datetime, policy: RetentionPolicy) -> float:
    """0 to 100 at `now`."""
    start, halvings = _faded(memory.importance, memory.created_at, memory.last_recalled_at, now, policy)
    return start * 0.5**halvings


def strength(
    importance: int, created_at: datetime, recalled_at: datetime | None, now: datetime, policy: RetentionPolicy
) -> float:
    """The logarithm (base 2) of vitality, which still tells memories apart that are as good as forgotten."""
    start, halvings = _faded(importance, created_at, recalled_at, now, policy)
    return math.log2(start) - halvings


def span_until_due(importance: int, *, recalled: bool, policy: RetentionPolicy) -> timedelta:
    """How long vitality takes to fall to the threshold, from the last recall or from the beginning."""
    start = RECALLED if recalled else NEVER_RECALLED
    return timedelta(days=_half_life(importance, policy) * max(0.0, math.log2(start / policy.threshold)))


def due_at(memory: Memory, policy: RetentionPolicy) -> datetime | None:
    """When it becomes due for the trash, unless it is recalled before; None: never, as retention is off."""
    if not policy.enabled:
        return None
    recalled = memory.last_recalled_at
    span = span_until_due(memory.importance, recalled=recalled is not None, policy=policy)
    return max((recalled or memory.created_at) + span, memory.created_at + timedelta(days=policy.grace_days))


def _faded(
    importance: int, created_at: datetime, recalled_at: datetime | None, now: datetime, policy: RetentionPolicy
) -> tuple[float, float]:
    """Where vitality began, and how often it has fallen by half since."""
    start, since = (NEVER_RECALLED, created_at) if recalled_at is None else (RECALLED, recalled_at)
    days = max(0.0, (now - since) / timedelta(days=1))
    return start, days / _half_life(importance, policy)


def _half_life(importance: int, policy: RetentionPolicy) -> float:
    return policy.half_lives_days[importance - 1]
