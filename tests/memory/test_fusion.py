"""Scores of several searches, and the credit of a neighbour."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.fusion import Scored, min_max_sum, ranked, with_neighbours

SCORES = st.dictionaries(st.integers(0, 20), st.floats(0, 100), max_size=20)


def beside(one: int) -> list[int]:
    return [one - 1, one + 1]


def test_searches_count_alike_whatever_their_scale() -> None:
    words = Scored({"a": 12.0, "b": 3.0})
    vectors = Scored({"b": 0.9, "c": 0.8, "d": 0.7}, floor=None)
    assert min_max_sum([words, vectors]) == pytest.approx({"a": 1.0, "b": 1.25, "c": 0.5, "d": 0.0})


def test_a_search_that_found_one_thing_or_nothing_counts_too() -> None:
    nothing: Scored[str] = Scored({})
    assert min_max_sum([Scored({"a": 0.2}, floor=None), nothing]) == {"a": 1.0}


def test_what_all_is_equally_near_does_not_outweigh_the_one_that_has_the_word() -> None:
    near = Scored(dict.fromkeys("bcd", 0.2), floor=None)
    total = min_max_sum([Scored({"a": 1.4}), near])
    assert max(total, key=lambda one: total[one]) == "a"
    assert total["a"] > total["b"] > 0


def test_the_neighbour_of_the_best_comes_in() -> None:
    found = with_neighbours({5: 1.0, 9: 0.2}, beside)
    assert found == pytest.approx({5: 1.0, 9: 0.2, 4: 0.3, 6: 0.3, 8: 0.06, 10: 0.06})
    assert [one for one, _ in ranked(found, 3)] == [5, 4, 6]


@given(st.lists(SCORES, max_size=4))
def test_the_sum_is_between_nothing_and_the_number_of_searches(searches: list[dict[int, float]]) -> None:
    total = min_max_sum(Scored(scores) for scores in searches)
    assert total.keys() == {one for scores in searches for one in scores}
    assert all(-1e-9 <= score <= len(searches) + 1e-9 for score in total.values())


@given(SCORES)
def test_credit_takes_nothing_away(scores: dict[int, float]) -> None:
    credited = with_neighbours(scores, beside)
    assert all(credited[one] >= score for one, score in scores.items())
    assert all(near in credited for one in scores for near in beside(one))
