"""One write: rows, their audit, the full text and the change feed, all in the transaction it is given."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, func, insert, select, update

from memory.redact import redact
from memory.rows import memory_from_row, memory_to_row, millis, whole
from memory.tables import audit, changes, memories, state

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from sqlalchemy.ext.asyncio import AsyncConnection

    from memory.fulltext import FullText
    from memory.records import Action, Memory, Viewer

CHUNK = 500
"""Rows named in one statement."""


class Operation:
    """Collects what a write changes; `flush` writes it in few statements. Nothing is visible before the commit."""

    def __init__(
        self,
        connection: AsyncConnection,
        fulltext: FullText | None,
        viewer: Viewer,
        *,
        name: str,
        now: datetime,
    ) -> None:
        self.connection = connection
        self.viewer = viewer
        self.name = name
        self.now = whole(now)
        self._why = redact(viewer.why).text
        self._fulltext = fulltext
        self._inserts: dict[str, Memory] = {}
        self._updates: dict[str, tuple[Memory, Memory]] = {}
        self._audit: list[dict[str, Any]] = []
        self._rows: dict[int, tuple[Memory, dict[str, Any]]] = {}

    def insert(self, memory: Memory, action: Action) -> Memory:
        self._inserts[memory.id] = memory
        self._note(None, memory, action)
        return memory

    def update(self, before: Memory, action: Action, **fields: Any) -> Memory:
        """Sets fields; the revision grows and `updated_at` is now."""
        after = dataclasses.replace(before, **fields, revision=before.revision + 1, updated_at=self.now)
        if before.id in self._inserts:
            self._inserts[before.id] = after
        else:
            first = self._updates.get(before.id, (before, before))[0]
            self._updates[before.id] = (first, after)
        self._note(before, after, action)
        return after

    def note_removed(self, before: Memory, action: Action) -> None:
        """Audits a row that is taken out otherwise."""
        self._note(before, None, action)

    def _note(self, before: Memory | None, after: Memory | None, action: Action) -> None:
        row = after or before
        assert row is not None  # noqa: S101
        self._audit.append(
            {
                "operation": self.name,
                "memory": row.current if (before is None or after is None) and row.current else row.id,
                "row": row.id,
                "pool": str(row.pool),
                "at": millis(self.now),
                "action": action,
                "origin": self.viewer.origin,
                "author": self.viewer.author,
                "why": self._why,
                "before": None if before is None else self._row(before),
                "after": None if after is None else self._row(after),
                "undone_by": None,
                "job": self.viewer.job,
            }
        )

    def _row(self, memory: Memory) -> dict[str, Any]:
        """The same for the table and for the audit."""
        known = self._rows.get(id(memory))
        if known is None:
            known = self._rows[id(memory)] = memory, memory_to_row(memory)
        return known[1]

    def drop(self) -> None:
        """Forgets what was not written yet, after a step that failed."""
        self._inserts, self._updates, self._audit, self._rows = {}, {}, [], {}

    async def flush(self) -> None:
        """Updates come first: a bounded topic's place is free before another memory takes it."""
        if self._updates:
            values = [self._row(after) | {"_id": after.id} for _, after in self._updates.values()]
            names = [
                name for name in values[0] if name not in ("_id", "id", "pool", "last_recalled_at", "recall_count")
            ]
            statement = (
                update(memories)
                .where(memories.c.id == bindparam("_id"))
                .values({name: bindparam(name) for name in names})
            )
            await self.connection.execute(statement, values)
        if self._inserts:
            await self.connection.execute(insert(memories), [self._row(m) for m in self._inserts.values()])
        await self._index()
        touched = {m.id: str(m.pool) for m in self._inserts.values()}
        touched |= {after.id: str(after.pool) for _, after in self._updates.values()}
        await feed(self.connection, touched)
        if self._audit:
            await self.connection.execute(insert(audit), self._audit)
        self.drop()

    async def _index(self) -> None:
        fresh = list(self._inserts.values())
        fresh += [after for before, after in self._updates.values() if before.text != after.text]
        if self._fulltext is None or not fresh:
            return
        numbers = await numbers_of(self.connection, [m.id for m in fresh])
        await self._fulltext.put(self.connection, [(numbers[m.id], str(m.pool), m.text) for m in fresh])


async def numbers_of(connection: AsyncConnection, ids: Sequence[str]) -> dict[str, int]:
    """The rows' numbers, which name them in the full text."""
    found: dict[str, int] = {}
    for at in range(0, len(ids), CHUNK):
        query = select(memories.c.id, memories.c.number).where(memories.c.id.in_(ids[at : at + CHUNK]))
        found |= {row[0]: row[1] for row in await connection.execute(query)}
    return found


async def load_rows(connection: AsyncConnection, ids: Iterable[str]) -> dict[str, Memory]:
    """Rows by id, whoever asks: for checks inside a write, after the viewer was checked."""
    wanted = list(ids)
    found: dict[str, Memory] = {}
    for at in range(0, len(wanted), CHUNK):
        query = select(memories).where(memories.c.id.in_(wanted[at : at + CHUNK]))
        for row in (await connection.execute(query)).mappings():
            found[row["id"]] = memory_from_row(row)
    return found


async def feed(connection: AsyncConnection, touched: dict[str, str]) -> None:
    """Puts memories (id to pool) at the end of the change feed; each has one place in it."""
    if not touched:
        return
    last = await last_change(connection)
    rows = [{"id": id_, "pool": pool, "number": last + n} for n, (id_, pool) in enumerate(touched.items(), 1)]
    ids = [row["id"] for row in rows]
    for at in range(0, len(ids), CHUNK):
        await connection.execute(delete(changes).where(changes.c.id.in_(ids[at : at + CHUNK])))
    await connection.execute(insert(changes), rows)
    await set_state(connection, "change", last + len(rows))


async def last_change(connection: AsyncConnection) -> int:
    """The last number the change feed has given."""
    return (await connection.execute(select(state.c.value).where(state.c.name == "change"))).scalar() or 0


async def set_state(connection: AsyncConnection, name: str, value: int) -> None:
    written = await connection.execute(update(state).where(state.c.name == name).values(value=value))
    if not written.rowcount:
        await connection.execute(insert(state).values(name=name, value=value))


async def count_rows(connection: AsyncConnection, *conditions: Any) -> int:
    query = select(func.count()).select_from(memories).where(*conditions)
    return (await connection.execute(query)).scalar_one()
