"""Memory on a file of its own, for tests."""

from __future__ import annotations

import io
from contextlib import asynccontextmanager
from datetime import UTC
from typing import TYPE_CHECKING

from sqlalchemy import MetaData

from gateway.database import open_database
from memory.corpus import MemorySearch
from memory.database import Records
from memory.fulltext import FullText
from memory.memory import Memories
from memory.policy import MemoryPolicy
from memory.records import Viewer
from memory.store import MemoryStore
from memory.text import cut, cut_query
from memory.topic_store import TopicStore
from tests.tables import make_tables

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import tzinfo
    from pathlib import Path

    from gateway.clock import Clock
    from memory.importing import Imported
    from memory.records import Pool

ROOT = Viewer(user="owner", author="owner", admin=True, whole=True)


def person(user: str | None, **more: object) -> Viewer:
    """A person at the API."""
    return Viewer(user=user, author=user or "nobody", **more)  # pyright: ignore[reportArgumentType]


async def exported(memories: Memories, viewer: Viewer, pool: Pool | None = None) -> str:
    file = io.BytesIO()
    await memories.export(viewer, file, pool)
    return file.read().decode()


async def taken_in(memories: Memories, viewer: Viewer, lines: str, pool: Pool | None = None) -> Imported:
    return await memories.take_in(viewer, io.BytesIO(lines.encode()), pool)


@asynccontextmanager
async def opened(
    path: Path,
    clock: Clock,
    policy: MemoryPolicy | None = None,
    fulltext: FullText | None = None,
    zone: tzinfo = UTC,
) -> AsyncIterator[Memories]:
    policy = policy or MemoryPolicy()
    await make_tables(path)
    engine = await open_database(path, MetaData())
    records = Records(engine)
    await records.migrate()
    fulltext = fulltext or FullText(cut, cut_query)
    store = MemoryStore(records, fulltext, policy, new_id=clock.new_id, now=clock.now, zone=zone)
    try:
        yield Memories(
            store=store,
            topics=TopicStore(records, fulltext, new_id=clock.new_id, now=clock.now),
            fulltext=fulltext,
            searcher=MemorySearch(store, policy, clock.now),
            policy=policy,
            now=clock.now,
        )
    finally:
        await engine.dispose()
