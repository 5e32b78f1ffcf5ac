"""Evidence files are read leniently, and rankings scored as published."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memory.evidence import Asked, BadEvidenceFile, parse_evidence, score


def file_of(questions: list[dict[str, Any]]) -> str:
    said = [
        {"speaker": "Mara", "dia_id": "D1:1", "text": "Look!", "blip_caption": "a photo of a barn"},
        {"speaker": "Tomas", "dia_id": "D:1:2", "text": "Nice."},
    ]
    conversation = {"speaker_a": "Mara", "session_1_date_time": "noon", "session_10": [], "session_1": said}
    return json.dumps([{"conversation": conversation, "qa": questions}])


def test_turns_have_captions_and_evidence_is_read_whatever_its_form() -> None:
    (conversation,) = parse_evidence(
        file_of(
            [
                {"question": "a", "evidence": ["D1:1; D:1:2"]},
                {"question": "b", "evidence": ["D9:9", "D", "D1:2"]},
                {"question": "c", "evidence": ["D9:9"]},
                {"question": "d"},
            ]
        )
    )
    assert [len(session) for session in conversation.sessions] == [2, 0]
    assert conversation.sessions[0][0].text == "Look! [shared a photo of a barn]"
    assert [(asked.text, set(asked.evidence)) for asked in conversation.questions] == [
        ("a", {(1, 1), (1, 2)}),
        ("b", {(1, 2)}),
    ]


@pytest.mark.parametrize("payload", ["", "{}", "[]", "[1]", '[{"qa": []}]', '[{"conversation": {}, "qa": [{}]}]'])
def test_another_file_is_refused_with_the_reason(payload: str) -> None:
    with pytest.raises(BadEvidenceFile):
        parse_evidence(payload)


def test_recall_and_gain_are_averages_over_questions() -> None:
    both, one = Asked("a", frozenset({(1, 1), (1, 2)})), Asked("b", frozenset({(1, 3)}))
    filler = [(9, number) for number in range(9)]
    found = score([(both, [(1, 1), *filler, (1, 2)]), (one, [(9, 9), (1, 3)])])
    assert found.questions == 2
    assert found.recall == pytest.approx({5: 0.75, 10: 0.75, 20: 1.0})
    assert found.ndcg == pytest.approx((1 / (1 + 0.6309298) + 0.6309298) / 2)
    assert score([]).to_json() == {"recall@5": 0.0, "recall@10": 0.0, "recall@20": 0.0, "ndcg@10": 0.0}
