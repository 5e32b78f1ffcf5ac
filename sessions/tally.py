"""What an entry changes in the index record of its session."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from sessions.entries import AssistantEntry, EndedEntry, Entry, ResumedEntry, RetractedEntry, SummaryEntry, UserEntry
from sessions.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sessions.record import SessionRecord

TITLE_CHARACTERS = 80
RUNS = ("job:", "hook:")


def tallied(record: SessionRecord, entries: Iterable[Entry]) -> SessionRecord:
    """The record after `entries` were appended to its transcript; size and open turns are the store's to set."""
    for entry in entries:
        record = _after(record, entry)
    return record


def _after(record: SessionRecord, entry: Entry) -> SessionRecord:
    return dataclasses.replace(
        record, entries=record.entries + 1, last_seq=max(record.last_seq, entry.seq), **_changed(record, entry)
    )


def _changed(record: SessionRecord, entry: Entry) -> dict[str, Any]:
    """What an entry changes beside its being one more, by field of the record."""
    match entry:
        case UserEntry():
            return {
                "messages": record.messages + 1,
                "active_at": record.active_at if _by_machine(record, entry) else max(record.active_at, entry.at),
                "title": record.title or title_of(entry.text),
            }
        case AssistantEntry(usage=None):
            return {"messages": record.messages + 1}
        case AssistantEntry(usage=Usage() as spent):
            return {
                "messages": record.messages + 1,
                "input_tokens": record.input_tokens + spent.input_total,
                "output_tokens": record.output_tokens + spent.output,
                "cache_read": record.cache_read + spent.cached_read,
                "cache_write": record.cache_write + spent.cache_write,
            }
        case EndedEntry():
            return {"ended": entry.reason}
        case ResumedEntry():
            return {"ended": None, "active_at": max(record.active_at, entry.at), "resumed_at": entry.at}
        case RetractedEntry():
            return {"context_tokens": None}
        case SummaryEntry():
            return {"compactions": record.compactions + 1}
        case _:
            return {}


def _by_machine(record: SessionRecord, entry: UserEntry) -> bool:
    """What a job or a webhook says in a chat of people counts as nobody's activity."""
    return (entry.source or "").startswith(RUNS) and record.type not in ("cron", "hook", "sub")


def title_of(text: str) -> str | None:
    """The first line of a message, shortened at a word; None when there is no text in it."""
    line = next((stripped for raw in text.splitlines() if (stripped := raw.strip())), "")
    if len(line) <= TITLE_CHARACTERS:
        return line or None
    return line[:TITLE_CHARACTERS].rsplit(" ", 1)[0] + "…"
