"""Usage of model calls: what was reported is kept, sums are spends, and nothing but counts is a count."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.usage import Usage

COUNT = st.integers(0, 2**50)
USAGE = st.builds(
    Usage,
    input_total=COUNT,
    cached_read=COUNT,
    cache_write=COUNT,
    output=COUNT,
    reasoning=COUNT,
    reported=st.booleans(),
)


@given(USAGE)
def test_usage_is_the_same_after_a_way_through_json(usage: Usage) -> None:
    assert Usage.from_json(usage.to_json()) == usage


def test_what_an_old_line_does_not_say_is_nothing_spent() -> None:
    assert Usage.from_json({"output": 3}) == Usage(output=3)


@given(USAGE, USAGE, USAGE)
def test_spends_add_up_in_any_order(one: Usage, two: Usage, three: Usage) -> None:
    assert one + two == two + one
    assert (one + two) + three == one + (two + three)
    assert (one + Usage()) == one


def test_a_sum_with_an_estimate_in_it_is_an_estimate() -> None:
    assert not (Usage(input_total=5) + Usage(input_total=5, reported=False)).reported


@pytest.mark.parametrize("value", [-1, True, 1.5, "3", None, [], 2**70])
def test_a_count_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="input_total is"):
        Usage.from_json({"input_total": value})
