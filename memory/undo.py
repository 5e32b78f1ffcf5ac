"""Undoing changes: every row goes back to what it was, unless somebody has changed it since."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select, update

from memory.access import readable
from memory.errors import MemoryConflict, NotThere
from memory.listing import ACTIVE
from memory.operation import CHUNK, feed, load_rows, numbers_of
from memory.rows import audit_from_row, memory_from_row, topic_from_row
from memory.tables import audit, memories, topics
from memory.topics import bounded_place

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import ColumnElement

    from memory.fulltext import FullText
    from memory.operation import Operation
    from memory.records import Audit, Memory, Topic

    _Former = dict[str, Memory | None]


async def undo_operation(operation: Operation, fulltext: FullText | None, wanted: str) -> list[Memory]:
    """The memories as they are afterwards; all rows of the operation, or none. Raises NotThere and MemoryConflict."""
    entries = await _entries(operation, audit.c.operation == wanted)
    if not entries:
        raise NotThere("change")
    if await _out_of_deleted_topics(operation, entries):
        raise MemoryConflict(
            "The topic was deleted. Undo the run that did it; what a person deletes is not kept, so make a topic and "
            "put the memories there. To undo an older change, name its operation, which the memory's history tells."
        )
    present = await load_rows(operation.connection, {entry.row for entry in entries})
    former = await _former(operation, entries)
    await _check(operation, entries, present, former)
    return await _take_back(operation, fulltext, entries, present, former)


async def undo_job_changes(operation: Operation, fulltext: FullText | None, job: str) -> tuple[list[Memory], int]:
    """The memories that are as before now, and how many stay because somebody has changed them since.

    What a job did to memories that belong together goes back as a whole, or stays as a whole. Raises NotThere.
    """
    entries = [entry for entry in await _entries(operation, audit.c.job == job) if entry.undone_by is None]
    present = await load_rows(operation.connection, {entry.row for entry in entries})
    former = await _former(operation, entries)
    back: list[Audit] = []
    left = 0
    for part in _together(entries, former):
        try:
            await _check(operation, part, present, former)
        except MemoryConflict:
            left += len({entry.memory for entry in part})
        else:
            back += part
    # who undoes a change has decided: the next run leaves these memories alone until they change
    return await _take_back(operation, fulltext, back, present, former, checked_at=operation.now), left


async def standing_change(operation: Operation, row: str, *, past_deleted_topics: bool = False) -> int | None:
    """The audit entry a row of a memory shows the outcome of. Changes that were undone do not count, nor what undid
    them; None: all were undone. That its topic was deleted cannot be undone: it is passed over where that is asked."""
    found = await operation.connection.execute(select(audit).where(audit.c.row == row).order_by(audit.c.id))
    known = [audit_from_row(entry) for entry in found.mappings()]
    out = await _out_of_deleted_topics(operation, known) if past_deleted_topics else ()
    lost = {entry.id for entry in out if entry.after is not None and entry.after["topic"] is None}
    entries = [(entry.id, entry.operation, entry.undone_by) for entry in known]
    first: dict[str, int] = {}
    for entry_id, _, undone_by in entries:
        if undone_by is not None:
            first.setdefault(undone_by, entry_id)
    before: dict[int, tuple[int, ...]] = {}
    stack: tuple[int, ...] = ()
    for entry_id, name, _ in entries:
        before[entry_id] = stack
        if name in first:
            stack = before[first[name]]
        elif entry_id not in lost:
            stack = (*stack, entry_id)
    return stack[-1] if stack else None


async def latest_operation(operation: Operation, memory_id: str) -> str:
    """What a person means who undoes and does not say what: step by step back. Raises NotThere and MemoryConflict."""
    if not await _entries(operation, audit.c.row == memory_id, "memory"):
        raise NotThere("memory")
    standing = await standing_change(operation, memory_id)
    if standing is None:
        raise MemoryConflict("All changes of this memory were undone already; its history names them.")
    query = select(audit.c.operation).where(audit.c.id == standing)
    return (await operation.connection.execute(query)).scalar_one()


async def _out_of_deleted_topics(operation: Operation, entries: Sequence[Audit]) -> list[Audit]:
    """Those that took a memory out of a topic that is deleted now, and are not undone."""
    out = [
        (entry, str(entry.before["topic"]))
        for entry in entries
        if entry.undone_by is None and entry.before is not None and entry.after is not None
        if entry.before["topic"] not in (None, entry.after["topic"])
    ]
    query = select(topics.c.id).where(topics.c.id.in_(sorted({topic for _, topic in out})))
    there = set((await operation.connection.execute(query)).scalars()) if out else set[str]()
    return [entry for entry, topic in out if topic not in there]


async def _entries(operation: Operation, wanted: ColumnElement[bool], what: str = "change") -> list[Audit]:
    """Raises NotThere for `what`, where the viewer may not see all of them."""
    visible = readable(operation.viewer, audit.c.pool).label("visible")
    query = select(audit, visible).where(wanted).order_by(audit.c.id)
    rows = (await operation.connection.execute(query)).mappings().all()
    if not all(row["visible"] for row in rows):
        raise NotThere(what)
    return [audit_from_row(row) for row in rows]


async def _former(operation: Operation, entries: Sequence[Audit]) -> _Former:
    """What each row was before the first of these entries; None: it was not there, or was deleted for good."""
    first: dict[str, Audit] = {}
    for entry in entries:
        first.setdefault(entry.row, entry)
    former = {row: None if entry.before is None else memory_from_row(entry.before) for row, entry in first.items()}
    ids = sorted({one.topic for one in former.values() if one is not None and one.topic is not None})
    known: dict[str, Topic] = {}
    for at in range(0, len(ids), CHUNK):
        query = select(topics).where(topics.c.id.in_(ids[at : at + CHUNK]))
        rows = (await operation.connection.execute(query)).mappings()
        known |= {row["id"]: topic_from_row(row) for row in rows}
    return {row: None if one is None else _placed(one, known.get(one.topic or "")) for row, one in former.items()}


def _placed(memory: Memory, topic: Topic | None) -> Memory:
    """The memory under its topic as that is today. Without topic, to be sorted again, where that is gone."""
    if topic is None:
        return dataclasses.replace(memory, topic=None, place=None)
    place = None if memory.state == "superseded" else bounded_place(memory.pool, topic, memory.properties)
    return dataclasses.replace(memory, place=place)


def _together(entries: Iterable[Audit], former: _Former) -> list[list[Audit]]:
    """The entries in groups, of which no two share a row, an operation, or the place of a bounded topic."""
    groups: dict[str, list[Audit]] = {}
    for entry in entries:
        places = {side["place"] for side in (entry.before, entry.after) if side is not None and side["place"]}
        home = former[entry.row]
        places |= {home.place} if home is not None and home.place is not None else set[str]()
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
    former: _Former,
    **fields: Any,
) -> list[Memory]:
    connection = operation.connection
    rows = list(dict.fromkeys(entry.row for entry in entries))
    gone: list[Memory] = []
    # a place that was taken is free before its former holder comes back
    for row in sorted(rows, key=lambda row: _stays(present.get(row), former[row])):
        before, now = former[row], present.get(row)
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
    # an undo that is undone: what it took back holds again, and may be taken back again
    again = audit.c.undone_by.in_({entry.operation for entry in entries})
    await connection.execute(update(audit).where(again).values(undone_by=None))
    return list((await load_rows(connection, rows)).values())


def _stays(now: Memory | None, before: Memory | None) -> bool:
    """False: it leaves the place of a bounded topic."""
    if now is None or now.state != "active" or now.place is None:
        return True
    return before is not None and before.state == "active" and before.place == now.place


async def _check(operation: Operation, entries: Sequence[Audit], present: dict[str, Memory], former: _Former) -> None:
    if any(entry.undone_by is not None for entry in entries):
        raise MemoryConflict("This change was undone already.")
    if any(entry.before is None and entry.after is None for entry in entries):
        raise MemoryConflict("A memory of this change was deleted for good; that cannot be undone.")
    last = {entry.row: entry for entry in entries}
    for row, entry in last.items():
        now = present.get(row)
        wanted = None if entry.after is None else entry.after["revision"]
        if (None if now is None else now.revision) == wanted:
            continue
        if await standing_change(operation, row, past_deleted_topics=True) != entry.id:
            raise MemoryConflict("Somebody has changed this memory since. Undo the newer change first.")
    await _check_places(operation, {entry.row for entry in entries}, former)


async def _check_places(operation: Operation, rows: set[str], former: _Former) -> None:
    """Raises MemoryConflict where a memory would come back to the one place that another has taken since, or to a topic
    that has no place for it now."""
    back = [one for row in rows if (one := former[row]) is not None and one.state == "active"]
    homes = sorted({one.topic for one in back if one.topic is not None and one.place is None})
    for at in range(0, len(homes), CHUNK):
        query = select(topics.c.id).where(topics.c.id.in_(homes[at : at + CHUNK]), topics.c.bounded)
        if (await operation.connection.execute(query)).first() is not None:
            raise MemoryConflict(
                "The topic keeps memories apart by properties now, which this one did not have. Let it hold several, "
                "then undo."
            )
    wanted = [one.place for one in back if one.place is not None]
    if len(set(wanted)) < len(wanted):
        raise MemoryConflict("The topic holds one memory only now. Let it hold several, then undo.")
    if wanted:
        query = select(memories.c.id).where(memories.c.place.in_(wanted), ACTIVE)
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
