from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.tokens import LEAST, MOST, Learnt, clamped, next_prompt, start_factor, window_of

counts = st.integers(0, 10**7)


@pytest.mark.parametrize(
    ("provider", "original", "factor"),
    [("openai", True, 1.0), ("anthropic", True, 1.5), ("openai", False, 1.25), ("offline", False, 1.0)],
)
def test_where_the_factor_starts(provider: str, original: bool, factor: float) -> None:
    assert start_factor(provider, original=original) == factor


def test_a_factor_moves_to_what_is_reported_and_short_prompts_move_it_little() -> None:
    learnt = Learnt(factor=1.0)
    short = learnt.after_report(counted=50, reported=100, cached=0)
    assert short.factor == pytest.approx(1.01)
    for _ in range(40):
        learnt = learnt.after_report(counted=4000, reported=6400, cached=0)
    assert learnt.factor == pytest.approx(1.6, abs=0.01)


@pytest.mark.parametrize("reported", [0, 1000, 60_000])
def test_a_report_no_tokenizer_explains_teaches_nothing(reported: int) -> None:
    assert Learnt(factor=1.25).after_report(counted=8000, reported=reported, cached=0).factor == 1.25


@pytest.mark.parametrize(
    ("counted", "tokens", "window", "known", "factor", "learnt_window"),
    [
        (3000, 5120, 4000, None, 5120 / 3000, 4000),
        (3000, 5120, 4000, 100_000, 5120 / 3000, 4000),
        (3000, None, 4000, None, 4000 / 3000, 4000),
        (3000, None, None, 6000, 2.0, None),
        (9000, None, None, 6000, 1.0, None),
        (3000, None, None, None, 1.0, None),
        (10, 5000, None, None, MOST, None),
    ],
)
def test_the_numbers_of_a_refusal_correct_factor_and_window(
    counted: int, tokens: int | None, window: int | None, known: int | None, factor: float, learnt_window: int | None
) -> None:
    learnt = Learnt(factor=1.0).after_overflow(counted=counted, tokens=tokens, window=window, known=known)
    assert (learnt.factor, learnt.window) == (pytest.approx(factor), learnt_window)


def test_a_report_above_the_learnt_window_proves_it_wrong() -> None:
    learnt = Learnt(factor=1.0, window=4000)
    assert learnt.after_report(counted=3000, reported=3900, cached=0).window == 4000
    assert learnt.after_report(counted=3000, reported=4100, cached=0).window is None


@pytest.mark.parametrize(
    ("known", "learnt", "window"), [(None, None, None), (8000, None, 8000), (None, 4000, 4000), (8000, 4000, 4000)]
)
def test_a_provider_that_refused_less_than_the_settings_say_is_right(
    known: int | None, learnt: int | None, window: int | None
) -> None:
    assert window_of(known, learnt) == window


@given(st.lists(st.tuples(counts, counts, st.none() | counts, st.booleans()), max_size=20))
def test_the_factor_stays_within_its_limits_and_survives_json(
    seen: list[tuple[int, int, int | None, bool]],
) -> None:
    learnt = Learnt(factor=1.25)
    for counted, reported, window, refused in seen:
        if refused:
            learnt = learnt.after_overflow(counted=counted, tokens=reported or None, window=window, known=None)
        else:
            learnt = learnt.after_report(counted=counted, reported=reported, cached=reported // 2)
        assert LEAST <= learnt.factor <= MOST
    again = Learnt.from_json(learnt.to_json())
    assert again.factor == pytest.approx(learnt.factor, abs=1e-4)
    assert (again.window, again.caches) == (learnt.window or None, learnt.caches)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(LEAST, MOST), st.none() | st.integers(256, 10**6))
def test_no_share_is_told_of_an_unknown_window(measured: int, tail: int, factor: float, window: int | None) -> None:
    reading = next_prompt(measured=measured, tail=tail, factor=factor, window=window)
    assert reading.tokens >= measured
    assert reading.estimated == (measured == 0)
    assert (reading.share is None) == (window is None)


def test_what_is_no_number_is_no_factor() -> None:
    with pytest.raises(ValueError, match="number"):
        clamped(math.nan)


def test_a_limit_is_held_by_a_careful_reading_of_what_came_after_the_measured_part() -> None:
    assert next_prompt(measured=3_600, tail=200, factor=0.5, window=4_000).at_most == 3_800
    assert next_prompt(measured=3_600, tail=200, factor=1.5, window=4_000).at_most == 3_900
    assert next_prompt(measured=0, tail=5_000, factor=0.5, window=4_000).at_most == 2_500
