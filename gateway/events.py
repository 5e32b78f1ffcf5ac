"""The events of one turn: kept while they may be replayed, read by any number of followers at their own pace."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

START = "0.0"


@dataclass(frozen=True, slots=True)
class TurnEvent:
    """One event as a follower sees it. `id` is where to go on after it (`Last-Event-ID`)."""

    id: str
    name: str
    fields: dict[str, Any]


class _Text:
    """A run of consecutive text deltas, kept as one string however many pieces it came in."""

    __slots__ = ("_joined", "_pieces", "length")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._joined = ""
        self.length = 0

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self.length += len(piece)

    def text(self) -> str:
        if self._pieces:
            self._joined += "".join(self._pieces)
            self._pieces.clear()
        return self._joined


class EventLog:
    """Replayable events. Text deltas are stored as runs: a reader that is slow or late gets fewer, larger deltas, and a
    thousand readers cost no more memory than one.

    An event id is `<origin>-<position>.<offset>`: how many events came before, and how many characters of the running
    text. An id of another origin means the beginning: the same turn after a restart has other events at these places.
    """

    __slots__ = ("_changed", "_closed", "_items", "_prefix", "_tell")

    def __init__(self, tell: Callable[[str, dict[str, Any]], None] | None = None, *, origin: str = "") -> None:
        """`tell` gets every event but the text deltas."""
        self._tell = tell
        self._prefix = f"{origin}-" if origin else ""
        self._items: list[tuple[str, dict[str, Any]] | _Text] = []
        self._closed = False
        self._changed: asyncio.Event | None = None

    def emit(self, name: str, /, **fields: Any) -> None:
        self._items.append((name, fields))
        if self._tell is not None:
            self._tell(name, fields)
        self._wake()

    def emit_text(self, piece: str) -> None:
        if not self._items or not isinstance(self._items[-1], _Text):
            self._items.append(_Text())
        run = self._items[-1]
        assert isinstance(run, _Text)  # noqa: S101
        run.add(piece)
        self._wake()

    def close(self) -> None:
        """No further event comes; followers end after the last one."""
        self._closed = True
        self._tell = None
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def since(self, name: str) -> str:
        """The id to go on from, so that only what came after the last event of a name follows."""
        for position in range(len(self._items) - 1, -1, -1):
            item = self._items[position]
            if not isinstance(item, _Text) and item[0] == name:
                return f"{self._prefix}{position + 1}.0"
        return f"{self._prefix}{START}"

    async def follow(self, after: str = START) -> AsyncIterator[TurnEvent]:
        """Events after the one with id `after`, then new ones as they come, until the log is closed."""
        ours = after.startswith(self._prefix)
        position, offset = parse_event_id(after.removeprefix(self._prefix)) if ours else (0, 0)
        while True:
            while position < len(self._items):
                item = self._items[position]
                if isinstance(item, _Text):
                    if offset < item.length:
                        piece = item.text()[offset:]
                        offset += len(piece)
                        yield TurnEvent(f"{self._prefix}{position}.{offset}", "delta", {"text": piece})
                        continue
                    if position == len(self._items) - 1:
                        break
                    position, offset = position + 1, 0
                    continue
                position, offset = position + 1, 0
                name, fields = item
                yield TurnEvent(f"{self._prefix}{position}.0", name, fields)
            if self._closed and not self._has_more(position, offset):
                return
            if not self._has_more(position, offset):
                if self._changed is None:
                    self._changed = asyncio.Event()
                await self._changed.wait()

    def _has_more(self, position: int, offset: int) -> bool:
        if position >= len(self._items):
            return False
        item = self._items[position]
        return not isinstance(item, _Text) or offset < item.length or position < len(self._items) - 1


def parse_event_id(raw: str) -> tuple[int, int]:
    """(position, offset) of an event id; anything unreadable means the beginning, so nothing is skipped."""
    position, _, offset = raw.partition(".")
    if not (position.isascii() and position.isdigit() and offset.isascii() and offset.isdigit()):
        return 0, 0
    if len(position) > 15 or len(offset) > 15:
        return 0, 0
    return int(position), int(offset)
