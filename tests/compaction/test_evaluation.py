from __future__ import annotations

import pytest

from compaction.evaluation import FACTS, evaluate_rules
from compaction.policy import CompactionPolicy
from tests.sessions.builders import AT


@pytest.mark.parametrize("language", list(FACTS))
def test_rules_keep_most_of_what_was_planted_and_never_invent_or_lose(language: str) -> None:
    found = evaluate_rules(language, 10, CompactionPolicy(), 4000, lambda text: len(text) // 3 + 1, AT)
    assert [one.generation for one in found] == list(range(1, 11))
    assert [(one.invented, one.neither) for one in found] == [(0, 0)] * 10
    assert sum(found[0].kept.values()) >= 7
    assert all(found[-1].kept[name] for name in ("prohibition", "preference", "decision with reason"))
