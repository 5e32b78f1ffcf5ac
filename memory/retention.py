"""Forgetting: what is due goes to the trash, the least alive first, a few of each pool in any 24 hours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import and_, or_, select

from memory.operation import load_rows
from memory.records import parse_pool
from memory.rows import millis, time_of
from memory.tables import audit, memories
from memory.vitality import span_until_due, strength

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement
    from sqlalchemy.ext.asyncio import AsyncConnection

    from memory.operation import Operation
    from memory.policy import RetentionPolicy
    from memory.records import Memory, Pool

WINDOW = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Swept:
    """What went to the trash, and when there is room for more that is due; None: nothing more is due."""

    trashed: tuple[Memory, ...]
    more_at: datetime | None


async def due_pools(connection: AsyncConnection, policy: RetentionPolicy, now: datetime) -> list[Pool]:
    """Pools with memories that are due, whoever they belong to."""
    query = select(memories.c.pool).where(_due(policy, now)).distinct().order_by(memories.c.pool)
    return [parse_pool(row[0]) for row in await connection.execute(query)]


async def sweep_pool(operation: Operation, policy: RetentionPolicy, pool: Pool) -> Swept:
    """As many as the cap leaves room for; what went in the last 24 hours is counted from the audit."""
    connection, now = operation.connection, operation.now
    columns = memories.c.id, memories.c.importance, memories.c.created_at, memories.c.last_recalled_at
    rows = await connection.execute(select(*columns).where(memories.c.pool == str(pool), _due(policy, now)))
    ranked = sorted(
        (strength(row[1], time_of(row[2]), None if row[3] is None else time_of(row[3]), now, policy), row[2], row[0])
        for row in rows
    )
    gone = await _gone_lately(connection, pool, now)
    room = max(0, policy.cap - len(gone))
    chosen = [memory_id for *_, memory_id in ranked[:room]]
    present = await load_rows(connection, chosen)
    trashed = tuple(
        operation.update(present[memory_id], "trashed", state="trashed", trashed_at=now) for memory_id in chosen
    )
    if len(ranked) <= room:
        return Swept(trashed, None)
    counted = [*gone, *(now for _ in trashed)]
    return Swept(trashed, counted[-policy.cap] + WINDOW)


async def _gone_lately(connection: AsyncConnection, pool: Pool, now: datetime) -> list[datetime]:
    """When memories of the pool were forgotten in the last 24 hours, in order."""
    query = (
        select(audit.c.at)
        .where(audit.c.pool == str(pool), audit.c.origin == "retention", audit.c.at > millis(now - WINDOW))
        .order_by(audit.c.at)
    )
    return [time_of(at) for at in (await connection.execute(query)).scalars()]


def _due(policy: RetentionPolicy, now: datetime) -> ColumnElement[bool]:
    """What `vitality.due_at` says, as a condition: older than the grace time, and under the threshold."""
    created, recalled = memories.c.created_at, memories.c.last_recalled_at
    weak: list[ColumnElement[bool]] = []
    for importance in range(1, len(policy.half_lives_days) + 1):
        never, last = (span_until_due(importance, recalled=known, policy=policy) for known in (False, True))
        faded = or_(and_(recalled.is_(None), created < millis(now - never)), recalled < millis(now - last))
        weak.append(and_(memories.c.importance == importance, faded))
    grace = timedelta(days=policy.grace_days)
    return and_(memories.c.state == "active", created < millis(now - grace), or_(*weak))
