"""Settings people make for themselves: their names, and what then holds."""

from __future__ import annotations

from gateway.personal import effective, flat, names
from memory.policy import MemoryPolicy, RecallPolicy


def test_every_setting_of_recall_has_a_name() -> None:
    told = flat(RecallPolicy().model_dump(), "recall.")
    assert {name for name in names() if name.startswith("recall.")} == set(told)
    assert told["recall.mid_turn.searches"] == 6


def test_what_is_chosen_holds_and_what_is_impossible_or_unknown_is_as_configured() -> None:
    policy = MemoryPolicy(recall=RecallPolicy(limit=4))
    chosen = {
        "recall.wait_s": 0,
        "recall.mid_turn.batch": 1,
        "recall.limit": 1000,
        "recall.on_message": None,
        "recall.colour": "red",
        "retention.enabled": False,
    }
    found = effective(policy, chosen)
    assert (found.recall.wait_s, found.recall.mid_turn.batch) == (0, 1)
    assert (found.recall.limit, found.recall.on_message) == (4, True)
    assert found.retention.enabled
    assert found.recall.mid_turn.searches == 6
