"""Lists of sessions: which rows of the index fit, and in which order they come. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Literal

import orjson

from sessions.entries import parse_time
from sessions.snapshot import at_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sessions.record import SessionState

SessionSort = Literal["active", "idle", "created", "messages", "context", "cost"]
Place = tuple[int, str]
"""Where a session stands in a list: its rank there, and its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """Which sessions a list shows. `allowed` gets a record's key and owner; `owner`: it allows nothing that belongs to
    anybody else, which is told at a glance.

    `sort`: last used first (`active`), longest unused first (`idle`), or the highest first of when it began, its
    messages, the share of its window that is filled, and its cost.
    """

    limit: int = 50
    cursor: str | None = None
    state: SessionState = "active"
    agent: str | None = None
    channel: str | None = None
    type: str | None = None
    search: str | None = None
    allowed: Callable[[str, str | None], bool] | None = None
    owner: str | None = None
    sort: SessionSort = "active"

    @property
    def by_use(self) -> bool:
        """Whether the list has the order in which the index keeps its rows."""
        return self.sort in ("active", "idle")


class BadCursor(ValueError):
    """A cursor that no list has given out."""


def cursor_of(place: Place, sort: SessionSort) -> str:
    """Where a page ended; a list of another order does not take it."""
    return f"{place[0]}.{place[1]}" if sort == "active" else f"{sort}.{place[0]}.{place[1]}"


def place_of(query: PageQuery) -> Place | None:
    """Where the page before ended; None: at the beginning. Raises BadCursor."""
    if query.cursor is None:
        return None
    raw = query.cursor if query.sort == "active" else query.cursor.removeprefix(f"{query.sort}.")
    rank, _, session = raw.partition(".")
    digits = rank.removeprefix("-")
    if not session or not digits.isascii() or not digits.isdecimal() or len(query.cursor) > 100:
        raise BadCursor("This cursor is not from this list of sessions. Leave it out to start at the beginning.")
    return int(rank), session


def sieve_of(query: PageQuery) -> Callable[[bytes], bool]:
    """What every row passes that fits: most others are told by their bytes, without being decoded."""
    wanted = {"agent": query.agent, "channel": query.channel, "type": query.type}
    marks = [_mark(name, value) for name, value in wanted.items() if value is not None]
    owner = None if query.owner is None else _mark("owner", query.owner)
    longest = max((query.search or "").split(" "), key=len)  # what holds a space may reach from the key into the title
    words = longest.lower().encode() if longest and _is_plain(longest) else None

    def passes(row: bytes) -> bool:
        if owner is not None and owner not in row and b'"owner":' in row:
            return False
        if words is not None and words not in row.lower() and row.isascii():
            return False
        return not marks or all(mark in row for mark in marks)

    return passes


def _mark(name: str, value: str) -> bytes:
    return b'"%b":%b' % (name.encode(), orjson.dumps(value))


def _is_plain(text: str) -> bool:
    """Whether JSON writes a text as it is."""
    return text.isascii() and orjson.dumps(text)[1:-1] == text.encode()


def fits(row: bytes, query: PageQuery) -> bool:
    if query.agent is query.channel is query.type is query.search is query.allowed is None:
        return True
    fields = orjson.loads(row)
    return (
        (query.agent is None or fields["agent"] == query.agent)
        and (query.channel is None or fields.get("channel") == query.channel)
        and (query.type is None or fields["type"] == query.type)
        and (
            query.search is None or query.search.casefold() in f"{fields['key']} {fields.get('title') or ''}".casefold()
        )
        and (query.allowed is None or query.allowed(fields["key"], fields.get("owner")))
    )


def rank_of(row: bytes, sort: SessionSort) -> int:
    """By what a list is ordered: milliseconds, messages, millionths of a window or of a dollar. What is not known is
    below everything that is."""
    fields: Mapping[str, Any] = orjson.loads(row)
    match sort:
        case "active" | "idle":
            return at_ms(parse_time(fields["active_at"]))
        case "created":
            return at_ms(parse_time(fields["created_at"])) if "created_at" in fields else -1
        case "messages":
            return fields.get("messages", 0)
        case "context":
            tokens, window = fields.get("context_tokens"), fields.get("window")
            return tokens * 1_000_000 // window if tokens is not None and window else -1
        case "cost":
            return _micros(fields.get("cost"))


def _micros(cost: str | None) -> int:
    try:
        return -1 if cost is None else int(Decimal(cost) * 1_000_000)
    except (InvalidOperation, ValueError, OverflowError):
        return -1
