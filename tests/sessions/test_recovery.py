"""What a start finds after anything but a stop in order."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from sessions.entries import CarriedEntry, CompactionEntry, Covers, EndedEntry, Entry, Header, SummaryEntry
from sessions.files import OsFiles
from sessions.index import SNAPSHOT, Index
from sessions.recovery import StartReport, reconcile
from sessions.transcript import Transcript, transcript_path
from tests.sessions.builders import AT, assistant, user

if TYPE_CHECKING:
    from pathlib import Path

KEY = "agent:main:main"
NOW = AT + timedelta(days=1)
OLD, NEW = "01HOLD00000000000000000000", "01HSEW00000000000000000000"


def write(folder: Path, session: str, *entries: Entry, generation: int = 1) -> Path:
    path = transcript_path(folder, "main", session, generation)
    header = Header(session=session, generation=generation, key=KEY, agent="main", at=AT)
    Transcript.create(OsFiles(), path, header, sync=False).append(entries)
    return path


def start(folder: Path) -> tuple[Index, StartReport]:
    return reconcile(OsFiles(), folder, now=NOW, stamp="S")


def test_a_missing_index_is_rebuilt_from_the_transcripts(tmp_path: Path) -> None:
    write(tmp_path, NEW, user("hello", 1, f"{NEW}-1"))
    write(tmp_path, OLD, user("earlier", 1), EndedEntry(seq=2, at=AT, reason="daily"))
    index, report = start(tmp_path)
    assert set(report.reread) == {OLD, NEW}
    assert [(r.session, r.state, r.title) for r in index.sessions_of(KEY)] == [
        (NEW, "active", "hello"),
        (OLD, "former", "earlier"),
    ]
    assert [r.session for r in index.with_open_turns()] == [NEW]


def test_only_transcripts_the_index_does_not_cover_are_read_again(tmp_path: Path) -> None:
    for session in (OLD, NEW):
        write(tmp_path, session, user("hello", 1))
    index, _ = start(tmp_path)
    index.flush()
    assert start(tmp_path)[1].reread == ()
    path = transcript_path(tmp_path, "main", OLD, 1)
    opened, _ = Transcript.open(OsFiles(), path, stamp="S", sync=False)
    opened.append([user("more", 2)])
    index, report = start(tmp_path)
    assert report.reread == (OLD,)
    found = index.find(OLD)
    assert found is not None
    assert (found.last_seq, found.messages, found.size) == (2, 2, path.stat().st_size)


def test_after_a_stop_in_order_no_transcript_is_looked_at(tmp_path: Path) -> None:
    path = write(tmp_path, NEW, user("hello", 1))
    index, _ = start(tmp_path)
    index.commit_snapshot(index.prepare_snapshot(clean=True))
    path.write_bytes(b"not looked at")
    index, report = start(tmp_path)
    assert (report.clean, report.sessions, report.changed) == (True, 1, False)


def test_settings_outlive_a_lost_transcript_line_and_a_rebuilt_record(tmp_path: Path) -> None:
    write(tmp_path, NEW, user("hello", 1))
    index, _ = start(tmp_path)
    record = index.find(NEW)
    assert record is not None
    settings = dataclasses.replace(record.settings, model="big")
    index.put(dataclasses.replace(record, settings=settings, size=1))
    index.flush()
    index, report = start(tmp_path)
    found = index.find(NEW)
    assert found is not None
    assert (report.reread, found.settings.model, found.messages) == ((NEW,), "big", 1)


def test_a_deletion_cut_in_the_middle_is_finished_and_nothing_brings_it_back(tmp_path: Path) -> None:
    path = write(tmp_path, NEW, user("secret", 1), EndedEntry(seq=2, at=AT, reason="deleted"))
    index, report = start(tmp_path)
    assert report.finished_deletions == (NEW,)
    assert not path.exists()
    assert index.count() == 0
    (tmp_path / SNAPSHOT).unlink(missing_ok=True)
    assert start(tmp_path)[0].count() == 0


def test_a_file_that_was_never_whole_is_removed_and_named(tmp_path: Path) -> None:
    path = write(tmp_path, NEW, user("hello", 1))
    half = path.with_name(f"{OLD}.1.jsonl.new")
    half.write_bytes(b'{"type":"sess')
    stranger = path.with_name("notes.jsonl")
    stranger.write_bytes(b"mine\n")
    _, report = start(tmp_path)
    assert report.leftovers == (half.name,)
    assert report.unreadable == (stranger.name,)
    assert not half.exists()
    assert stranger.read_bytes() == b"mine\n"


SUMMARY = SummaryEntry(seq=4, at=AT, summary={}, covers=Covers(from_seq=1, to_seq=2, sha256=""), replay_from=3)
SAID = (user("one", 1, f"{NEW}-1"), assistant("two", 2, f"{NEW}-1"))
OPENING = (SUMMARY, CarriedEntry(seq=5, at=AT, entry=SAID[1]))
TOLD = CompactionEntry(seq=3, at=AT, generation=2, anchor=2, replay_from=3)


@pytest.mark.parametrize(
    ("old", "new", "generation"),
    [
        (SAID, OPENING, 1),
        ((*SAID, TOLD), OPENING, 2),
        (SAID, (*OPENING, user("three", 6, f"{NEW}-6")), 2),
    ],
    ids=["nobody was told of it", "the one before leads to it", "something was said in it"],
)
def test_without_an_index_a_generation_that_was_cut_in_the_making_is_known_by_its_content(
    tmp_path: Path, old: tuple[Entry, ...], new: tuple[Entry, ...], generation: int
) -> None:
    write(tmp_path, NEW, *old)
    path = write(tmp_path, NEW, *new, generation=2)
    index, report = start(tmp_path)
    found = index.find(NEW)
    assert found is not None
    assert found.generation == generation
    assert report.leftovers == ((path.name,) if generation == 1 else ())
    assert path.exists() == (generation == 2)
