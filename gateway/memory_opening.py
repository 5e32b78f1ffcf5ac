"""Builds memory on `state.db`; imported when it is opened, because of what it imports."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

from sqlalchemy import MetaData

from gateway.database import open_database
from memory.corpus import MemorySearch
from memory.database import Records
from memory.errors import NotThere
from memory.fulltext import FullText
from memory.memory import Memories
from memory.records import UPKEEP
from memory.store import MemoryStore
from memory.text import cut, cut_query
from memory.topic_store import TopicStore

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import tzinfo
    from pathlib import Path

    from sqlalchemy.ext.asyncio import AsyncEngine

    from gateway.clock import Clock
    from memory.policy import MemoryPolicy


async def open_memories(
    path: Path, clock: Clock, policy: MemoryPolicy, projects: Iterable[str], zone: tzinfo = UTC
) -> tuple[AsyncEngine, Memories]:
    """An engine of its own, since a purge rewrites the file and the ledger writes on meanwhile."""
    engine = await open_database(path, MetaData())
    try:
        records = Records(engine)
        await records.migrate()
        memories = _connected(records, clock, policy, zone)
        await memories.start()
        await make_projects(memories, projects)
    except BaseException:
        await engine.dispose()
        raise
    return engine, memories


def _connected(records: Records, clock: Clock, policy: MemoryPolicy, zone: tzinfo) -> Memories:
    fulltext = FullText(cut, cut_query)
    store = MemoryStore(records, fulltext, policy, new_id=clock.new_id, now=clock.now, zone=zone)
    return Memories(
        store=store,
        topics=TopicStore(records, fulltext, new_id=clock.new_id, now=clock.now),
        fulltext=fulltext,
        searcher=MemorySearch(store, policy, clock.now),
        policy=policy,
        now=clock.now,
    )


async def make_projects(memories: Memories, names: Iterable[str]) -> None:
    """Projects that agents are bound to exist from the start; who is a member is said elsewhere."""
    for name in sorted(names):
        try:
            await memories.topics.project(UPKEEP, name)
        except NotThere:
            await memories.topics.put_project(UPKEEP, name)
