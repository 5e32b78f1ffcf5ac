from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from sessions.queues import Lane

if TYPE_CHECKING:
    from sessions.policy import QueueMode


@dataclass(frozen=True)
class Item:
    id: str
    mode: QueueMode
    speaker: str | None


def lane_of(*items: Item) -> Lane[Item]:
    lane: Lane[Item] = Lane()
    lane.waiting.extend(items)
    return lane


def taken(lane: Lane[Item]) -> list[str]:
    return [item.id for item in lane.take()]


def test_what_one_speaker_says_is_collected_up_to_what_another_says() -> None:
    lane = lane_of(
        Item("1", "collect", "ana"),
        Item("2", "collect", "ana"),
        Item("3", "collect", None),
        Item("4", "collect", None),
        Item("5", "collect", "ana"),
        Item("6", "followup", "ana"),
    )
    assert [taken(lane) for _ in range(4)] == [["1", "2"], ["3", "4"], ["5"], ["6"]]


@pytest.mark.parametrize("stranger", ["bob", None])
def test_only_the_speaker_of_a_turn_steers_it_and_others_keep_their_place(stranger: str | None) -> None:
    lane = lane_of(Item("1", "steer", "ana"))
    lane.take()
    lane.waiting.extend([Item("2", "steer", stranger), Item("3", "steer", "ana"), Item("4", "followup", "ana")])
    assert [item.id for item in lane.take_steering()] == ["3"]
    assert [item.id for item in lane.running] == ["1", "3"]
    assert [item.id for item in lane.waiting] == ["2", "4"]


def test_nobody_known_is_not_joined_by_somebody() -> None:
    lane = lane_of(Item("1", "collect", None), Item("2", "collect", "ana"))
    assert taken(lane) == ["1"]
    lane.waiting.append(Item("3", "steer", "ana"))
    assert lane.take_steering() == []
