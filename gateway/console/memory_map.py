"""Memories as points of a plane: near each other when they mean nearly the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memory.embed import Vectors
    from memory.records import Memory

WIDTH, HEIGHT, MARGIN = 900, 600, 24
COLOURS = 8
APART = 12.0
GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))
TRIES = 3_000
DIRECTIONS, ROUNDS = 8, 8
TOLD = 120


@dataclass(frozen=True, slots=True)
class Spot:
    """One memory on the map."""

    id: str
    x: float
    y: float
    colour: int
    radius: float
    text: str


def flatten(vectors: Vectors) -> list[tuple[float, float]]:
    """The two directions in which the vectors differ most (principal components), each from 0 to 1. Blocking."""
    import numpy as np

    if len(vectors) < 2:
        return [(0.5, 0.5)] * len(vectors)
    centred = vectors - vectors.mean(axis=0)
    # the whole decomposition takes a second for a map; a few rounds over a few directions find the first two
    found = np.random.default_rng(0).standard_normal((centred.shape[1], DIRECTIONS), dtype=np.float32)
    for _ in range(ROUNDS):
        found, _ = np.linalg.qr(centred.T @ (centred @ found))
    _, _, axes = np.linalg.svd(centred @ found, full_matrices=False)
    directions = found @ axes[:2].T
    # one more memory must not turn the map over: each direction points to where its largest part is
    directions *= np.sign(directions[np.abs(directions).argmax(axis=0), range(directions.shape[1])])
    plane = centred @ directions
    if plane.shape[1] < 2:
        plane = np.column_stack([plane[:, 0], np.zeros(len(plane))])
    low, high = np.percentile(plane, [1, 99], axis=0)
    spread = np.clip((plane - low) / np.maximum(high - low, 1e-9), 0, 1)
    return [(float(x), float(y)) for x, y in spread]


def spread(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points with at least APART between any two: one that lies on another goes round it in a growing spiral, so
    that memories which say the same can each be pointed at. Those beyond what the map has room for stay."""
    taken: dict[tuple[int, int], list[tuple[float, float]]] = {}
    placed: list[tuple[float, float]] = []
    begin: dict[tuple[int, int], int] = {}
    for point in points:
        at = _cell(point)
        tried = ((step, one) for step, one in _around(point, begin.get(at, 0)) if not _is_taken(one, taken))
        step, free = next(tried, (TRIES, point))
        begin[at] = max(step, begin.get(at, 0))
        taken.setdefault(_cell(free), []).append(free)
        placed.append(free)
    return placed


def _around(point: tuple[float, float], begin: int) -> Iterator[tuple[int, tuple[float, float]]]:
    """The point itself, then a spiral round it from its step `begin` on: what is nearer is taken already."""
    for step in (0, *range(max(1, begin), TRIES)):
        away, angle = APART * 0.8 * math.sqrt(step), step * GOLDEN_ANGLE
        x, y = point[0] + away * math.cos(angle), point[1] + away * math.sin(angle)
        yield step, (min(max(x, MARGIN), WIDTH - MARGIN), min(max(y, MARGIN), HEIGHT - MARGIN))


def _cell(point: tuple[float, float]) -> tuple[int, int]:
    return int(point[0] // APART), int(point[1] // APART)


def _is_taken(point: tuple[float, float], taken: Mapping[tuple[int, int], Sequence[tuple[float, float]]]) -> bool:
    column, row = _cell(point)
    near = (one for x in (-1, 0, 1) for y in (-1, 0, 1) for one in taken.get((column + x, row + y), ()))
    return any(math.dist(point, one) < APART for one in near)


def place(memories: Sequence[Memory], plane: Sequence[tuple[float, float]], colours: Mapping[str, int]) -> list[Spot]:
    """The spots; what matters more is larger."""
    points = [(MARGIN + x * (WIDTH - 2 * MARGIN), MARGIN + y * (HEIGHT - 2 * MARGIN)) for x, y in plane]
    return [
        Spot(
            id=memory.id,
            x=round(x, 1),
            y=round(y, 1),
            colour=colours.get(memory.topic or "", 0),
            radius=3.5 + memory.importance * 0.5,
            text=memory.text if len(memory.text) <= TOLD else f"{memory.text[:TOLD]}…",
        )
        for memory, (x, y) in zip(memories, spread(points), strict=True)
    ]


def draw(spots: Sequence[Spot], title: str) -> Markup:
    """The map as SVG; every spot is a link that says its text."""
    drawn = Markup("").join(
        Markup(
            '<a href="/console/memory/{}" aria-label="{}"><circle class="topic-{}" cx="{}" cy="{}" r="{}"/></a>'
        ).format(spot.id, spot.text, spot.colour, spot.x, spot.y, spot.radius)
        for spot in spots
    )
    return Markup('<svg id="map" viewBox="0 0 {} {}" role="group" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, title, drawn
    )
