"""Sessions and usage as the pages show them: rows, sums, bars, and numbers in words. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from gateway.ledger import UsageRow
    from sessions.record import SessionRecord

MICROS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A session in a table. `share` is the fill of its window, 0 to 1; None while it is not known."""

    record: SessionRecord
    title: str
    share: float | None
    running: bool


def session_row(record: SessionRecord, *, running: bool) -> Row:
    return Row(record=record, title=record.title or record.key, share=share_of(record), running=running)


def share_of(record: SessionRecord) -> float | None:
    if record.context_tokens is None or not record.window:
        return None
    return min(1.0, record.context_tokens / record.window)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Tokens and cost of some calls. `cost` None: no price is known; `cache_share` None: nothing was read."""

    tokens: int = 0
    cost: Decimal | None = None
    cache_share: float | None = None


def spent_in(rows: Sequence[UsageRow]) -> Spent:
    """The sum of rows of a usage report."""
    read = sum(row.usage.input_total for row in rows)
    priced = [row.cost for row in rows if row.cost is not None]
    return Spent(
        tokens=read + sum(row.usage.output for row in rows),
        cost=sum(priced[1:], priced[0]) if priced else None,
        cache_share=sum(row.usage.cached_read for row in rows) / read if read else None,
    )


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a chart: a label, and its parts from the bottom up."""

    label: str
    parts: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.parts)


def day_bars(rows: Sequence[UsageRow], days: Sequence[str]) -> list[Bar]:
    """For each day, also one without a call: input that was paid in full, from the cache, written to it, and output."""
    by_day = {row.group["day"]: row.usage for row in rows}
    bars: list[Bar] = []
    for day in days:
        usage = by_day.get(day)
        if usage is None:
            bars.append(Bar(day, (0, 0, 0, 0)))
            continue
        plain = max(0, usage.input_total - usage.cached_read - usage.cache_write)
        bars.append(Bar(day, (plain, usage.cached_read, usage.cache_write, usage.output)))
    return bars


def cost_bars(rows: Sequence[UsageRow], days: Sequence[str]) -> list[Bar]:
    """What each day cost, in millionths of a dollar; empty when no price is known."""
    costs = {row.group["day"]: row.cost for row in rows if row.cost is not None}
    return [Bar(day, (int(costs.get(day, 0) * MICROS),)) for day in days] if any(costs.values()) else []


def micros_text(micros: int) -> str:
    """Millionths of a dollar as dollars."""
    from decimal import Decimal as Exact

    return money_text(Exact(micros) / MICROS) or ""


def count_text(number: int) -> str:
    """A count as people read it: 950, 12.3k, 4.5M."""
    for limit, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= limit:
            return f"{number / limit:.1f}".removesuffix(".0") + unit
    return str(number)


def money_text(cost: Decimal | str | None) -> str | None:
    """A cost in dollars, with as many places as it takes to see it; None stays unknown."""
    if cost is None:
        return None
    from decimal import Decimal as Exact

    amount = Exact(cost)
    return f"${amount:.2f}" if amount >= Exact("0.1") or not amount else f"${amount:.4f}"
