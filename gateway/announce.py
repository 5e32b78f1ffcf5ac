"""Tells the bus what entries mean for those who follow a key: sessions that start, end and are summarised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessions.entries import CompactionEntry, CompactionFailedEntry, CompactionStartedEntry, EndedEntry, ResumedEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.bus import EventBus
    from gateway.turn import Turn
    from sessions.entries import Entry
    from sessions.session import Session
    from sessions.store import SessionStore

TOLD_BY_ENTRIES = ("session.started", "compaction")
"""What turns tell their own followers, too."""


def announce(store: SessionStore, bus: EventBus) -> Callable[[Session, Sequence[Entry]], None]:
    """A hook for the store: whoever ends a session, by a command, a reset or a timer, it is told once, and here.

    What was told of a deleted session before is forgotten.
    """

    def told(session: Session, written: Sequence[Entry]) -> None:
        record = session.record
        events = [event for entry in written if (event := event_of(entry)) is not None]
        if written and written[0].seq == 1:
            former = store.index.find(record.previous) if record.previous else None
            reason = former.ended if former and former.ended else "first"
            events.insert(0, ("session.started", {"reason": reason, "previous": record.previous}))
        for name, fields in events:
            if name == "session.deleted":
                bus.forget((session.id,))
            bus.emit(name, fields, key=record.key, session=session.id, owner=record.owner)

    return told


def announce_progress(
    running: Callable[[str], Sequence[Turn]], bus: EventBus
) -> Callable[[Session, dict[str, Any]], None]:
    """A hook for the compactor. `running`: the turns that run in a session; they are told of each step. Who follows the
    key is told how far it is, and hears of the rest from the entries."""

    def told(session: Session, fields: dict[str, Any]) -> None:
        for turn in running(session.id):
            turn.events.emit("compaction", **fields)
        if fields["state"] == "progress":
            record = session.record
            bus.emit("compaction", fields, key=record.key, session=session.id, owner=record.owner)

    return told


def event_of(entry: Entry) -> tuple[str, dict[str, Any]] | None:
    """(name, fields) of what an entry tells all followers; None for what its turn tells."""
    match entry:
        case EndedEntry(reason="deleted"):
            return "session.deleted", {}
        case EndedEntry():
            return "session.ended", {"reason": entry.reason}
        case ResumedEntry():
            return "session.started", {"reason": "resume"}
        case CompactionStartedEntry():
            return "compaction", {"state": "started", "reason": entry.reason}
        case CompactionEntry():
            return "compaction", {"state": "done", "generation": entry.generation}
        case CompactionFailedEntry():
            return "compaction", {"state": "failed", "error": entry.error}
        case _:
            return None
