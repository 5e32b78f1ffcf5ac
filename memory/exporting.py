"""A pool written to a file, as it was at one moment; blocking."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from sqlalchemy import select

from memory.access import INSTANCE, readable, readable_topic
from memory.listing import ACTIVE
from memory.portable import render_lines
from memory.rows import READ, memory_of, topic_from_row
from memory.tables import memories, tombstones, topics

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from memory.records import Pool, Viewer

ROWS = 500


def write_pool(connection: Connection, viewer: Viewer, pool: Pool, into: IO[bytes], at: datetime) -> None:
    """Active memories, the oldest first, topics, and the hashes of what was deleted, as JSON lines.

    All is read in one transaction, so no write falls between two of its parts. Only some rows are held at once.
    """
    into.seek(0)
    into.truncate()
    _begin_snapshot(connection)
    owned = topics.c.owner.in_([str(pool), INSTANCE]), readable_topic(viewer, topics.c.owner)
    found = connection.execute(select(topics).where(*owned).order_by(topics.c.name_folded)).mappings()
    kept = (
        READ.where(memories.c.pool == str(pool), ACTIVE, readable(viewer, memories.c.pool))
        .order_by(memories.c.created_at, memories.c.number)
        .execution_options(yield_per=ROWS)
    )
    stones = (
        select(tombstones.c.text_hash)
        .where(tombstones.c.pool == str(pool), readable(viewer, tombstones.c.pool))
        .order_by(tombstones.c.text_hash)
        .execution_options(yield_per=ROWS)
    )
    lines = render_lines(
        pool,
        [topic_from_row(row) for row in found],
        (memory_of(row) for row in connection.execute(kept)),
        connection.execute(stones).scalars(),
        at=at,
    )
    into.writelines(line.encode("utf-8", "replace") for line in lines)
    into.seek(0)


def _begin_snapshot(connection: Connection) -> None:
    """`Records.read` has begun one for SQLite; PostgreSQL sees what is committed meanwhile, unless told otherwise."""
    if connection.dialect.name != "sqlite":
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
