"""Sums, bars, and numbers in words."""

from __future__ import annotations

from decimal import Decimal

from gateway.console.views import cost_bars, count_text, day_bars, micros_text, money_text, spent_in
from gateway.ledger import UsageRow
from sessions.usage import Usage


def test_days_without_a_call_have_a_bar_of_nothing() -> None:
    usage = Usage(input_total=100, cached_read=60, cache_write=10, output=5)
    row = UsageRow(group={"day": "2026-12-01"}, calls=1, usage=usage, cost=Decimal("0.5"), unpriced=0)
    bars = day_bars([row], ["2026-11-30", "2026-12-01"])
    assert [bar.parts for bar in bars] == [(0, 0, 0, 0), (30, 60, 10, 5)]
    spent = spent_in([row])
    assert (spent.tokens, spent.cost, spent.cache_share) == (105, Decimal("0.5"), 0.6)
    assert spent_in([]).cost is None


def test_numbers_are_written_as_people_read_them() -> None:
    assert [count_text(n) for n in (0, 999, 1000, 12_345, 4_500_000)] == ["0", "999", "1k", "12.3k", "4.5M"]
    assert [money_text(c) for c in (None, Decimal(0), "12.346", Decimal("0.00042"))] == [
        None,
        "$0.00",
        "$12.35",
        "$0.0004",
    ]


def test_cost_is_drawn_where_a_price_is_known_and_said_in_dollars() -> None:
    usage = Usage(input_total=1)
    rows = [
        UsageRow(group={"day": "2026-12-01"}, calls=1, usage=usage, cost=Decimal("1.25"), unpriced=0),
        UsageRow(group={"day": "2026-12-02"}, calls=1, usage=usage, cost=None, unpriced=1),
    ]
    bars = cost_bars(rows, ["2026-12-01", "2026-12-02"])
    assert [bar.parts for bar in bars] == [(1_250_000,), (0,)]
    assert micros_text(1_250_000) == "$1.25"
    assert cost_bars(rows[1:], ["2026-12-02"]) == []
