"""Entries: every kind, with any text in it, is the same after a way through JSON."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions import entries
from sessions.entries import (
    AssistantEntry,
    Attachment,
    AttemptEntry,
    CarriedEntry,
    CommandEntry,
    CompactionEntry,
    CompactionFailedEntry,
    CompactionStartedEntry,
    Covers,
    DamagedEntry,
    EndedEntry,
    EndReason,
    Entry,
    Finish,
    Header,
    PinnedEntry,
    RecallEntry,
    ResumedEntry,
    RetractedEntry,
    SummaryEntry,
    ToolCall,
    ToolResultEntry,
    TurnFailedEntry,
    UnknownEntry,
    UserEntry,
    entry_from_json,
    entry_to_json,
    format_time,
    header_from_json,
    header_to_json,
    parse_time,
    session_of_turn,
    turn_id,
)
from sessions.lines import decode_line, encode_entry
from sessions.usage import Usage

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SOME = st.none() | TEXT
COUNT = st.integers(0, 2**53)
TIME = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(
    lambda at: at.replace(tzinfo=UTC, microsecond=at.microsecond // 1000 * 1000)
)
OBJECT = st.dictionaries(TEXT, TEXT | COUNT | st.none() | st.lists(TEXT, max_size=2), max_size=3)
SHARED: dict[str, st.SearchStrategy[Any]] = {
    "seq": st.integers(1, 2**53), "id": TEXT, "at": TIME, "turn": SOME, "tokens": COUNT,
}  # fmt: skip
ATTACHMENT = st.builds(Attachment, sha256=TEXT, media_type=TEXT, size_bytes=COUNT, name=SOME)
CALL = st.builds(ToolCall, id=TEXT, name=TEXT, arguments=TEXT)
USAGE = st.builds(
    Usage,
    input_total=COUNT, cached_read=COUNT, cache_write=COUNT, output=COUNT, reasoning=COUNT, reported=st.booleans(),
)  # fmt: skip
COVERS = st.builds(Covers, from_seq=COUNT, to_seq=COUNT, sha256=TEXT)


def many(one: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(one, max_size=3).map(tuple)


USER: st.SearchStrategy[Entry] = st.builds(
    UserEntry,
    **SHARED,
    text=TEXT, attachments=many(ATTACHMENT), sender=SOME, sender_name=SOME, user=SOME, request_id=SOME,
    request_sha256=SOME, model=SOME, source=SOME,
)  # fmt: skip
KINDS: dict[type[Entry], st.SearchStrategy[Entry]] = {
    UserEntry: USER,
    AssistantEntry: st.builds(
        AssistantEntry,
        **SHARED,
        text=TEXT, calls=many(CALL), model=SOME, usage=st.none() | USAGE, finish=st.sampled_from(get_args(Finish)),
        also=many(TEXT),
    ),
    ToolResultEntry: st.builds(
        ToolResultEntry, **SHARED, call_id=TEXT, name=TEXT, text=TEXT, is_error=st.booleans()
    ),
    SummaryEntry: st.builds(
        SummaryEntry,
        **SHARED,
        summary=OBJECT, covers=COVERS, replay_from=COUNT, by=st.sampled_from(["model", "rules"]), model=SOME,
    ),
    CarriedEntry: st.builds(CarriedEntry, **SHARED, entry=USER),
    RecallEntry: st.builds(RecallEntry, **SHARED, shown=OBJECT),
    CommandEntry: st.builds(
        CommandEntry,
        **SHARED,
        name=TEXT, argument=TEXT, reply=SOME, sender=SOME, request_id=SOME, request_sha256=SOME,
    ),
    CompactionStartedEntry: st.builds(CompactionStartedEntry, **SHARED, reason=TEXT, anchor=COUNT),
    CompactionFailedEntry: st.builds(
        CompactionFailedEntry, **SHARED, error=TEXT, failures=COUNT, retry_at=st.none() | TIME
    ),
    CompactionEntry: st.builds(CompactionEntry, **SHARED, generation=COUNT, anchor=COUNT, replay_from=COUNT),
    TurnFailedEntry: st.builds(TurnFailedEntry, **SHARED, code=TEXT, error=TEXT, also=many(TEXT)),
    AttemptEntry: st.builds(AttemptEntry, **SHARED, number=COUNT),
    RetractedEntry: st.builds(RetractedEntry, **SHARED, seqs=many(COUNT), reason=TEXT),
    PinnedEntry: st.builds(PinnedEntry, **SHARED, of=COUNT, pinned=st.booleans()),
    EndedEntry: st.builds(EndedEntry, **SHARED, reason=st.sampled_from(get_args(EndReason))),
    ResumedEntry: st.builds(ResumedEntry, **SHARED),
}  # fmt: skip


def raw(**fields: Any) -> dict[str, Any]:
    return {"seq": 1, "id": "a", "type": "user", "at": "2026-03-01T12:00:00.000Z", "text": "hi", **fields}


def test_every_kind_of_entry_is_tried_with_all_its_fields() -> None:
    kinds = {
        kind
        for kind in vars(entries).values()
        if isinstance(kind, type) and issubclass(kind, Entry) and kind not in (Entry, UnknownEntry)
    }
    assert kinds == set(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(choice=st.data())
def test_an_entry_is_the_same_after_a_way_through_json(kind: type[Entry], choice: st.DataObject) -> None:
    entry = choice.draw(KINDS[kind])
    fields = entry_to_json(entry)
    assert entry_from_json(json.loads(json.dumps(fields))) == entry
    line = encode_entry(entry)
    assert line.count(b"\n") == 1
    assert entry_from_json(decode_line(line[:-1])) == entry


def test_fields_at_their_default_are_left_out() -> None:
    written = entry_to_json(AssistantEntry(seq=1, text=""))
    assert set(written) == {"seq", "id", "type", "at", "turn", "tokens", "text"}


def test_what_a_newer_version_wrote_is_kept_as_it_is() -> None:
    fields = raw(type="hologram", depth=3, nested={"a": [1]})
    entry = entry_from_json(fields)
    assert isinstance(entry, UnknownEntry)
    assert (entry.seq, entry_to_json(entry)) == (1, fields)


def test_a_field_of_a_newer_version_costs_nothing() -> None:
    assert entry_from_json(raw(mood="sunny")) == entry_from_json(raw())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (raw(seq=0), "seq is 0"),
        (raw(seq=True), "seq is True"),
        (raw(seq="1"), "seq is '1'"),
        (raw(seq=1.0), "seq is 1.0"),
        ({"type": "user"}, "seq is missing"),
        ({"seq": 1}, "type is missing"),
        ({"seq": 1, "type": "user", "text": "a"}, "at is missing"),
        (raw(at="yesterday"), "yesterday"),
        (raw(at="2026-03-01T12:00:00"), "no time zone"),
        (raw(at="0001-01-01T00:00:00+14:00"), "year 1"),
        (raw(at=7), "7"),
        (raw(text=7), "7 is not a text"),
        (raw(text=None), "None is not a text"),
        (raw(tokens="3"), "'3' is not a whole number"),
        (raw(tokens=True), "True is not a whole number"),
        (raw(turn=[]), "is not a text"),
        (raw(attachments=[{"sha256": "a"}]), "media_type is missing"),
        (raw(attachments=7), "iterable"),
        (raw(type="assistant", calls=[7]), "subscriptable"),
        (raw(type="assistant", calls=[{"id": "a", "name": "b", "arguments": {}}]), "is not a text"),
        (raw(type="assistant", usage=[]), "is not an object"),
        (raw(type="assistant", usage={"output": "many"}), "output is 'many'"),
        (raw(type="summary", summary=[]), "is not an object"),
        (raw(type="summary", summary={}, covers={}, replay_from=1), "from is missing"),
        (raw(type="carried", entry={"seq": 0, "type": "user"}), "seq is 0"),
        (raw(type="retracted", seqs=["1"]), "is not a whole number"),
        (raw(type="tool_result", name="a", call_id="b", is_error="no"), "'no' is neither true nor false"),
    ],
)
def test_a_damaged_entry_says_what_is_wrong_with_it(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DamagedEntry, match=message):
        entry_from_json(fields)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(choice=st.data())
def test_any_value_in_any_field_is_read_or_is_damage(kind: type[Entry], choice: st.DataObject) -> None:
    fields = entry_to_json(choice.draw(KINDS[kind]))
    name = choice.draw(st.sampled_from([f.name for f in dataclasses.fields(kind)] + ["type"]))
    fields[name] = choice.draw(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text()
        | st.lists(st.integers(), max_size=2)
        | OBJECT
    )
    try:
        entry = entry_from_json(fields)
    except DamagedEntry:
        return
    assert entry_from_json(entry_to_json(entry)) == entry


@given(TIME, st.integers(-14 * 60, 14 * 60))
def test_a_time_is_written_in_utc_with_milliseconds(at: datetime, minutes: int) -> None:
    elsewhere = at.astimezone(timezone(timedelta(minutes=minutes)))
    assert format_time(elsewhere) == format_time(at)
    assert format_time(at)[-5] == "."
    assert parse_time(format_time(at)) == at


@given(TEXT, COUNT, TEXT, TEXT, TIME, SOME)
def test_a_header_is_the_same_after_a_way_through_json(
    session: str, generation: int, key: str, agent: str, at: datetime, previous: str | None
) -> None:
    header = Header(session=session, generation=generation, key=key, agent=agent, at=at, previous=previous)
    assert header_from_json(json.loads(json.dumps(header_to_json(header)))) == header


def test_a_turn_id_names_its_session_and_nothing_else_does() -> None:
    session = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert session_of_turn(turn_id(session, 12)) == (session, 12)
    for text in (
        "",
        "-",
        session,
        f"{session}-",
        f"{session}-x",
        f"{session}-١",
        f"x{session}-1",
        "../../etc/passwd-1",
    ):
        assert session_of_turn(text) is None
