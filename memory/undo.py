"""Undoing changes: every row goes back to what it was, unless somebody has changed it since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select, update

from memory.access import readable
from memory.errors import MemoryConflict, NotThere
from memory.operation import CHUNK, feed, load_rows, numbers_of
from memory.rows import audit_from_row, memory_from_row
from memory.tables import audit, memories

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import ColumnElement

    from memory.fulltext import FullText
    from memory.operation import Operation
    from memory.records import Audit, Memory


async def undo_operation(operation: Operation, fulltext: FullText | None, wanted: str) -> list[Memory]:
    """The memories as they are afterwards; all rows of the operation, or none. Raises NotThere and MemoryConflict."""
    entries = await _entries(operation, audit.c.operation == wanted)
    if not entries:
        raise NotThere("change")
    present = await load_rows(operation.connection, {entry.row for entry in entries})
    await _check(operation, entries, present)
    return await _take_back(operation, fulltext, entries, present)


async def undo_job_changes(operation: Operation, fulltext: FullText | None, job: str) -> tuple[list[Memory], int]:
    """The memories that are as before now, and how many stay because somebody has changed them since.

    What a job did to memories that belong together goes back as a whole, or stays as a whole. Raises NotThere.
    """
    entries = await _entries(operation, audit.c.job == job)
    present = await load_rows(operation.connection, {entry.row for entry in entries})
    back: list[Audit] = []
    left = 0
    for part in _together(entry for entry in entries if entry.undone_by is None):
        try:
            await _check(operation, part, present)
        except MemoryConflict:
            left += len({entry.memory for entry in part})
        else:
            back += part
    # who undoes a change has decided: the next run leaves these memories alone until they change
    return await _take_back(operation, fulltext, back, present, checked_at=operation.now), left


async def _entries(operation: Operation, wanted: ColumnElement[bool]) -> list[Audit]:
    visible = readable(operation.viewer, audit.c.pool).label("visible")
    query = select(audit, visible).where(wanted).order_by(audit.c.id)
    rows = (await operation.connection.execute(query)).mappings().all()
    if not all(row["visible"] for row in rows):
        raise NotThere("change")
    return [audit_from_row(row) for row in rows]


def _together(entries: Iterable[Audit]) -> list[list[Audit]]:
    """The entries in groups, of which no two share a row, an operation, or the place of a bounded topic."""
    groups: dict[str, list[Audit]] = {}
    for entry in entries:
        places = {side["place"] for side in (entry.before, entry.after) if side is not None and side["place"]}
        names = {f"row {entry.row}", f"operation {entry.operation}", *(f"place {place}" for place in places)}
        known = {id(groups[name]): groups[name] for name in names if name in groups}
        empty: list[Audit] = []
        group = max(known.values(), key=len, default=empty)
        for other in known.values():
            if other is not group:
                group += other
                groups |= {name: group for name, held in groups.items() if held is other}
        group.append(entry)
        groups |= dict.fromkeys(names, group)
    distinct = {id(group): group for group in groups.values()}
    return [sorted(group, key=lambda entry: entry.id) for group in distinct.values()]


async def _take_back(
    operation: Operation,
    fulltext: FullText | None,
    entries: Sequence[Audit],
    present: dict[str, Memory],
    **fields: Any,
) -> list[Memory]:
    connection = operation.connection
    first: dict[str, Audit] = {}
    for entry in entries:
        first.setdefault(entry.row, entry)
    gone: list[Memory] = []
    for row, entry in reversed(first.items()):  # a place that was taken is free before its former holder comes back
        before = None if entry.before is None else memory_from_row(entry.before)
        now = present.get(row)
        if now is not None and before is not None:
            operation.update(now, "undone", **(_restored(before) | fields))
        elif now is not None and now.state == "superseded":
            gone.append(now)
        elif now is not None:
            operation.update(now, "undone", state="trashed", trashed_at=operation.now)
        elif before is not None:
            operation.insert(before, "undone")
    await operation.flush()
    await _take_out(operation, fulltext, gone)
    done = [entry.id for entry in entries]
    for at in range(0, len(done), CHUNK):
        part = audit.c.id.in_(done[at : at + CHUNK])
        await connection.execute(update(audit).where(part).values(undone_by=operation.name))
    return list((await load_rows(connection, first)).values())


async def _check(operation: Operation, entries: Sequence[Audit], present: dict[str, Memory]) -> None:
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
    await _check_places(operation, entries)


async def _check_places(operation: Operation, entries: Sequence[Audit]) -> None:
    """Raises MemoryConflict where a memory would come back to the one place that another has taken since."""
    rows = {entry.row for entry in entries}
    befores = [entry.before for entry in reversed(entries) if entry.before is not None]
    wanted = {one["place"] for one in befores if one["state"] == "active" and one["place"] is not None}
    if wanted:
        query = select(memories.c.id).where(memories.c.place.in_(wanted), memories.c.state == "active")
        if set((await operation.connection.execute(query)).scalars()) - rows:
            raise MemoryConflict("The topic holds another memory now. Delete or move that one first.")


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
    for at in range(0, len(ids), CHUNK):
        await operation.connection.execute(delete(memories).where(memories.c.id.in_(ids[at : at + CHUNK])))
    await feed(operation.connection, {row.id: str(row.pool) for row in rows})
