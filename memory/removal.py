"""Deleting for good: the text leaves the rows, the audit, the full text and the files of the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import and_, delete, insert, or_, select, update

from memory.operation import feed, last_change, set_state
from memory.records import text_hash
from memory.rows import memory_from_row, millis
from memory.tables import audit, memories, state, tombstones

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from memory.database import Records
    from memory.fulltext import FullText
    from memory.operation import Operation
    from memory.records import Memory

CHUNK = 400


@dataclass(frozen=True, slots=True)
class Purged:
    """What was deleted for good: every wording there ever was, and the pools it was in."""

    texts: frozenset[str]
    pools: frozenset[str]


@dataclass(frozen=True, slots=True)
class Deleted:
    """The memories a purge has deleted. `cleared` False: their text is still in files, and is wiped from them later."""

    memories: list[Memory]
    cleared: bool


async def purge_rows(operation: Operation, fulltext: FullText | None, chosen: Sequence[Memory]) -> Purged:
    """Deletes memories and all they said before. Tombstones stay: hashes, no text.

    The files of the database are wiped afterwards, by `scrub_if_due`; that it is due is part of this transaction.
    """
    texts: set[str] = set()
    for at in range(0, len(chosen), CHUNK):
        texts |= await _purge_chunk(operation, fulltext, [memory.id for memory in chosen[at : at + CHUNK]])
    await set_state(operation.connection, "scrub", await last_change(operation.connection))
    return Purged(frozenset(texts), frozenset(str(memory.pool) for memory in chosen))


async def _purge_chunk(operation: Operation, fulltext: FullText | None, ids: Sequence[str]) -> set[str]:
    connection = operation.connection
    query = select(memories).where(or_(memories.c.id.in_(ids), memories.c.current.in_(ids)))
    found = (await connection.execute(query)).mappings().all()
    rows = [memory_from_row(row) for row in found]
    for row in rows:
        operation.note_removed(row, "purged")
    await operation.flush()
    if fulltext is not None:
        await fulltext.drop(connection, [row["number"] for row in found])
    all_ids = [row.id for row in rows]
    for at in range(0, len(all_ids), CHUNK):
        part = all_ids[at : at + CHUNK]
        await connection.execute(delete(memories).where(memories.c.id.in_(part)))
    texts = {row.text for row in rows}
    for row in rows:
        texts |= await _silence(connection, row)
    await _bury(operation, rows)
    await feed(connection, {row.id: str(row.pool) for row in rows})
    return texts


async def _silence(connection: AsyncConnection, row: Memory) -> set[str]:
    """Takes what a row said out of the audit: its own entries, and those of the memory it was a version of.

    Both sides of an entry go, so that nothing can be undone by half. Returns what they said: also wordings that were
    undone.
    """
    digest = text_hash(row.text)
    said = or_(
        audit.c.before["text_hash"].as_string() == digest,
        audit.c.after["text_hash"].as_string() == digest,
    )
    own = or_(audit.c.row == row.id, audit.c.memory == row.id)
    wanted = own if row.current is None else or_(own, and_(audit.c.memory == row.current, said))
    entries = (await connection.execute(select(audit.c.before, audit.c.after).where(wanted))).all()
    await connection.execute(update(audit).where(wanted).values(before=None, after=None, why=""))
    return {side["text"] for entry in entries for side in entry if side is not None}


async def _bury(operation: Operation, rows: Sequence[Memory]) -> None:
    """Leaves a tombstone for every text."""
    stones = {(str(row.pool), text_hash(row.text)): {"topic": row.topic, "at": millis(operation.now)} for row in rows}
    for (pool, digest), fields in stones.items():
        there = tombstones.c.pool == pool, tombstones.c.text_hash == digest
        await operation.connection.execute(delete(tombstones).where(*there))
        await operation.connection.execute(insert(tombstones).values(pool=pool, text_hash=digest, **fields))


async def scrub_if_due(records: Records, fulltext: FullText | None) -> bool:
    """Wipes the files after a purge, also one that was cut before it came to this. False: has to be tried again."""
    async with records.reading() as connection:
        due = (await connection.execute(select(state.c.value).where(state.c.name == "scrub"))).scalar()
    if not due:
        return True
    if fulltext is not None:
        async with records.writing() as connection:
            await fulltext.wipe(connection)
    if not await records.scrub():
        return False
    async with records.writing() as connection:  # what was purged meanwhile stays due
        await connection.execute(update(state).where(state.c.name == "scrub", state.c.value == due).values(value=0))
    return True
