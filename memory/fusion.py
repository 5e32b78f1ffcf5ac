"""From the scores of several searches to one ranking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Id = TypeVar("Id")

NEIGHBOUR_CREDIT = 0.3
UNDECIDED = 0.5
"""For each of the best that are all alike: none of them is the nearest, and what they leave out is no further."""


@dataclass(frozen=True, slots=True)
class Scored(Generic[Id]):
    """What one search found; higher is better. `floor` is the score of whatever it did not find: 0 for full text; None
    when only the best were asked for, as of vectors: then it is the lowest score among them."""

    scores: Mapping[Id, float]
    floor: float | None = 0.0


def min_max_sum(searches: Iterable[Scored[Id]]) -> dict[Id, float]:
    """Each search's scores brought to 0..1, then added up (spec memory.md, "Recall": better than fusing ranks)."""
    total: dict[Id, float] = {}
    for search in searches:
        if not search.scores:
            continue
        best = max(search.scores.values())
        floor = min(search.scores.values()) if search.floor is None else search.floor
        span = best - floor
        alike = UNDECIDED if search.floor is None and len(search.scores) > 1 else 1.0
        for one, score in search.scores.items():
            total[one] = total.get(one, 0.0) + ((score - floor) / span if span > 0 else alike)
    return total


def with_neighbours(
    scores: Mapping[Id, float], neighbours: Callable[[Id], Sequence[Id]], credit: float = NEIGHBOUR_CREDIT
) -> dict[Id, float]:
    """Adds to every score `credit` times that of the best neighbour: an answer often stands beside what names it.

    `neighbours` of what was found; one that was not found itself comes in with the credit alone.
    """
    best: dict[Id, float] = {}
    for one, score in scores.items():
        for near in neighbours(one):
            best[near] = max(best.get(near, 0.0), score)
    return {one: scores.get(one, 0.0) + credit * best.get(one, 0.0) for one in dict.fromkeys([*scores, *best])}


def ranked(scores: Mapping[Id, float], limit: int) -> list[tuple[Id, float]]:
    """The best first; among equals, the one that came first in `scores`."""
    return sorted(scores.items(), key=lambda item: -item[1])[:limit]
