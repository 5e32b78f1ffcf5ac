"""The search of the archive finds what answers questions: guarded with made-up conversations in LoCoMo's format."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from gateway.cli.evaluate import app
from gateway.evidence import by_words_and_meaning, measure
from memory.embed import HashEmbedder
from memory.evidence import parse_evidence

MADE_UP = Path(__file__).parents[1] / "data" / "evidence" / "made_up.json"


async def test_evidence_recall_does_not_fall(tmp_path: Path) -> None:
    conversations = parse_evidence(MADE_UP.read_text("utf-8"))
    measured = await measure(conversations, tmp_path)
    alone, near = measured.alone.to_json(), measured.with_neighbours.to_json()
    assert measured.alone.questions == 34
    assert alone["recall@5"] >= 76
    assert alone["ndcg@10"] >= 70
    assert near["recall@5"] >= 88
    assert near["recall@10"] >= 92
    assert near["ndcg@10"] >= 78


async def test_vectors_join_the_ranking(tmp_path: Path) -> None:
    conversations = parse_evidence(MADE_UP.read_text("utf-8"))[:1]
    words = await measure(conversations, tmp_path / "words")
    both = await measure(conversations, tmp_path / "both", by_words_and_meaning(HashEmbedder()))
    assert both.alone.questions == words.alone.questions
    assert both.with_neighbours.to_json()["recall@20"] >= words.with_neighbours.to_json()["recall@20"] - 5


def test_the_command_prints_both_rankings_and_refuses_other_files(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["recall", "--data", str(MADE_UP), "--json"])
    assert told.exit_code == 0
    shown = json.loads(told.stdout)
    best = list(shown["rankings"].values())[-1]
    assert shown["recall@10"] == best["recall@10"] >= 92
    other = tmp_path / "other.json"
    other.write_text("{}")
    refused = CliRunner().invoke(app, ["recall", "--data", str(other)])
    assert refused.exit_code == 2
    assert "LoCoMo" in refused.output
