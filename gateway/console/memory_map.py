"""Memories as points of a plane: near each other when they mean nearly the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory.embed import Vectors
    from memory.records import Memory

WIDTH, HEIGHT, MARGIN = 900, 600, 24
COLOURS = 8
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
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    plane = centred @ axes[:2].T
    if plane.shape[1] < 2:
        plane = np.column_stack([plane[:, 0], np.zeros(len(plane))])
    low, high = np.percentile(plane, [1, 99], axis=0)
    spread = np.clip((plane - low) / np.maximum(high - low, 1e-9), 0, 1)
    return [(float(x), float(y)) for x, y in spread]


def place(memories: Sequence[Memory], plane: Sequence[tuple[float, float]], colours: Mapping[str, int]) -> list[Spot]:
    """The spots; what matters more is larger."""
    return [
        Spot(
            id=memory.id,
            x=round(MARGIN + x * (WIDTH - 2 * MARGIN), 1),
            y=round(MARGIN + y * (HEIGHT - 2 * MARGIN), 1),
            colour=colours.get(memory.topic or "", 0),
            radius=3.5 + memory.importance * 0.5,
            text=memory.text if len(memory.text) <= TOLD else f"{memory.text[:TOLD]}…",
        )
        for memory, (x, y) in zip(memories, plane, strict=True)
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
