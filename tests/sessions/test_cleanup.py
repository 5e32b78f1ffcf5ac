from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sessions.cleanup import Candidate, estimated_bytes, plan_cleanup
from sessions.policy import CleanupPolicy
from sessions.record import SessionRecord

if TYPE_CHECKING:
    from sessions.cleanup import Action

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def session(name: str, days: int, *, size: int = 1000, busy: bool = False, **fields: Any) -> Candidate:
    """Unused for so many days."""
    used = NOW - timedelta(days=days)
    record = SessionRecord(
        session=name,
        key=f"agent:main:web:direct:{name}",
        agent="main",
        type="direct",
        created_at=used,
        active_at=used,
    )
    return Candidate(dataclasses.replace(record, **fields), size, busy)


def plan(candidates: list[Candidate], total: int = 0, **policy: Any) -> list[tuple[Action, str, str]]:
    return [
        (step.action, step.reason, step.candidate.record.session)
        for step in plan_cleanup(candidates, CleanupPolicy(**policy), NOW, total)
    ]


def test_what_is_unused_for_30_days_is_archived_the_oldest_first() -> None:
    found = plan([session("new", 29), session("old", 30), session("older", 90, state="former")])
    assert found == [("archive", "age", "older"), ("archive", "age", "old")]


def test_what_runs_is_pinned_or_main_is_never_touched() -> None:
    protected = [
        session("busy", 900, busy=True),
        session("open", 900, open_turns=1),
        session("pinned", 900, pinned=True),
        session("main", 900, type="main"),
        session("main-archive", 900, type="main", state="archived"),
        session("pinned-archive", 900, pinned=True, state="archived"),
    ]
    assert plan(protected, 10**9, delete_after_days=60, max_bytes=0) == []


def test_archives_are_deleted_only_when_asked_for() -> None:
    archive = session("a", 400, state="archived")
    assert plan([archive]) == []
    assert plan([archive], delete_after_days=365) == [("delete", "age", "a")]
    assert plan([archive], after_days=None) == []


def test_taking_a_session_out_of_the_archive_counts_as_use() -> None:
    restored = session("a", 400, resumed_at=NOW - timedelta(days=2))
    assert plan([restored], delete_after_days=60) == []


def test_beyond_the_size_all_are_archived_before_the_first_is_deleted() -> None:
    candidates = [session("c", 1), session("b", 2), session("a", 3), session("z", 9, size=250, state="archived")]
    assert plan(candidates, 3250, max_bytes=3250) == []
    assert plan(candidates, 3250, max_bytes=2000) == [("archive", "size", "a"), ("archive", "size", "b")]
    archived = [("archive", "size", name) for name in "abc"]
    assert plan(candidates, 3250, max_bytes=1000) == archived
    assert plan(candidates, 3250, max_bytes=700) == [*archived, ("delete", "size", "z"), ("delete", "size", "a")]


def test_what_goes_by_age_counts_before_the_size() -> None:
    candidates = [session("old", 40), session("new", 1)]
    assert plan(candidates, 2000, max_bytes=1300) == [("archive", "age", "old")]


def test_archives_are_not_deleted_before_they_are_made() -> None:
    with pytest.raises(ValidationError, match="archived first"):
        CleanupPolicy(after_days=30, delete_after_days=7)
    assert CleanupPolicy(after_days=None, delete_after_days=7).delete_after_days == 7


days = st.integers(0, 400)


@given(
    st.lists(
        st.tuples(days, st.integers(0, 5000), st.booleans(), st.sampled_from(["active", "former", "archived"])),
        max_size=12,
    ),
    st.one_of(st.none(), st.integers(0, 20_000)),
    st.one_of(st.none(), st.integers(30, 200)),
)
def test_any_plan_touches_a_session_at_most_once_by_age_and_stops_when_it_fits(
    drawn: list[tuple[int, int, bool, Any]], max_bytes: int | None, delete_after_days: int | None
) -> None:
    candidates = [
        session(f"s{n:02}", age, size=size, pinned=pinned, state=state)
        for n, (age, size, pinned, state) in enumerate(drawn)
    ]
    total = sum(one.size_bytes for one in candidates)
    policy = CleanupPolicy(max_bytes=max_bytes, delete_after_days=delete_after_days)
    steps = plan_cleanup(candidates, policy, NOW, total)
    assert not any(step.candidate.protected for step in steps)
    assert len({(s.action, s.candidate.record.session) for s in steps}) == len(steps)
    by_size = [step for step in steps if step.reason == "size"]
    if by_size:
        assert max_bytes is not None
        assert estimated_bytes(steps[:-1], total) > max_bytes
    ages = [step.candidate.used_at for step in by_size if step.action == "delete"]
    assert ages == sorted(ages)
