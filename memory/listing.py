"""Conditions and orders of lists of memories: pure, from filters to SQL."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    and_,
    bindparam,
    exists,
    false,
    func,
    literal_column,
    not_,
    or_,
    select,
    true,
    tuple_,
)

from memory.access import own_scope, readable, readable_among
from memory.errors import InvalidMemory
from memory.records import checked_time, composed
from memory.rows import millis
from memory.tables import memories, topics

if TYPE_CHECKING:
    from datetime import datetime

    from memory.records import Filters, ListQuery, Sort, Viewer

LEAST_IMPORTANCE = 1
ACTIVE = memories.c.state == literal_column("'active'")
"""In these words the index of places has it; with a parameter SQLite would not know that, and read the whole table."""
HEAD = memories.alias("head")
NOW = bindparam("now", type_=BigInteger)
"""The time of what `valid` returns, in milliseconds: given with each execution, as `moment(now)`."""


def seen(viewer: Viewer, filters: Filters, column: ColumnElement[str] = memories.c.pool) -> ColumnElement[bool]:
    """Rows the viewer may see and means: of the named pools, or of all that are its own. `column` holds the pool."""
    if filters.pools is None:
        return and_(readable(viewer, column), own_scope(viewer, column))
    return readable_among(viewer, column, filters.pools)


def fitting(viewer: Viewer, filters: Filters, column: ColumnElement[str] = memories.c.pool) -> ColumnElement[bool]:
    """Everything filters ask for but the state. `column` holds the pool."""
    conditions = [seen(viewer, filters, column)]
    if filters.min_importance > LEAST_IMPORTANCE:
        conditions.append(memories.c.importance >= filters.min_importance)
    if filters.no_topic:
        conditions.append(memories.c.topic.is_(None))
    if filters.topics is not None:
        conditions.append(memories.c.topic.in_(filters.topics) if filters.topics else false())
    if filters.kinds is not None:
        conditions.append(memories.c.kind.in_(filters.kinds))
    if filters.origins is not None:
        conditions.append(memories.c.source["origin"].as_string().in_(filters.origins))
    for name, value in filters.properties.items():
        conditions.append(_has_property(name, value))
    if filters.recalled:
        bound = (
            or_(topics.c.project.is_(None), topics.c.project == viewer.project)
            if viewer.project
            else (topics.c.project.is_(None))
        )
        conditions.append(exists(select(topics.c.id).where(topics.c.id == memories.c.topic, bound)))
    return and_(*conditions)


def _has_property(name: str, value: str) -> ColumnElement[bool]:
    """SQLite (3.40) finds no name by its path that has a quote, or a letter JSON may write as an escape."""
    each = func.json_each(memories.c.properties).table_valued("key", "value")
    return exists().select_from(each).where(each.c.key == composed(name), each.c.value == composed(value))


def valid(filters: Filters) -> ColumnElement[bool]:
    """Active rows, or what is true NOW; or what was true at a time, unless it was deleted since: also former versions
    of what is active."""
    if filters.as_of is None:
        return TRUE_NOW if filters.current or filters.recalled else ACTIVE
    at = millis(checked_time("as_of", filters.as_of))
    alive = exists(select(HEAD.c.id).where(HEAD.c.id == memories.c.current, HEAD.c.state == "active"))
    return and_(
        or_(ACTIVE, and_(memories.c.state == "superseded", alive)),
        memories.c.valid_from <= at,
        or_(memories.c.valid_to.is_(None), memories.c.valid_to > at),
    )


def moment(now: datetime) -> dict[str, int]:
    """The parameters of a statement with what `valid` returned."""
    return {NOW.key: millis(now)}


def _true_now() -> ColumnElement[bool]:
    """What is true only later is not yet; until then what it will supersede still is."""
    to_come = exists(
        select(HEAD.c.id).where(HEAD.c.id == memories.c.current, HEAD.c.state == "active", _is_to_come(HEAD.c))
    )
    still = and_(memories.c.state == "superseded", memories.c.valid_from <= NOW, memories.c.valid_to > NOW, to_come)
    return or_(and_(ACTIVE, not_(_is_to_come(memories.c))), still)


def _is_to_come(row: Any) -> ColumnElement[bool]:
    """A clock that was set back makes nothing of it: what was true when it was written is true."""
    return and_(row.valid_from > NOW, row.valid_from > row.created_at, row.valid_from > row.updated_at)


TRUE_NOW = _true_now()
"""Built once: it took a millisecond of every search."""


def order_of(sort: Sort) -> tuple[ColumnElement[Any], ...]:
    """Newest or most important first; ties in the order of ids."""
    column = {
        "updated": memories.c.updated_at,
        "created": memories.c.created_at,
        "importance": memories.c.importance,
    }[sort]
    return column, memories.c.number


def after_condition(query: ListQuery) -> ColumnElement[bool]:
    """Rows below the place a cursor names. Raises InvalidMemory."""
    if query.after is None:
        return true()
    value, number = _read_cursor(query)
    column, key = order_of(query.sort)
    return tuple_(column, key) < tuple_(value, number)


def cursor_of(query: ListQuery, row: Any) -> str:
    """Where a page ended."""
    column, key = order_of(query.sort)
    place = [query.sort, row[column.name], row[key.name]]
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def _read_cursor(query: ListQuery) -> tuple[int, int]:
    try:
        raw = (query.after or "").encode("ascii")
        sort, value, number = json.loads(base64.urlsafe_b64decode(raw + b"=" * (-len(raw) % 4)))
        if sort != query.sort or not isinstance(value, int) or not isinstance(number, int):
            raise ValueError("made for another list")
    except (ValueError, TypeError, binascii.Error) as error:
        raise InvalidMemory("cursor", "is none of this list; start without one") from error
    if max(abs(value), abs(number)) >= 2**63:
        raise InvalidMemory("cursor", "is none of this list; start without one")
    return value, number
