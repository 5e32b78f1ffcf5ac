"""What memories said that are deleted for good, as the audit knows it: in their own entries, and in others'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import or_, select, update

from memory.operation import CHUNK
from memory.tables import audit, memories

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import ColumnElement
    from sqlalchemy.ext.asyncio import AsyncConnection


@dataclass(frozen=True, slots=True)
class _Entry:
    row: str
    operation: str
    action: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    @property
    def merged_into(self) -> str | None:
        """The memory that this row became a part of."""
        merged = self.action == "merged" and self.after is not None and self.after["state"] == "superseded"
        return self.after["current"] if merged and self.after is not None else None


async def versions_of(connection: AsyncConnection, ids: Iterable[str]) -> set[str]:
    """These memories and all rows that ever were a former version of one: also those that an undo has taken out, and
    those that went along when a memory was merged into another."""
    found: set[str] = set()
    fresh = set(ids)
    while fresh:
        found |= fresh
        fresh = await _versions(connection, sorted(fresh)) - found
    return found


async def _versions(connection: AsyncConnection, ids: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for at in range(0, len(ids), CHUNK):
        part = ids[at : at + CHUNK]
        found |= set((await connection.execute(select(memories.c.id).where(memories.c.current.in_(part)))).scalars())
        inserted = select(audit.c.row).where(audit.c.memory.in_(part), audit.c.before.is_(None))
        found |= set((await connection.execute(inserted)).scalars())
    return found


async def silence(connection: AsyncConnection, rows: Iterable[str], pools: Iterable[str]) -> set[str]:
    """Takes what these rows said out of the audit, wherever it stands. Returns the wordings, also those undone.

    Both sides of an entry go, and the reason, so that nothing can be undone by half.
    """
    known = sorted(rows)
    own: list[_Entry] = []
    for at in range(0, len(known), CHUNK):
        mine = or_(audit.c.row.in_(known[at : at + CHUNK]), audit.c.memory.in_(known[at : at + CHUNK]))
        own += await _entries(connection, mine)
        await _empty(connection, mine)
    said = _sides(own) | await _said_by_others(connection, own)
    digests = sorted(said)
    for at in range(0, len(digests), CHUNK):
        part = digests[at : at + CHUNK]
        same = or_(*(side["text_hash"].as_string().in_(part) for side in (audit.c.before, audit.c.after)))
        await _empty(connection, audit.c.pool.in_(list(pools)), same)
    return set(said.values())


async def _said_by_others(connection: AsyncConnection, own: Sequence[_Entry]) -> dict[str, str]:
    """What other memories said from the moment one of these was merged into them until that was undone."""
    said: dict[str, str] = {}
    begun = {(target, entry.operation) for entry in own if (target := entry.merged_into) is not None}
    known = set(begun)
    while begun:
        target, operation = begun.pop()
        texts, further = _from_the_merge(await _entries(connection, audit.c.row == target), operation)
        said |= texts
        begun |= further - known
        known |= further
    return said


def _from_the_merge(entries: Sequence[_Entry], operation: str) -> tuple[dict[str, str], set[tuple[str, str]]]:
    """Of one memory's entries: what it said since a merge and not before, and the merges in which it handed that on."""
    before_it: set[str] = set()
    said: dict[str, str] = {}
    further: set[tuple[str, str]] = set()
    for entry in entries:
        if entry.after is None:
            continue
        former = None if entry.before is None else entry.before["text_hash"]
        begins = entry.operation == operation and entry.action == "merged"
        if begins and former is not None:
            before_it.add(former)
        if begins or (former in said and entry.action != "undone"):
            said |= {digest: text for digest, text in _sides([entry]).items() if digest not in before_it}
            if entry.merged_into is not None and former in said:
                further.add((entry.merged_into, entry.operation))
        elif not said:
            before_it.add(entry.after["text_hash"])
    return said, further


async def _entries(connection: AsyncConnection, wanted: ColumnElement[bool]) -> list[_Entry]:
    columns = audit.c.row, audit.c.operation, audit.c.action, audit.c.before, audit.c.after
    found = await connection.execute(select(*columns).where(wanted).order_by(audit.c.id))
    return [_Entry(*row) for row in found]


async def _empty(connection: AsyncConnection, *wanted: ColumnElement[bool]) -> None:
    await connection.execute(update(audit).where(*wanted).values(before=None, after=None, why=""))


def _sides(entries: Iterable[_Entry]) -> dict[str, str]:
    """Hash and text of everything that entries tell."""
    sides = [side for entry in entries for side in (entry.before, entry.after) if side is not None]
    return {side["text_hash"]: side["text"] for side in sides}
