"""How alive a memory is: it falls with disuse, and what is nearly forgotten becomes due for the trash."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from memory.policy import Policy

if TYPE_CHECKING:
    from memory.records import Memory

NEVER_RECALLED = 50.0
RECALLED = 100.0
ONE_RECALL = timedelta(days=1)
HALF_LIVES_DAYS = (1.0, 3.0, 7.0, 14.0, 21.0, 30.0, 45.0, 60.0, 90.0, 180.0)


def _check_half_lives(days: tuple[float, ...]) -> tuple[float, ...]:
    if len(days) != len(HALF_LIVES_DAYS):
        raise ValueError("there are ten half-lives, for importance 1 to 10")
    if any(not 0.1 <= value <= 365 for value in days):
        raise ValueError("a half-life has 0.1 to 365 days")
    return days


class RetentionPolicy(Policy):
    """When unused memories go to the trash (spec memory.md, "Vitality and retention")."""

    enabled: bool = Field(default=True, description="false: nothing goes to the trash by itself.")
    grace_days: Annotated[float, Field(ge=0, le=365)] = Field(
        default=14, description="Younger memories stay, whatever their vitality."
    )
    threshold: Annotated[float, Field(ge=1, le=90)] = Field(
        default=10, description="Memories whose vitality (0 to 100) is under this go to the trash."
    )
    cap: Annotated[int, Field(ge=1, le=200)] = Field(
        default=5, description="Most memories of one person that go in any 24 hours."
    )
    half_lives_days: Annotated[tuple[float, ...], AfterValidator(_check_half_lives)] = Field(
        default=HALF_LIVES_DAYS, description="Days in which vitality falls by half, for importance 1 to 10."
    )


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
