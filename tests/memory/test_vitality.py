"""The numbers of vitality and retention (spec memory.md)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from memory.policy import RetentionPolicy
from memory.records import Memory, Source, user_pool
from memory.vitality import due_at, vitality

START = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = RetentionPolicy()
# importance: (half-life, first whole day on which a memory that was never recalled is due)
DUE = {1: 14, 2: 14, 3: 17, 4: 33, 5: 49, 6: 70, 7: 105, 8: 140, 9: 209, 10: 418}


def memory(importance: int = 5, recalled: datetime | None = None) -> Memory:
    return Memory(
        id="m",
        pool=user_pool("ana"),
        text="a fact",
        importance=importance,
        valid_from=START,
        source=Source(origin="person"),
        author="ana",
        created_at=START,
        updated_at=START,
        last_recalled_at=recalled,
    )


@pytest.mark.parametrize("importance", DUE)
def test_the_day_on_which_an_unused_memory_is_due(importance: int) -> None:
    at = due_at(memory(importance), POLICY)
    assert at is not None
    assert -((START - at) // timedelta(days=1)) == DUE[importance]
    if importance > 2:
        assert vitality(memory(importance), at, POLICY) == pytest.approx(10)


def test_vitality_starts_at_50_and_a_recall_sets_it_to_100() -> None:
    assert vitality(memory(), START, POLICY) == 50
    assert vitality(memory(), START + timedelta(days=21), POLICY) == pytest.approx(25)
    recalled = memory(recalled=START + timedelta(days=10))
    assert vitality(recalled, START + timedelta(days=10), POLICY) == 100
    assert vitality(recalled, START + timedelta(days=31), POLICY) == pytest.approx(50)


def test_where_forgetting_is_off_nothing_is_due() -> None:
    assert due_at(memory(), RetentionPolicy(enabled=False)) is None


@pytest.mark.parametrize(
    "wrong",
    [{"threshold": 0}, {"threshold": 91}, {"cap": 0}, {"cap": 201}, {"grace_days": 366}, {"half_lives_days": [0] * 10}],
)
def test_settings_out_of_their_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RetentionPolicy.model_validate(wrong)
