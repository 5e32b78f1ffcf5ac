"""What happens in all sessions, in one order: a bounded ring of events that any number of readers follow."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection

KEPT_EVENTS = 10_000
KEPT_CHARACTERS = 16 * 1024 * 1024
MISSED = "Events before this one are gone. Read the transcripts of the sessions you follow, then go on from here."


@dataclass(frozen=True, slots=True)
class BusEvent:
    """One event. `session` and `owner` are those of the session it belongs to; `id` is where to go on after it.

    `turn`: whose own events tell the same.
    """

    id: str
    name: str
    key: str
    session: str | None
    owner: str | None
    fields: dict[str, Any]
    turn: str | None = None


class _Reader:
    """One who follows. While it sleeps it needs no looking after: `since` is the first event it has not seen."""

    __slots__ = ("since", "woken")

    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self.since: int | None = None

    def wake(self, number: int) -> None:
        if self.since is None:
            self.since = number
            self.woken.set()


class EventBus:
    """Events of one run of the daemon, numbered from 1; an id is `<run>-<number>`.

    Nothing is kept on disk: what an event tells of is in the transcripts. Readers hold nobody up; one who asks for
    events that are gone (too slow, or from before a restart) gets a `gap` event first.
    """

    def __init__(self, run: str, *, kept: int = KEPT_EVENTS, kept_characters: int = KEPT_CHARACTERS) -> None:
        self.run = run
        self._kept = kept
        self._kept_characters = kept_characters
        self._events: deque[BusEvent | None] = deque()
        self._first = 1
        self._characters = 0
        self._of_keys: dict[str, set[_Reader]] = {}
        self._of_all: set[_Reader] = set()
        self._closed = False

    @property
    def last_id(self) -> str:
        """The id of the newest event; going on after it misses nothing."""
        return f"{self.run}-{self._first + len(self._events) - 1}"

    @property
    def readers(self) -> int:
        """How many follow."""
        return len(self._of_all.union(*self._of_keys.values()))

    def recent(self) -> list[BusEvent]:
        """The events that can still be asked for."""
        return [event for event in self._events if event is not None]

    def emit(
        self,
        name: str,
        fields: dict[str, Any],
        *,
        key: str,
        session: str | None,
        owner: str | None,
        turn: str | None = None,
    ) -> None:
        """Tells everybody who follows the key. Returns at once."""
        number = self._first + len(self._events)
        told = {"key": key, "session": session, **fields}
        event = BusEvent(f"{self.run}-{number}", name, key, session, owner, told, turn)
        self._events.append(event)
        self._characters += _characters(event)
        while len(self._events) > self._kept or (self._characters > self._kept_characters and len(self._events) > 1):
            self._characters -= _characters(self._events.popleft())
            self._first += 1
        for reader in self._of_keys.get(key, ()):
            reader.wake(number)
        for reader in self._of_all:
            reader.wake(number)

    def forget(self, sessions: Collection[str]) -> None:
        """What was told of deleted sessions is told to nobody any more."""
        for at, event in enumerate(self._events):
            if event is not None and event.session in sessions:
                self._characters -= _characters(event)
                self._events[at] = None

    def close(self) -> None:
        """No further event comes; readers end."""
        self._closed = True
        for reader in self._of_all.union(*self._of_keys.values()):
            reader.woken.set()

    async def follow(
        self, keys: Collection[str] | None, allowed: Callable[[BusEvent], bool], after: str | None = None
    ) -> AsyncGenerator[BusEvent, None]:
        """Events of the keys (None: of all) that are allowed: those after the id `after`, or new ones from now on.

        The first event is `open` with the id to go on from, or `gap`. Ends when the bus is closed.
        """
        reader = _Reader()
        places = [self._of_all] if keys is None else [self._of_keys.setdefault(key, set()) for key in set(keys)]
        for place in places:
            place.add(reader)
        try:
            async for event in self._read(reader, None if keys is None else frozenset(keys), after):
                if event.name in ("open", "gap") or allowed(event):
                    yield event
        finally:
            for place in places:
                place.discard(reader)
            for key in keys or ():
                if not self._of_keys.get(key, True):
                    del self._of_keys[key]

    async def _read(
        self, reader: _Reader, keys: frozenset[str] | None, after: str | None
    ) -> AsyncGenerator[BusEvent, None]:
        following = self._first + len(self._events)
        position = following if after is None else self._after(after)
        if position is not None and position >= self._first:
            yield self._word("open", position)
        while True:
            if position is None or position < self._first:
                position = self._first
                yield self._word("gap", position, detail=MISSED)
                continue
            reader.woken.clear()
            reader.since = None
            while position >= self._first and position < self._first + len(self._events):
                event = self._events[position - self._first]
                position += 1
                if event is not None and (keys is None or event.key in keys):
                    yield event
            if position < self._first:
                continue
            if self._closed:
                return
            await reader.woken.wait()
            if reader.since is None:
                return
            position = max(position, reader.since)

    def _after(self, event_id: str) -> int | None:
        """The number after an event's id; None for an id of another run, or none of ours."""
        run, _, digits = event_id.rpartition("-")
        if run != self.run or not (digits.isascii() and digits.isdigit()) or len(digits) > 15:
            return None
        number = int(digits) + 1
        return number if number <= self._first + len(self._events) else None

    def _word(self, name: str, position: int, **fields: Any) -> BusEvent:
        return BusEvent(f"{self.run}-{position - 1}", name, "", None, None, fields)


def _characters(event: BusEvent | None) -> int:
    return 0 if event is None else sum(len(value) for value in event.fields.values() if isinstance(value, str))
