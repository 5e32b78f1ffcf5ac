"""The search of the archive finds what answers questions: guarded with made-up conversations in LoCoMo's format."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from gateway.cli.evaluate import app
from gateway.evidence import measure
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


def test_the_command_prints_both_rankings_and_refuses_other_files(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["recall", "--data", str(MADE_UP), "--json"])
    assert told.exit_code == 0
    shown = json.loads(told.stdout)
    assert shown["recall@10"] == shown["rankings"]["with neighbours"]["recall@10"] >= 92
    other = tmp_path / "other.json"
    other.write_text("{}")
    refused = CliRunner().invoke(app, ["recall", "--data", str(other)])
    assert refused.exit_code == 2
    assert "LoCoMo" in refused.output
