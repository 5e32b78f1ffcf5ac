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
    start, since = _start(memory)
    days = max(0.0, (now - since) / timedelta(days=1))
    return start * 0.5 ** (days / _half_life(memory.importance, policy))


def due_at(memory: Memory, policy: RetentionPolicy) -> datetime | None:
    """When it becomes due for the trash, unless it is recalled before; None: never, as retention is off."""
    if not policy.enabled:
        return None
    start, since = _start(memory)
    days = _half_life(memory.importance, policy) * max(0.0, math.log2(start / policy.threshold))
    return max(since + timedelta(days=days), memory.created_at + timedelta(days=policy.grace_days))


def counts_as_recall(memory: Memory, now: datetime) -> bool:
    """A recall within a day of the last one that counted changes nothing."""
    return memory.last_recalled_at is None or now - memory.last_recalled_at >= ONE_RECALL


def _start(memory: Memory) -> tuple[float, datetime]:
    if memory.last_recalled_at is None:
        return NEVER_RECALLED, memory.created_at
    return RECALLED, memory.last_recalled_at


def _half_life(importance: int, policy: RetentionPolicy) -> float:
    return policy.half_lives_days[importance - 1]
