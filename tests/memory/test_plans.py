"""What a person does takes as long among the memories of a hundred thousand others as it takes alone: SQLite finds the
rows by an index, and reads no table from end to end."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gateway.clock import ManualClock
from memory.records import Change, Draft, Filters, ListQuery, project_pool, user_pool
from tests.memory.opened import ROOT, opened, person
from tests.plans import read_whole, statements

if TYPE_CHECKING:
    from pathlib import Path

    from memory.memory import Memories

ANA = person("ana")
TABLES = "memories", "head", "memory_audit", "memory_changes", "memory_tombstones"
"""They grow with what everybody does."""


async def lives(memories: Memories) -> None:
    """A person's day, as far as it asks the records."""
    await memories.topics.put_project(ROOT, "house", with_members=["ana"])
    drafts = [Draft(text=f"Ana has {count} cats") for count in ("two", "three", "four")]
    one, two, three = [outcome.memory for outcome in await memories.add_many(ANA, drafts)]  # type: ignore[union-attr]
    await memories.add(ANA, Draft(text="The roof is green", pool=project_pool("house")))
    await memories.add(ANA, Draft(text="Ana is a vet", topic="profile"))
    profile = (await memories.add(ANA, Draft(text="Ana is a doctor", topic="profile"))).memory
    await memories.add(ANA, Draft(text="Ana has one cat", supersedes=one.id))
    for filters in (Filters(), Filters(recalled=True), Filters(as_of=memories.store._now())):
        for mode in ("keyword", "fetch"):
            await memories.search(ANA, "cats", mode=mode, filters=filters)
    for sort in ("updated", "created", "importance"):
        page, after = await memories.page(ANA, Filters(), ListQuery(limit=1, sort=sort))
        assert page
        await memories.page(ANA, Filters(), ListQuery(limit=1, sort=sort, after=after))
    await memories.page(ANA, Filters(pools=(user_pool("ana"), project_pool("house"))))
    await memories.store.count(ANA)
    await memories.note_recalled(ANA, [two.id, three.id])
    edited = await memories.update(ANA, two.id, Change(text="Ana has five cats"))
    await memories.undo_latest(ANA, edited.memory.id)
    await memories.undo_latest(ANA, profile.id)
    merged = await memories.merge(ANA, [two.id, three.id], "Ana has three or four cats")
    await memories.delete(ANA, merged.memory.id)
    await memories.restore(ANA, merged.memory.id)
    await memories.history(ANA, merged.memory.id)
    await memories.purge(ANA, [merged.memory.id])
    await memories.store.changes_since(0)


async def test_no_step_of_a_persons_day_reads_what_is_everybodys(tmp_path: Path) -> None:
    async with opened(tmp_path / "state.db", ManualClock(datetime(2026, 5, 1, tzinfo=UTC))) as memories:
        with statements() as asked:
            await lives(memories)
    assert len(asked) > 50
    assert read_whole(tmp_path / "state.db", asked, *TABLES) == []


def test_a_query_that_reads_a_whole_table_is_noticed(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db")) as file:
        file.execute("CREATE TABLE memories (id TEXT PRIMARY KEY, text TEXT)")
    asked = {"SELECT id FROM memories WHERE text = ?": ("x",), "SELECT text FROM memories WHERE id = ?": ("x",)}
    assert [one.partition(":")[0] for one in read_whole(tmp_path / "state.db", asked, *TABLES)] == ["SCAN memories"]
