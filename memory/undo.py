"""Undoing an operation: every row goes back to what it was, unless somebody has changed it since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, select, update

from memory.access import readable
from memory.errors import MemoryConflict, NotThere
from memory.operation import feed, load_rows, numbers_of
from memory.rows import audit_from_row, memory_from_row
from memory.tables import audit, memories

if TYPE_CHECKING:
    from memory.fulltext import FullText
    from memory.operation import Operation
    from memory.records import Audit, Memory


async def undo_operation(operation: Operation, fulltext: FullText | None, wanted: str) -> list[Memory]:
    """The memories as they are afterwards; all rows of the operation, or none. Raises NotThere and MemoryConflict."""
    connection, viewer = operation.connection, operation.viewer
    visible = readable(viewer, audit.c.pool).label("visible")
    query = select(audit, visible).where(audit.c.operation == wanted).order_by(audit.c.id)
    rows = (await connection.execute(query)).mappings().all()
    if not rows or not all(row["visible"] for row in rows):
        raise NotThere("change")
    entries = [audit_from_row(row) for row in rows]
    present = await load_rows(connection, {entry.row for entry in entries})
    _check(entries, present)
    first: dict[str, Audit] = {}
    for entry in entries:
        first.setdefault(entry.row, entry)
    gone: list[Memory] = []
    for row, entry in reversed(first.items()):  # a place that was taken is free before its former holder comes back
        before = None if entry.before is None else memory_from_row(entry.before)
        now = present.get(row)
        if now is not None and before is not None:
            operation.update(now, "undone", **_restored(before))
        elif now is not None and now.state == "superseded":
            gone.append(now)
        elif now is not None:
            operation.update(now, "undone", state="trashed", trashed_at=operation.now)
        elif before is not None:
            operation.insert(before, "undone")
    await operation.flush()
    await _take_out(operation, fulltext, gone)
    await connection.execute(update(audit).where(audit.c.operation == wanted).values(undone_by=operation.name))
    return list((await load_rows(connection, first)).values())


def _check(entries: list[Audit], present: dict[str, Memory]) -> None:
    if any(entry.undone_by is not None for entry in entries):
        raise MemoryConflict("This change was undone already.")
    if any(entry.before is None and entry.after is None for entry in entries):
        raise MemoryConflict("A memory of this change was deleted for good; that cannot be undone.")
    last = {entry.row: entry for entry in entries}
    for row, entry in last.items():
        now = present.get(row)
        wanted = None if entry.after is None else entry.after["revision"]
        if (None if now is None else now.revision) != wanted:
            raise MemoryConflict("Somebody has changed this memory since. Undo the newer change first.")


def _restored(before: Memory) -> dict[str, object]:
    """All fields of a former state but those that tell of recalls, which an undo does not take back."""
    kept = {"id", "pool", "revision", "updated_at", "last_recalled_at", "recall_count"}
    return {name: getattr(before, name) for name in before.__slots__ if name not in kept}


async def _take_out(operation: Operation, fulltext: FullText | None, rows: list[Memory]) -> None:
    """Former versions that an undo makes unnecessary: what they said is what the memory says again."""
    if not rows:
        return
    ids = [row.id for row in rows]
    for row in rows:
        operation.note_removed(row, "undone")
    await operation.flush()
    if fulltext is not None:
        numbers = await numbers_of(operation.connection, ids)
        await fulltext.drop(operation.connection, list(numbers.values()))
    await operation.connection.execute(delete(memories).where(memories.c.id.in_(ids)))
    await feed(operation.connection, {row.id: str(row.pool) for row in rows})
