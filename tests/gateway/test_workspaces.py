"""An agent's files as recall and tools are given them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gateway.clock import ManualClock
from gateway.parts import Parts
from tests.journeys.daemon import config
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_piece_of_a_file_that_has_changed_since_it_was_indexed_says_so_and_one_that_is_gone_is_none(
    tmp_path: Path,
) -> None:
    file = tmp_path / "workspaces" / "main" / "memory" / "hive.md"
    file.parent.mkdir(parents=True)
    file.write_text("The hive is green.\n", "utf-8")
    # the clock stands still, so the rest after the first file never ends, and nothing else is indexed
    parts = Parts(config(), tmp_path, environ={}, clock=ManualClock(datetime(2026, 5, 1, tzinfo=UTC)))
    tasks = [asyncio.create_task(work) for work in (parts.tokens.load(), parts.workspaces.run())]
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await parts.workspaces.find("main", None, "hive green", 5)):
                await asyncio.sleep(0.01)
        assert [(one.where, one.stale) for _, one in found] == [("memory/hive.md:1-1", False)]
        file.write_text("The hive was painted blue.\n", "utf-8")
        found = await parts.workspaces.find("main", None, "hive green", 5)
        assert [(one.text, one.stale) for _, one in found] == [("The hive is green.", True)]
        file.unlink()
        assert await parts.workspaces.find("main", None, "hive green", 5) == []
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await parts.workspaces.stop()
