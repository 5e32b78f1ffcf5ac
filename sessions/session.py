"""One session in memory: its record, and what was said since its newest summary."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sessions.context import answered_turns, open_turns, uncarried
from sessions.entries import (
    AssistantEntry,
    CommandEntry,
    EndedEntry,
    Entry,
    ResumedEntry,
    RetractedEntry,
    SummaryEntry,
    ToolResultEntry,
    UserEntry,
    session_of_turn,
    turn_id,
)
from sessions.keys import SessionKey, parse_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sessions.lines import Problem
    from sessions.record import SessionRecord
    from sessions.transcript import Transcript

MESSAGE_OVERHEAD = 4


class SessionGone(LookupError):
    """The session was deleted while it was in use."""


@dataclass(frozen=True, slots=True)
class Request:
    """The turn a caller's `request_id` opened, and the hash of the body that did."""

    turn: str
    sha256: str | None


class Session:
    """One session in memory: its record, and all entries of its current generation.

    `entries` are in the order of the file; what an earlier generation carried over stands there as itself. `tokens` is
    what they come to in a prompt, by our own count. `commands` are those since the session last ended or was resumed.
    """

    __slots__ = (
        "__weakref__",
        "_highest",
        "_rising",
        "commands",
        "deleted",
        "entries",
        "lock",
        "open",
        "problems",
        "record",
        "requests",
        "requests_whole",
        "tokens",
        "transcript",
    )

    def __init__(self, record: SessionRecord, transcript: Transcript, entries: Sequence[Entry]) -> None:
        self.record = record
        self.transcript = transcript
        self.entries: list[Entry] = []
        self.open: dict[str, None] = {}
        self.commands: list[CommandEntry] = []
        self.requests: dict[str, Request] = {}
        self.requests_whole = record.generation == 1
        self.problems: tuple[Problem, ...] = ()
        self.deleted = False
        self.tokens = 0
        self._highest = 0
        self._rising = True
        self.lock = asyncio.Lock()
        self._add(entries)

    @property
    def id(self) -> str:
        return self.record.session

    @property
    def key(self) -> SessionKey:
        """With its agent, which keys of jobs and webhooks do not name."""
        return dataclasses.replace(parse_key(self.record.key), agent=self.record.agent)

    @property
    def ended(self) -> bool:
        return self.record.ended is not None

    def since(self, turn: str) -> list[Entry]:
        """The entries from the first one of a turn on. Those before it are looked at only where somebody has edited the
        file, so that numbers do not rise."""
        parts = session_of_turn(turn)
        if parts is None or parts[0] != self.id:
            return []
        if not self._rising:
            return [entry for entry in self.entries if entry.seq >= parts[1]]
        later: list[Entry] = []
        for entry in reversed(self.entries):
            if entry.seq < parts[1]:
                break
            later.append(entry)
        return later[::-1]

    def turn_entries(self, turn: str) -> list[Entry]:
        """The entries of one turn, in the order they were written."""
        return [e for e in self.since(turn) if e.turn == turn or turn in getattr(e, "also", ())]

    def _add(self, written: Sequence[Entry]) -> None:
        entries = uncarried(written)
        self.entries.extend(entries)
        self.tokens += sum(e.tokens + MESSAGE_OVERHEAD for e in entries if e.tokens)
        for entry in entries:
            self._remember(entry)
            if not isinstance(
                entry, SummaryEntry
            ):  # it opens a generation, before older entries that were carried over
                self._rising = self._rising and entry.seq > self._highest
                self._highest = max(self._highest, entry.seq)
            match entry:
                case UserEntry():
                    if entry.turn:
                        self.open[entry.turn] = None
                case CommandEntry():
                    self.commands.append(entry)
                case EndedEntry() | ResumedEntry():
                    self.commands.clear()
                case ToolResultEntry(turn=str(turn)) if turn == turn_id(self.id, entry.seq):
                    self.open[turn] = None
                case RetractedEntry():
                    self.open = dict.fromkeys(open_turns(self.entries))
                case _:
                    pass
        for turn in answered_turns(entries):
            self.open.pop(turn, None)

    def _remember(self, entry: Entry) -> None:
        """What was stored without a turn is known by where it begins."""
        if isinstance(entry, UserEntry | CommandEntry | AssistantEntry | ToolResultEntry) and entry.request_id:
            turn = entry.turn or turn_id(self.id, entry.seq)
            self.requests.setdefault(entry.request_id, Request(turn, entry.request_sha256))

    def know_requests(self, former: Sequence[Entry]) -> None:
        """Request ids of entries of earlier generations."""
        for entry in former:
            self._remember(entry)
        self.requests_whole = True

    def moved(self, entries: Sequence[Entry], record: SessionRecord, transcript: Transcript) -> None:
        """Go on in a new generation, which is on disk. Requests of the ones before stay known while it is in memory."""
        self.transcript = transcript
        self.entries.clear()
        self.tokens = 0
        self._highest, self._rising = 0, True
        self.open.clear()
        self.committed(entries, record)

    def committed(self, entries: Sequence[Entry], record: SessionRecord) -> None:
        """Take over what is now on disk."""
        self._add(entries)
        self.record = dataclasses.replace(record, open_turns=len(self.open), size=self.transcript.size)
