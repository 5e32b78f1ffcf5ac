"""What an entry changes in the index record of its session."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from sessions.entries import (
    AssistantEntry,
    CommandEntry,
    EndedEntry,
    Entry,
    PinnedEntry,
    ResumedEntry,
    SummaryEntry,
    UserEntry,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sessions.record import SessionRecord

TITLE_CHARACTERS = 80


def tallied(record: SessionRecord, entries: Iterable[Entry]) -> SessionRecord:
    """The record after `entries` were appended to its transcript; size and open turns are the store's to set."""
    for entry in entries:
        record = _after(record, entry)
    return record


def _after(record: SessionRecord, entry: Entry) -> SessionRecord:
    counted = dataclasses.replace(
        record, entries=record.entries + 1, last_seq=max(record.last_seq, entry.seq), active_at=record.active_at
    )
    match entry:
        case UserEntry():
            return dataclasses.replace(
                counted,
                messages=record.messages + 1,
                active_at=max(record.active_at, entry.at),
                title=record.title or title_of(entry.text),
            )
        case AssistantEntry():
            spent = entry.usage
            return dataclasses.replace(
                counted,
                messages=record.messages + 1,
                input_tokens=record.input_tokens + (spent.input_total if spent else 0),
                output_tokens=record.output_tokens + (spent.output if spent else 0),
                cache_read=record.cache_read + (spent.cached_read if spent else 0),
                cache_write=record.cache_write + (spent.cache_write if spent else 0),
            )
        case EndedEntry():
            return dataclasses.replace(counted, ended=entry.reason)
        case ResumedEntry():
            return dataclasses.replace(counted, ended=None, active_at=max(record.active_at, entry.at))
        case SummaryEntry():
            return dataclasses.replace(counted, compactions=record.compactions + 1)
        case CommandEntry() | PinnedEntry() | _:
            return counted


def title_of(text: str) -> str | None:
    """The first line of a message, shortened at a word; None when there is no text in it."""
    line = next((stripped for raw in text.splitlines() if (stripped := raw.strip())), "")
    if len(line) <= TITLE_CHARACTERS:
        return line or None
    return line[:TITLE_CHARACTERS].rsplit(" ", 1)[0] + "…"
