from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.http.limits import RateLimit, StreamLimit


def test_a_bucket_gives_a_burst_and_then_its_rate() -> None:
    limit = RateLimit(120)
    assert [limit.wait_s("a", 100) for _ in range(21)] == [0] * 20 + [1]
    assert limit.wait_s("b", 100) == 0
    assert [limit.wait_s("a", 100.5) for _ in range(2)] == [0, 1]


def test_a_slow_rate_tells_the_whole_wait() -> None:
    limit = RateLimit(1)
    assert limit.wait_s("a", 0) == 0
    assert limit.wait_s("a", 0) == 60
    assert limit.wait_s("a", 59.9) == 1
    assert limit.wait_s("a", 60) == 0


@given(st.integers(1, 10_000), st.lists(st.floats(0, 10), max_size=200))
def test_no_pattern_of_requests_gets_more_than_burst_and_rate(per_minute: int, pauses: list[float]) -> None:
    limit = RateLimit(per_minute)
    now = allowed = 0.0
    for pause in pauses:
        now += pause
        allowed += limit.wait_s("a", now) == 0
    assert allowed <= max(1, per_minute / 6) + now * per_minute / 60 + 1e-6


@given(st.integers(1, 10_000), st.integers(0, 3000))
def test_who_waits_as_told_is_let_in(per_minute: int, before: int) -> None:
    limit = RateLimit(per_minute)
    for _ in range(before):
        limit.wait_s("a", 0)
    wait_s = limit.wait_s("a", 0)
    assert wait_s == 0 or limit.wait_s("a", wait_s) == 0


def test_streams_are_counted_for_each_caller() -> None:
    limit = StreamLimit(2)
    assert [limit.enter(name) for name in "aaab"] == [True, True, False, True]
    assert limit.total == 3
    limit.leave("a")
    assert limit.enter("a")
    for name in "aab":
        limit.leave(name)
    assert limit.total == 0
