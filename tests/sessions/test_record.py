"""Index records and their JSON."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.entries import format_time
from sessions.policy import LONGEST_MINUTES, ResetOverride
from sessions.record import SessionRecord, SessionSettings, record_from_json, record_to_json

AT = datetime(2026, 11, 30, 12, 0, 0, 250_000, tzinfo=UTC)
ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

texts = st.text(max_size=20)
counts = st.integers(0, 2**53)
times = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)).map(
    lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)
)
settings = st.builds(
    SessionSettings,
    model=st.none() | texts,
    queue_mode=st.none() | st.sampled_from(["followup", "collect", "steer", "interrupt"]),
    reset=st.none() | st.just(ResetOverride(idle_minutes=5)) | st.just(ResetOverride(daily_at=None)),
    notes=st.booleans(),
)
records = st.builds(
    SessionRecord,
    session=st.from_regex(r"[0-9A-Z]{26}", fullmatch=True),
    key=texts,
    agent=texts,
    type=st.sampled_from(["main", "direct", "group", "channel", "sub", "cron", "hook"]),
    channel=st.none() | texts,
    owner=st.none() | texts,
    state=st.sampled_from(["active", "former", "archived"]),
    generation=st.integers(1, 99),
    created_at=times,
    active_at=times,
    title=st.none() | texts,
    messages=counts,
    size=counts,
    open_turns=counts,
    context_tokens=st.none() | counts,
    cost=st.none() | st.just("0.0012"),
    compaction=st.none() | st.dictionaries(texts, st.integers(0, 9)),
    pinned=st.booleans(),
    ended=st.none() | st.sampled_from(["new", "reset", "daily", "idle", "deleted", "resume"]),
    settings=settings,
    extra=st.dictionaries(st.just("of_a_newer_version"), st.integers(0, 9)),
)


@given(records)
def test_a_record_reads_back_as_it_was_written(record: SessionRecord) -> None:
    raw = orjson.dumps(record_to_json(record))
    assert record_from_json(orjson.loads(raw)) == record


def test_what_is_at_its_default_is_left_out() -> None:
    record = SessionRecord(session=ID, key="agent:main:main", agent="main", type="main", created_at=AT, active_at=AT)
    assert record_to_json(record) == {
        "session": ID,
        "active_at": "2026-11-30T12:00:00.250Z",
        "state": "active",
        "key": "agent:main:main",
        "agent": "main",
        "type": "main",
        "created_at": "2026-11-30T12:00:00.250Z",
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("session", "../../etc/passwd"),
        ("session", 5),
        ("key", None),
        ("state", "asleep"),
        ("type", ["main"]),
        ("messages", "many"),
        ("messages", -1),
        ("messages", True),
        ("messages", None),
        ("active_at", "yesterday"),
        ("active_at", "0001-01-01T00:00:00+23:59"),
        ("created_at", 17),
        ("pinned", "yes"),
        ("compaction", []),
        ("cost", 0.5),
        ("settings", {"reset": {"daily_at": "late"}}),
        ("settings", [1]),
    ],
)
def test_a_field_that_cannot_be_is_refused_by_name(field: str, value: Any) -> None:
    fields: dict[str, Any] = {"session": ID, "key": "agent:main:main", "agent": "main", "type": "main"}
    record_from_json(fields)
    with pytest.raises(ValueError, match=f"^{field} of a session record cannot be"):
        record_from_json(fields | {field: value})


@pytest.mark.parametrize("field", ["session", "key", "agent", "type"])
def test_a_record_without_what_names_it_is_refused(field: str) -> None:
    fields = {"session": ID, "key": "agent:main:main", "agent": "main", "type": "main"}
    del fields[field]
    with pytest.raises(ValueError, match=field):
        record_from_json(fields)


def test_every_field_of_a_record_can_be_read_back() -> None:
    names = {field.name for field in dataclasses.fields(SessionRecord)} - {"settings", "extra"}
    full = {name: getattr(SessionRecord(session=ID, key="k", agent="a", type="main"), name) for name in names}
    times = {name: format_time(full[name]) for name in ("created_at", "active_at")}
    assert record_from_json(full | times).extra == {}


def test_a_reset_that_an_older_version_took_is_read_with_the_longest_there_is() -> None:
    record = SessionRecord(session="01J", key="agent:main:main", agent="main", type="main")
    fields = record_to_json(record) | {"settings": {"reset": {"idle_minutes": 10**12}}}
    reset = record_from_json(fields).settings.reset
    assert reset is not None
    assert reset.idle_minutes == LONGEST_MINUTES
