"""Memory on a file of its own, for tests."""

from __future__ import annotations

import io
import tempfile
from contextlib import asynccontextmanager
from datetime import UTC
from pathlib import Path
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

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import tzinfo

    from gateway.clock import Clock
    from memory.importing import Imported
    from memory.records import Pool

EMPTY: list[bytes] = []
"""The tables as the migrations make them, once a process: they are a third of what a test of memory takes."""

ROOT = Viewer(user="owner", author="owner", admin=True, whole=True)


def person(user: str | None, **more: object) -> Viewer:
    """A person at the API."""
    return Viewer(user=user, author=user or "nobody", **more)  # pyright: ignore[reportArgumentType]


async def make_tables(path: Path) -> None:
    """Before a database is opened for the first time; `migrate` then finds everything in its place."""
    if not EMPTY:
        with tempfile.TemporaryDirectory() as folder:
            engine = await open_database(Path(folder) / "empty.db", MetaData())
            await Records(engine).migrate()
            await engine.dispose()
            EMPTY.append((Path(folder) / "empty.db").read_bytes())
    if not path.exists():
        path.write_bytes(EMPTY[0])


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
