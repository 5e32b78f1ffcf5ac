"""Memories as points of a plane."""

from __future__ import annotations

import math
import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gateway.console.memory_map import APART, HEIGHT, MARGIN, WIDTH, flatten, spread

x = st.floats(MARGIN, WIDTH - MARGIN)
y = st.floats(MARGIN, HEIGHT - MARGIN)


@given(
    st.lists(st.one_of(st.tuples(x, y), st.just((100.0, 100.0)), st.just((MARGIN + 0.0, MARGIN + 0.0))), max_size=80)
)
def test_no_spot_lies_on_another_and_all_stay_on_the_map(points: list[tuple[float, float]]) -> None:
    placed = spread(points)
    assert len(placed) == len(points)
    for at, one in enumerate(placed):
        assert MARGIN <= one[0] <= WIDTH - MARGIN
        assert MARGIN <= one[1] <= HEIGHT - MARGIN
        assert all(math.dist(one, other) >= APART for other in placed[:at])


def test_the_plane_is_that_of_the_first_two_principal_components() -> None:
    draw = np.random.default_rng(3)
    spread_out = draw.standard_normal((200, 2)) * (9, 4)
    vectors = np.hstack([spread_out, draw.standard_normal((200, 50)) * 0.5]).astype(np.float32)
    plane = np.array(flatten(vectors))
    for ours, theirs in zip(plane.T, spread_out.T, strict=True):
        assert abs(np.corrcoef(ours, theirs)[0, 1]) > 0.97


def test_few_or_equal_vectors_are_on_the_map_as_well() -> None:
    assert flatten(np.ones((1, 4), np.float32)) == [(0.5, 0.5)]
    for same in (np.ones((5, 4), np.float32), np.ones((5, 1), np.float32)):
        assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in flatten(same))


def test_a_spot_that_has_room_stays_where_it_means_to_be() -> None:
    points = [(100.0, 100.0), (200.0, 200.0), (100.0, 100.0)]
    assert spread(points)[:2] == points[:2]


def test_six_hundred_memories_that_say_the_same_are_spread_in_a_moment() -> None:
    started = time.process_time()
    placed = spread([(300.0, 300.0)] * 600)
    assert len(set(placed)) == 600
    assert time.process_time() - started < 5
