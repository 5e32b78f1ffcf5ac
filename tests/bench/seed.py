"""A data directory with many sessions, made by the store's own code."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from sessions.entries import AssistantEntry, Header, UserEntry, turn_id
from sessions.files import OsFiles
from sessions.index import Index
from sessions.transcript import Transcript, transcript_path
from tests.bench.index_load import record

if TYPE_CHECKING:
    from pathlib import Path

    from sessions.entries import Entry
    from sessions.record import SessionRecord

QUESTION = "Where is the best place to buy bread in Brno on a Sunday?"
ANSWER = "The bakery at the market opens at seven. " * 3


def sow(data_dir: Path, count: int, turns: int = 1) -> None:
    """`count` sessions: a transcript of `turns` questions with their answers each, and the index as a stop in order
    leaves it."""
    files = OsFiles()
    index, _ = Index.load(files, data_dir, stamp="seed")
    for number in range(count):
        index.put(_written(files, data_dir, record(number), turns))
    index.commit_snapshot(index.prepare_snapshot(clean=True))


def _written(files: OsFiles, data_dir: Path, one: SessionRecord, turns: int) -> SessionRecord:
    header = Header(session=one.session, generation=1, key=one.key, agent=one.agent, at=one.created_at)
    path = transcript_path(data_dir, one.agent, one.session, 1)
    transcript = Transcript.create(files, path, header, sync=False)
    transcript.append([entry for seq in range(1, 2 * turns, 2) for entry in _turn(one, seq)])
    return dataclasses.replace(one, entries=2 * turns, messages=2 * turns, last_seq=2 * turns, size=transcript.size)


def _turn(one: SessionRecord, seq: int) -> list[Entry]:
    turn = turn_id(one.session, seq)
    ids = (f"{one.session[:-1]}A", f"{one.session[:-1]}B")
    return [
        UserEntry(text=QUESTION, tokens=13, turn=turn, seq=seq, id=ids[0], at=one.active_at),
        AssistantEntry(text=ANSWER, tokens=30, turn=turn, seq=seq + 1, id=ids[1], at=one.active_at),
    ]
