"""The search of the archive finds what answers questions: guarded with made-up conversations in LoCoMo's format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from gateway.cli.evaluate import app
from gateway.evidence import Measured, by_words, by_words_and_meaning, measure
from memory.embed import HashEmbedder
from memory.evidence import parse_evidence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory.embed import Vectors

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


WITH_VECTORS = {"recall@5": 79, "recall@10": 86, "recall@20": 94, "ndcg@10": 75}
WITH_VECTORS_AND_NEIGHBOURS = {"recall@5": 82, "recall@10": 92, "recall@20": 98, "ndcg@10": 77}


def below(measured: Measured) -> set[str]:
    """The figures that are lower than what words and the vectors of `HashEmbedder` reach on this file."""
    alone, near = measured.alone.to_json(), measured.with_neighbours.to_json()
    fallen = {name for name, least in WITH_VECTORS.items() if alone[name] < least}
    return fallen | {f"near {name}" for name, least in WITH_VECTORS_AND_NEIGHBOURS.items() if near[name] < least}


class Blind(HashEmbedder):
    """All texts are equally near, so vectors say nothing."""

    def _embed(self, texts: Sequence[str]) -> Vectors:
        return super()._embed(["the same"] * len(texts))


async def test_vectors_join_the_ranking(tmp_path: Path) -> None:
    conversations = parse_evidence(MADE_UP.read_text("utf-8"))
    assert below(await measure(conversations, tmp_path / "both", by_words_and_meaning(HashEmbedder()))) == set()


async def test_the_guard_of_vectors_notices_when_they_are_left_out_or_say_nothing(tmp_path: Path) -> None:
    conversations = parse_evidence(MADE_UP.read_text("utf-8"))
    for folder, scorers in (("words", by_words), ("blind", by_words_and_meaning(Blind()))):
        assert {"recall@20", "near recall@20"} <= below(await measure(conversations, tmp_path / folder, scorers))


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
