"""Deleting for good: the text leaves the rows, the audit, the full text and the files of the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select, update

from memory.operation import CHUNK, feed, last_change, set_state
from memory.records import text_hash
from memory.rows import memory_from_row, millis
from memory.tables import memories, state, tombstones
from memory.wordings import silence, versions_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from memory.database import Records
    from memory.fulltext import FullText
    from memory.operation import Operation
    from memory.records import Memory

SCRUB = "scrub"
FORGET = "forget:"
LOG = "log"


@dataclass(frozen=True, slots=True)
class Purged:
    """What was deleted for good: every wording there ever was, and the pools it was in. `number` tells purges apart."""

    texts: frozenset[str]
    pools: frozenset[str]
    number: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """The memories a purge has deleted. `cleared` False: their text is still in files, and is wiped from them later."""

    memories: list[Memory]
    cleared: bool


async def purge_rows(operation: Operation, fulltext: FullText | None, chosen: Sequence[Memory]) -> Purged:
    """Deletes memories and all they said before. Tombstones stay: hashes, no text.

    The files of the database are wiped afterwards, by `scrub_if_due`, and what was made of the texts is forgotten
    elsewhere; that both is due is part of this transaction.
    """
    texts: set[str] = set()
    for at in range(0, len(chosen), CHUNK):
        texts |= await _purge_chunk(operation, fulltext, [memory.id for memory in chosen[at : at + CHUNK]])
    number = await last_change(operation.connection)
    await set_state(operation.connection, SCRUB, number)
    if texts:
        await set_state(operation.connection, f"{FORGET}{number}", number)
    return Purged(frozenset(texts), frozenset(str(memory.pool) for memory in chosen), number)


async def _purge_chunk(operation: Operation, fulltext: FullText | None, ids: Sequence[str]) -> set[str]:
    connection = operation.connection
    every = await versions_of(connection, ids)
    present = await _present(connection, every)
    rows = list(present.values())
    for row in rows:
        operation.note_removed(row, "purged")
    await operation.flush()
    if fulltext is not None:
        await fulltext.drop(connection, list(present))
    all_ids = [row.id for row in rows]
    for at in range(0, len(all_ids), CHUNK):
        part = all_ids[at : at + CHUNK]
        await connection.execute(delete(memories).where(memories.c.id.in_(part)))
    texts = await silence(connection, every, {str(row.pool) for row in rows})
    await _bury(operation, rows)
    await feed(connection, {row.id: str(row.pool) for row in rows})
    return texts | {row.text for row in rows}


async def _present(connection: AsyncConnection, ids: Iterable[str]) -> dict[int, Memory]:
    """Rows that are there, by number."""
    wanted = sorted(ids)
    found: dict[int, Memory] = {}
    for at in range(0, len(wanted), CHUNK):
        query = select(memories).where(memories.c.id.in_(wanted[at : at + CHUNK])).order_by(memories.c.number)
        found |= {row["number"]: memory_from_row(row) for row in (await connection.execute(query)).mappings()}
    return found


async def _bury(operation: Operation, rows: Sequence[Memory]) -> None:
    """Leaves a tombstone for every text."""
    stones = {(str(row.pool), text_hash(row.text)): {"topic": row.topic, "at": millis(operation.now)} for row in rows}
    for (pool, digest), fields in stones.items():
        there = tombstones.c.pool == pool, tombstones.c.text_hash == digest
        await operation.connection.execute(delete(tombstones).where(*there))
        await operation.connection.execute(insert(tombstones).values(pool=pool, text_hash=digest, **fields))


async def scrub_if_due(records: Records, fulltext: FullText | None) -> bool:
    """Wipes the files after a purge, also one that was cut before it came to this. False: has to be tried again."""
    due = await _due(records, SCRUB)
    if not due:
        return await empty_log_if_due(records)
    if fulltext is not None:
        async with records.writing() as connection:
            await fulltext.wipe(connection)
    if not await records.scrub():
        return False
    await _done(records, SCRUB, due)
    return True


async def purges_to_forget(records: Records) -> list[int]:
    """The purges of whose texts something may still be kept elsewhere."""
    async with records.reading() as connection:
        query = select(state.c.value).where(state.c.name.startswith(FORGET, autoescape=True))
        return list((await connection.execute(query)).scalars())


async def note_forgotten(records: Records, purges: Iterable[int]) -> None:
    """Nothing made of the texts of these purges is left."""
    async with records.writing(patient=True) as connection:
        await connection.execute(delete(state).where(state.c.name.in_([f"{FORGET}{number}" for number in purges])))


async def note_log(connection: AsyncConnection) -> None:
    """What this transaction deletes has to leave the log of the database."""
    before = (await connection.execute(select(state.c.value).where(state.c.name == LOG))).scalar() or 0
    await set_state(connection, LOG, before + 1)


async def empty_log_if_due(records: Records) -> bool:
    """Empties the log after a topic was deleted, also where that was cut before it came to this. False: has to be tried
    again."""
    due = await _due(records, LOG)
    if due:
        if not await records.empty_log():
            return False
        await _done(records, LOG, due)
    return True


async def _due(records: Records, name: str) -> int:
    async with records.reading() as connection:
        return (await connection.execute(select(state.c.value).where(state.c.name == name))).scalar() or 0


async def _done(records: Records, name: str, due: int) -> None:
    """What was deleted meanwhile stays due."""
    async with records.writing() as connection:
        await connection.execute(update(state).where(state.c.name == name, state.c.value == due).values(value=0))
