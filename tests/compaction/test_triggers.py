"""When a compaction is due, and when it must wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from compaction.policy import CompactionPolicy
from compaction.triggers import RETRIES, CompactionState, is_due

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def due(state: CompactionState, now: datetime) -> bool:
    return is_due(CompactionPolicy(), state, tokens=900, window=1000, messages=50, now=now) is not None


def test_after_a_failure_it_waits_and_then_is_due_again() -> None:
    state = CompactionState()
    for wait in (*RETRIES, RETRIES[-1]):
        state = state.failed("no", NOW)
        assert not due(state, NOW)
        assert not due(state, NOW + wait - timedelta(seconds=1))
        assert due(state, NOW + wait)


def test_a_clock_that_was_years_ahead_stops_no_compaction() -> None:
    state = CompactionState().failed("no", NOW + timedelta(days=4000))
    assert due(state, NOW)
    assert not due(state.failed("again", NOW), NOW)
