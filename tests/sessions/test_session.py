"""What a session in memory tells of a turn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from sessions.entries import CarriedEntry, Covers, Entry, SummaryEntry, turn_id
from sessions.files import OsFiles
from sessions.record import SessionRecord
from sessions.session import Session
from sessions.transcript import Transcript
from tests.sessions.builders import AT, SESSION, user

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORD = SessionRecord(session=SESSION, key="agent:main:main", agent="main", type="main")


class Watched(list[Entry]):
    """Entries that count how many of them are looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[Entry]:
        for entry in super().__iter__():
            self.looked_at += 1
            yield entry

    def __reversed__(self) -> Iterator[Entry]:
        for entry in super().__reversed__():
            self.looked_at += 1
            yield entry


def session(entries: list[Entry]) -> Session:
    nowhere = Transcript(OsFiles(), Path("nowhere"), header=None, content=b"", ends_open=False, sync=False)
    return Session(RECORD, nowhere, entries)


def said(seq: int) -> Entry:
    return user("hello", seq, turn_id(SESSION, seq))


@given(st.lists(st.integers(1, 30), unique=True), st.integers(1, 30))
def test_a_turns_entries_are_found_whatever_the_order_of_the_file(seqs: list[int], start: int) -> None:
    found = session([said(seq) for seq in seqs]).since(turn_id(SESSION, start))
    assert [entry.seq for entry in found] == [seq for seq in seqs if seq >= start]


def test_what_came_before_a_turn_is_not_looked_at_also_behind_a_summary() -> None:
    opening = SummaryEntry(
        seq=901, at=AT, summary={}, covers=Covers(from_seq=1, to_seq=800, sha256=""), replay_from=801
    )
    carried = [CarriedEntry(seq=901 + n, at=AT, entry=said(800 + n)) for n in range(1, 51)]
    chat = session([opening, *carried, *(said(seq) for seq in range(1000, 1400))])
    chat.entries = Watched(chat.entries)
    assert [entry.seq for entry in chat.since(turn_id(SESSION, 1398))] == [1398, 1399]
    assert chat.entries.looked_at == 3
