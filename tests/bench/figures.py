"""Measured rows: their values with the spread, the goal, and how they compare with an accepted run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WORSE = 1.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measure of one run. `low` and `high`: the smallest and largest of the rounds.

    `goal` None: printed for comparison only. `compared`: the part that means something across runs, a ratio to what
    the same run measured of the machine; larger is worse unless `more_is_better`.
    """

    row: int
    name: str
    value: float
    low: float
    high: float
    unit: str
    goal: float | None = None
    compared: float | None = None
    more_is_better: bool = False

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.value >= self.goal if self.more_is_better else self.value <= self.goal


def figure(row: int, name: str, rounds: Sequence[float], unit: str, **more: Any) -> Figure:
    """The median of rounds, with the spread."""
    return Figure(row=row, name=name, value=median(rounds), low=min(rounds), high=max(rounds), unit=unit, **more)


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def changes(figures: Sequence[Figure], accepted: Mapping[str, float]) -> list[str]:
    """What became worse by over 10 % against the accepted run, by the figures that may be compared."""
    found: list[str] = []
    for one in figures:
        before = accepted.get(one.name)
        if one.compared is None or not before:
            continue
        ratio = before / one.compared if one.more_is_better else one.compared / before
        if ratio > WORSE:
            found.append(f"row {one.row}, {one.name}: {before:.3g} -> {one.compared:.3g} ({ratio - 1:.0%} worse)")
    return found


def render_table(figures: Sequence[Figure]) -> str:
    lines = [f"{'row':>3}  {'measure':<58} {'median':>10} {'spread':>21} {'goal':>10}  result"]
    for one in figures:
        spread = f"{_number(one.low)}..{_number(one.high)}"
        goal = "" if one.goal is None else ("≥ " if one.more_is_better else "≤ ") + _number(one.goal)
        result = {None: "", True: "met", False: "NOT MET"}[one.met]
        value = f"{_number(one.value)} {one.unit}"
        row = str(one.row) if one.row else ""
        lines.append(f"{row:>3}  {one.name:<58} {value:>10} {spread:>21} {goal:>10}  {result}")
    return "\n".join(lines)


def to_json(figures: Sequence[Figure]) -> list[dict[str, Any]]:
    return [{**asdict(one), "met": one.met} for one in figures]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
