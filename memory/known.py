"""What the records know of texts: which are there, which were deleted, which held before."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, insert, select, tuple_

from memory.operation import load_rows
from memory.records import parse_pool
from memory.rows import memory_from_row, millis
from memory.tables import memories, tombstones

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Table
    from sqlalchemy.ext.asyncio import AsyncConnection

    from memory.records import Memory, Pool


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """What a batch of writes must know, by pool and hash of the text; `put` keeps it true while the batch goes on."""

    active: dict[tuple[Pool, str], list[Memory]] = dataclasses.field(
        default_factory=dict["tuple[Pool, str]", "list[Memory]"]
    )
    deleted: set[tuple[Pool, str]] = dataclasses.field(default_factory=set["tuple[Pool, str]"])
    past: dict[tuple[Pool, str, str], Memory] = dataclasses.field(
        default_factory=dict["tuple[Pool, str, str]", "Memory"]
    )

    def put(self, digest: str, memory: Memory) -> None:
        rows = self.active.setdefault((memory.pool, digest), [])
        rows[:] = [*(row for row in rows if row.id != memory.id), memory]

    def same(self, digest: str, memory: Memory) -> Memory | None:
        """An active memory that says the same in the same scope, under the same topic or none."""
        for row in self.active.get((memory.pool, digest), ()):
            fits = row.topic == memory.topic or memory.topic is None or (row.topic is None and memory.place is None)
            if fits and row.properties == memory.properties:
                return row
        return None

    def formerly(self, digest: str, memory: Memory) -> Memory | None:
        """One that said the same in the same scope before."""
        return self.past.get((memory.pool, digest, _scope(memory)))


async def known_of(connection: AsyncConnection, wanted: Sequence[tuple[Pool, str]]) -> Known:
    """Memories with one of these texts, and which of the texts were deleted."""
    known = Known()
    pairs = list({(str(pool), digest) for pool, digest in wanted})
    stones = select(tombstones.c.pool, tombstones.c.text_hash).where(_among(tombstones, pairs))
    known.deleted.update((parse_pool(row[0]), row[1]) for row in await connection.execute(stones))
    rows = (await connection.execute(select(memories).where(_among(memories, pairs)))).mappings().all()
    heads = await load_rows(connection, [row["current"] for row in rows if row["current"]])
    for row in rows:
        memory, digest = memory_from_row(row), str(row["text_hash"])
        head = heads.get(row["current"] or "")
        if head is not None and head.state == "trashed":
            known.deleted.add((memory.pool, digest))
        if memory.state == "active":
            known.put(digest, memory)
        elif memory.state == "superseded":
            known.past[memory.pool, digest, _scope(memory)] = memory
        else:
            known.deleted.add((memory.pool, digest))
    return known


async def bury(connection: AsyncConnection, pool: Pool, digests: Sequence[str], at: datetime) -> None:
    """Keeps texts from coming back, by their hashes; what is there now stays."""
    known = select(tombstones.c.text_hash).where(tombstones.c.pool == str(pool), tombstones.c.text_hash.in_(digests))
    fresh = set(digests) - set((await connection.execute(known)).scalars())
    if fresh:
        rows = [{"pool": str(pool), "text_hash": digest, "at": millis(at)} for digest in sorted(fresh)]
        await connection.execute(insert(tombstones), rows)


async def forgive(connection: AsyncConnection, pool: Pool, digest: str) -> None:
    """Takes the tombstone away."""
    await connection.execute(delete(tombstones).where(tombstones.c.pool == str(pool), tombstones.c.text_hash == digest))


def _scope(memory: Memory) -> str:
    return json.dumps(memory.properties, sort_keys=True)


def _among(table: Table, pairs: Sequence[tuple[str, str]]) -> ColumnElement[bool]:
    """Rows with one of these pools and hashes. Two pairs named in a query make SQLite (3.40) read the whole table."""
    each = func.json_each(json.dumps(pairs)).table_valued("value").c.value
    wanted = select(func.json_extract(each, "$[0]"), func.json_extract(each, "$[1]"))
    return tuple_(table.c.pool, table.c.text_hash).in_(wanted)
