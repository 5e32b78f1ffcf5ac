"""What people and models said, as another index follows it: what is new, what is gone again, and what is there."""

from __future__ import annotations

import json
import threading
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select, text

from sessions.found import Said, SearchFailed
from sessions.search_database import followed_table, said_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    from sessions.found import Scope

ROLES = ("user", "assistant")
"""Results of tools are found by their words: most of them are long, and no sentences."""
MOST_GONE = 100_000
_SAID = [said_table.c[name] for name in ("id", "session", "seq", "at", "role", "name", "text")]


@dataclass(frozen=True, slots=True)
class Heard:
    """A message, with the key and the owner of its chat."""

    said: Said
    key: str
    owner: str | None


@dataclass(frozen=True, slots=True)
class Gone:
    """A message that is no longer in the index; `number` is counted together with the ids of messages."""

    number: int
    session: str
    seq: int
    key: str


class Feed:
    """The newest number that is committed, and what has gone since this index was opened. For several threads."""

    def __init__(self, number: int) -> None:
        self._lock = threading.Lock()
        self._number = number
        self._gone: deque[Gone] = deque()
        self._lost = 0

    def commit(self, number: int, gone: Sequence[Gone]) -> None:
        with self._lock:
            self._number = number
            self._gone.extend(gone)
            while len(self._gone) > MOST_GONE:
                self._lost = self._gone.popleft().number

    @property
    def number(self) -> int:
        with self._lock:
            return self._number

    def since(self, number: int) -> tuple[int, list[Gone]]:
        """The newest number, and what has gone after a number. Raises SearchFailed when that is not known any more."""
        with self._lock:
            if number < self._lost:
                raise SearchFailed("More was deleted than is kept in mind; everything is to be compared.")
            return self._number, [one for one in self._gone if one.number > number]


def heard_after(connection: Connection, after: int, upto: int, since: int, limit: int) -> list[Heard]:
    """Messages with ids after one, up to another, said since a time (milliseconds); the oldest first."""
    ids = said_table.c.id
    query = _heard().where(ids > after, ids <= upto, said_table.c.at >= since).order_by(ids).limit(limit)
    return [_row_heard(row) for row in connection.execute(query)]


def heard_before(connection: Connection, before: int, since: int, limit: int) -> list[Heard]:
    """Messages with ids before one, said since a time; the newest first."""
    ids = said_table.c.id
    query = _heard().where(ids < before, said_table.c.at >= since).order_by(ids.desc()).limit(limit)
    return [_row_heard(row) for row in connection.execute(query)]


def places_between(connection: Connection, since: int, until: int) -> list[tuple[str, int]]:
    """Session and seq of what was said from one time on and before another (milliseconds)."""
    table = said_table.c
    query = select(table.session, table.seq).where(table.at >= since, table.at < until)
    return [(row[0], row[1]) for row in connection.execute(query)]


def time_of_newest(connection: Connection, count: int) -> int:
    """When the oldest of the newest `count` messages was said; 0 when there are not so many."""
    query = text("SELECT at FROM said ORDER BY at DESC LIMIT 1 OFFSET :skip")
    return int(connection.execute(query, {"skip": max(0, count - 1)}).scalar() or 0)


def heard_at(connection: Connection, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Heard]:
    """Messages by session and seq, the oldest first; those that are not there are left out.

    Two pairs named in the query itself make SQLite (3.40) read the whole table.
    """
    each = func.json_each(json.dumps(list(places))).table_valued("value").c.value
    session, seq = func.json_extract(each, "$[0]"), func.json_extract(each, "$[1]")
    query: Any = _heard().where(said_table.c.session == session, said_table.c.seq == seq)
    rows: Sequence[Row[Any]] = connection.execute(query).all()
    in_order = sorted(rows, key=lambda row: row.id)  # SQLite would read the whole table for it
    return {(row.session, row.seq): _row_heard(row) for row in in_order}


def keys_of(connection: Connection, scope: Scope, most: int) -> list[str] | None:
    """The keys of the chats in a scope; None when there are more."""
    keys = set(scope.keys)
    for owner in scope.owners:
        keys |= _some_keys(connection, "owner = :given", owner, most)
    for prefix in scope.prefixes:
        keys |= _some_keys(connection, "substr(key || ':', 1, length(:given)) = :given", f"{prefix.rstrip(':')}:", most)
    return sorted(keys) if len(keys) <= most else None


def _some_keys(connection: Connection, condition: str, given: str, most: int) -> set[str]:
    query = text(f"SELECT DISTINCT key FROM followed WHERE {condition} LIMIT :limit")  # noqa: S608
    return set(connection.execute(query, {"given": given, "limit": most + 1}).scalars())


def _heard() -> Any:
    both = said_table.join(followed_table, followed_table.c.session == said_table.c.session)
    columns = (*_SAID, followed_table.c.key, followed_table.c.owner)
    return select(*columns).select_from(both).where(said_table.c.role.in_(ROLES))


def _row_heard(row: Row[Any]) -> Heard:
    return Heard(row_said(row), row.key, row.owner)


def row_said(row: Row[Any]) -> Said:
    """A message from a row of the table."""
    return Said(
        id=row.id,
        session=row.session,
        seq=row.seq,
        at=datetime.fromtimestamp(row.at / 1000, UTC),
        role=row.role,
        name=row.name,
        text=row.text,
    )
