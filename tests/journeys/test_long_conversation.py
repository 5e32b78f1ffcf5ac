"""A conversation much longer than its model's window; 500 turns of it with `make soak`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bench.compaction_soak import run

if TYPE_CHECKING:
    from pathlib import Path

TURNS = 60


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_compactions_come_as_often_as_they_must_and_no_prompt_is_above_the_hard_limit(tmp_path: Path) -> None:
    figures = await run(TURNS, tmp_path)
    print(figures)
    assert figures.broken() == []
    assert figures.compactions >= 2
