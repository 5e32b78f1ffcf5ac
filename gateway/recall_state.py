"""What one session is shown of memory: what its model sees already, and what may still be added to that."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import orjson

from gateway.kept_prefixes import KeptMemory, KeptPrefix
from memory.recall import ALWAYS, Recalled, fit, render
from memory.workspace import ROOT_FILE
from sessions.entries import AssistantEntry, RecallEntry, SummaryEntry, ToolResultEntry, UserEntry

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence, Set

    from memory.policy import RecallPolicy
    from memory.records import Viewer
    from sessions.entries import Entry
    from sessions.session import Session

MEMORY_TOOLS = "Memory"
"""How the names of the tools begin whose results hold memories."""

LATE_PLACES = 3
"""What was found late for an earlier message has so many places, however much the newest one finds."""

MOST_WAITING = 200
"""Searches in a chat of many that have come late, each for a person who has not spoken since."""


@dataclass(slots=True)
class Room:
    """How many memories may still be added; searches for the same purpose share it. `late`: so many of these places
    are for searches of earlier messages."""

    left: int
    late: int = 0


@dataclass(slots=True)
class Search:
    """A search that runs, or has ended and was not shown yet.

    `late`: nobody waited for its end, so what it found may have been deleted since. `earlier`: it shares the room of a
    message that came after its own.
    """

    task: asyncio.Task[list[Recalled]]
    viewer: Viewer
    room: Room
    late: bool = True
    earlier: bool = False


@dataclass(frozen=True, slots=True)
class Prefix:
    """What stands in a session's system text: the agent's notes, and what is always on for one person (`owner`)."""

    owner: Viewer | None
    notes: str | None
    always: tuple[Recalled, ...] = ()

    @property
    def text(self) -> str | None:
        return "\n\n".join(text for text in (self.notes, render(self.always, ALWAYS)) if text) or None

    def not_in(self, former: Prefix | None) -> list[str]:
        """The ids of what is always on here and was not before."""
        known = set[str]() if former is None or former.owner != self.owner else {one.id for one in former.always}
        return [one.id for one in self.always if one.id not in known]

    def without(self, gone: Callable[[Recalled], bool]) -> Prefix:
        return replace(self, always=tuple(one for one in self.always if not gone(one)))

    def kept(self) -> KeptPrefix:
        """As it outlives a restart: without the words of memories."""
        always = [
            KeptMemory(one.id, one.created_at, one.revision, one.topic)
            for one in self.always
            if one.created_at is not None
        ]
        return KeptPrefix(None if self.owner is None else self.owner.user, self.notes, tuple(always))


@dataclass(slots=True)
class Shown:
    """One session. `shown` stands in the calls of the running turn, `unsure` comes back to it when the records say that
    it is still there; `noted` are the ids a transcript names already,
    `noted_always` those of the prefix.

    `kept` is what a restart would find of the prefix. `asked` are the ids memory tools have named in a chat of many,
    `asking` the reading of their words.
    """

    settings: RecallPolicy
    turn: str = ""
    viewer: Viewer | None = None
    prefix: Prefix | None = None
    kept: KeptPrefix | None = None
    shown: list[Recalled] = field(default_factory=list[Recalled])
    unsure: list[Recalled] = field(default_factory=list[Recalled])
    noted: set[str] = field(default_factory=set[str])
    noted_always: set[str] = field(default_factory=set[str])
    searches: list[Search] = field(default_factory=list[Search])
    asking: list[Search] = field(default_factory=list[Search])
    asked: set[str] = field(default_factory=set[str])
    searches_left: int = 0
    _told: list[str] = field(default_factory=list[str])
    _generation: int = 0
    _read: int = 0

    def begin(self, turn: str, viewer: Viewer, settings: RecallPolicy) -> None:
        """A turn begins. What was found late for somebody else waits for their next one."""
        self.turn, self.viewer, self.settings = turn, viewer, settings
        self.shown, self.unsure, self.noted = [], [], set()
        self.asking, self.asked = [], set()
        self.searches = self.searches[-MOST_WAITING:]
        self.refill()

    def waiting(self) -> list[Search]:
        """What earlier turns of the one who speaks have left, to be confirmed before it is shown."""
        return [search for search in self.searches if search.viewer == self.viewer]

    def behind(self, earlier: Sequence[Search], room: Room | None) -> None:
        """Searches of earlier turns take the places that those of this one leave, or `LATE_PLACES`. None: they keep
        their own."""
        for search in earlier:
            search.late, search.earlier = True, room is not None
            search.room = search.room if room is None else room
        self.searches = [one for one in self.searches if not _is_in(one, earlier)] + list(earlier)

    def ended(self) -> list[Search]:
        """The searches of the one who speaks that have ended, and were not shown yet."""
        return [search for search in self.searches if search.viewer == self.viewer and search.task.done()]

    def take(self, shown: Sequence[Search]) -> None:
        """These searches are shown now."""
        self.searches = [search for search in self.searches if not _is_in(search, shown)]

    def confirm(self, there: Set[Recalled] | None) -> None:
        """Shows what is still there, and nothing as long as nobody can tell (None)."""
        known = [*self.shown, *self.unsure]
        if there is None:
            self.shown, self.unsure = [], known
            return
        kept = {one.id: one for one in reversed(known) if one in there and not self.sees(one)}
        self.shown, self.unsure = list(kept.values())[::-1], []

    def refill(self) -> None:
        """A new message of the person: searching while the turn runs begins anew."""
        self.searches_left = self.settings.mid_turn.searches

    def read(self, session: Session) -> None:
        """Takes note of what memory tools have answered, which stands in the history word for word, and of what entries
        say of the prefix."""
        entries = session.entries
        if session.record.generation != self._generation or len(entries) < self._read:
            self._told, self._read, self._generation = [], 0, session.record.generation
            self.noted_always = noted_always(entries)  # whoever learns from a generation may read no other
        fresh = entries[self._read :]
        self._told += [e.text for e in fresh if isinstance(e, ToolResultEntry) and e.name.startswith(MEMORY_TOOLS)]
        self._read = len(entries)

    def sees(self, one: Recalled) -> bool:
        """Whether the model is shown the same words already, in the prefix or by a tool. A text that has changed since
        is new to it."""
        prefix = self.prefix
        if prefix is not None and any(known.id == one.id and known.text == one.text for known in prefix.always):
            return True
        if one.where is not None and one.where.startswith(f"{ROOT_FILE}:"):
            notes = prefix.notes if prefix is not None else None
            if one.text.strip() in (notes or ""):
                return True
        told = f'"text":{orjson.dumps(one.text).decode()}'
        return any(told in text for text in self._told)

    def show(self, found: Sequence[tuple[Search, Sequence[Recalled]]]) -> None:
        """Shows of what searches have found what fits, and is not seen already."""
        shown = {one.id for one in self.shown}
        for search, hits in found:
            if search.earlier:
                fresh = sum(one.id not in shown and not self.sees(one) for one in hits)
                search.room.late = min(LATE_PLACES, search.room.late + fresh)
        for search, hits in found:
            self._add(hits, search.room, search.room.left - (0 if search.earlier else search.room.late))
        for search, _ in found:
            search.room.late = 0

    def _add(self, found: Iterable[Recalled], room: Room, limit: int) -> None:
        fresh = [one for one in found if not self.sees(one)]
        size_bytes = self.settings.max_bytes - sum(one.size_bytes for one in self.shown)
        chosen = fit(fresh, seen=self.shown, limit=max(0, limit), max_bytes=size_bytes)
        room.left -= len(chosen)
        self.shown += chosen

    def unnoted(self) -> list[Recalled]:
        """What is shown and named in no entry yet; from now on it is."""
        fresh = [one for one in self.shown if one.id not in self.noted]
        self.noted |= {one.id for one in fresh}
        return fresh

    def unnoted_always(self) -> list[str]:
        """The same for what stands in the prefix."""
        always = () if self.prefix is None else self.prefix.always
        fresh = [one.id for one in always if one.id not in self.noted_always]
        self.noted_always |= set(fresh)
        return fresh


def _is_in(search: Search, searches: Iterable[Search]) -> bool:
    return any(search is one for one in searches)


def unshown(entries: Sequence[Entry], turn: str, user: str | None) -> str | None:
    """What a person said last, where nothing is noted as shown for it: the search may have come late, and have been
    lost when the session left memory. Not what was carried over a summary: what was shown for that is not noted here.
    """
    opening = entries[0].seq if entries and isinstance(entries[0], SummaryEntry) else 0
    reply = next((e for e in reversed(entries) if isinstance(e, AssistantEntry) and e.turn is not None), None)
    if reply is None or reply.seq < opening or reply.turn == turn:
        return None
    turns = {reply.turn, *reply.also}
    noted = (e.shown for e in entries if isinstance(e, RecallEntry) and e.turn in turns)
    if any(shown.get("memories") or shown.get("files") for shown in noted):
        return None
    return "\n".join(e.text for e in entries if isinstance(e, UserEntry) and e.turn in turns and e.user == user) or None


def noted_always(entries: Iterable[Entry]) -> set[str]:
    """What entries say of the prefix."""
    return {str(one) for e in entries if isinstance(e, RecallEntry) for one in e.shown.get("always") or ()}


def shown_of(shown: Sequence[Recalled]) -> dict[str, list[str]]:
    """What was shown, by what can be looked up: ids of memories, files with their lines."""
    return {
        "memories": [one.id for one in shown if one.kind == "memory"],
        "files": [one.where for one in shown if one.kind == "file" and one.where is not None],
    }
