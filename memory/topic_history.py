"""What jobs did to topics, kept so that it can be taken back with the rest of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, insert, select, update

from memory.operation import count_rows
from memory.rows import memory_from_row, millis, owner_name, topic_to_row
from memory.tables import memories, topic_audit, topics
from memory.topics import MAX_TOPICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, RowMapping
    from sqlalchemy.ext.asyncio import AsyncConnection

    from memory.operation import Operation
    from memory.records import Pool, Topic, Viewer


async def note_topic(
    connection: AsyncConnection, viewer: Viewer, now: datetime, before: Topic | None, after: Topic | None
) -> None:
    """Keeps a change of a topic, when a job makes it; forgets a topic that somebody deletes."""
    topic = after or before
    if topic is None:
        return
    if viewer.job is None:
        if after is None:  # what somebody deletes themselves is kept nowhere
            await connection.execute(delete(topic_audit).where(topic_audit.c.topic == topic.id))
        return
    await connection.execute(
        insert(topic_audit).values(
            owner=owner_name(topic.owner),
            topic=topic.id,
            at=millis(now),
            origin=viewer.origin,
            author=viewer.author,
            job=viewer.job,
            before=None if before is None else topic_to_row(before),
            after=None if after is None else topic_to_row(after),
            undone_at=None,
        )
    )


async def made_by_jobs(connection: AsyncConnection, owner: Pool) -> set[str]:
    """Topics that a job has made and nobody has changed since."""
    made = select(topic_audit.c.topic, topic_audit.c.after).where(
        topic_audit.c.owner == str(owner), topic_audit.c.before.is_(None)
    )
    kept = {row[0]: row[1] for row in await connection.execute(made)}
    present = await _present(connection, list(kept))
    return {topic_id for topic_id, row in present.items() if row == kept[topic_id]}


async def topic_counts(connection: AsyncConnection, job: str) -> dict[str, int]:
    """How many topics a job has made and deleted."""
    rows = (await connection.execute(select(topic_audit).where(topic_audit.c.job == job))).mappings().all()
    counts = {
        "topics_added": sum(row["before"] is None for row in rows),
        "topics_deleted": sum(row["after"] is None for row in rows),
    }
    return {name: count for name, count in counts.items() if count}


async def bring_back_topics(connection: AsyncConnection, job: str) -> tuple[int, int]:
    """Topics that a job has deleted: how many are back, and how many not, as another has that name now, or there are
    as many as there may be.

    Call it before the job's changes of memories are undone, which go back to their topics.
    """
    rows = await _noted(connection, job, topic_audit.c.after.is_(None))
    left = 0
    for row in rows:
        there = row["topic"] in await _present(connection, [row["topic"]])
        left += there or not await _bring_back(connection, row["before"])
    return len(rows) - left, left


async def undo_job_topics(operation: Operation, job: str) -> tuple[int, int]:
    """What else a job did to topics, the newest change first: how many are as before, and how many stay as somebody has
    used or changed them since.

    Call it after the job's changes of memories were undone.
    """
    connection, left = operation.connection, 0
    rows = await _noted(connection, job, topic_audit.c.after.is_not(None))
    for row in rows:
        if (await _present(connection, [row["topic"]])).get(row["topic"]) != row["after"]:
            left += 1
        elif row["before"] is None:
            left += not await _take_away(operation, row["topic"])
        else:
            await connection.execute(update(topics).where(topics.c.id == row["topic"]).values(row["before"]))
    await connection.execute(delete(topic_audit).where(topic_audit.c.job == job))
    return len(rows) - left, left


async def _noted(connection: AsyncConnection, job: str, kind: ColumnElement[bool]) -> Sequence[RowMapping]:
    query = select(topic_audit).where(topic_audit.c.job == job, kind).order_by(topic_audit.c.id.desc())
    return (await connection.execute(query)).mappings().all()


async def _present(connection: AsyncConnection, ids: list[str]) -> dict[str, dict[str, Any]]:
    rows = (await connection.execute(select(topics).where(topics.c.id.in_(ids)))).mappings()
    return {row["id"]: dict(row) for row in rows}


async def _bring_back(connection: AsyncConnection, before: Mapping[str, Any]) -> bool:
    """False: another topic has its name now, or there are as many as there may be."""
    names = await connection.execute(select(topics.c.name_folded).where(topics.c.owner == before["owner"]))
    taken = names.scalars().all()
    if before["name_folded"] in taken or len(taken) >= MAX_TOPICS:
        return False
    await connection.execute(insert(topics).values(before))
    return True


async def _take_away(operation: Operation, topic_id: str) -> bool:
    """False: it has memories, which somebody has put there."""
    mine = memories.c.topic == topic_id
    if await count_rows(operation.connection, mine, memories.c.state == "active"):
        return False
    rows = (await operation.connection.execute(select(memories).where(mine))).mappings().all()
    for row in rows:
        operation.update(memory_from_row(row), "classified", topic=None, place=None)
    await operation.flush()
    await operation.connection.execute(delete(topics).where(topics.c.id == topic_id))
    return True
