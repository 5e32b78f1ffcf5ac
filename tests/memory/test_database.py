"""The records' connections: what others do to the same file meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING, Any

from sqlalchemy import MetaData, event
from sqlalchemy.pool import Pool

from gateway.clock import ManualClock
from gateway.database import open_database
from memory.database import Records
from memory.records import Draft
from tests.memory.leftovers import not_collected, open_files
from tests.memory.opened import opened, person
from tests.patience import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Connection

ANA = person("ana")


@contextmanager
def tables_made_while_full_text_opens(path: Path) -> Iterator[list[str]]:
    """Each time a connection opens full text, another one makes a table; gives their names."""
    made: list[str] = []
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:

        def asked(_action: int, table: str | None, *_more: Any) -> int:
            if table == "memory_text_config":
                made.append(f"other_{len(made)}")
                other.execute(f"CREATE TABLE {made[-1]} (one INTEGER)")
            return sqlite3.SQLITE_OK

        def connected(connection: Any, _record: Any) -> None:
            if isinstance(connection, sqlite3.Connection):
                connection.set_authorizer(asked)

        event.listen(Pool, "connect", connected)
        try:
            yield made
        finally:
            event.remove(Pool, "connect", connected)


async def test_a_read_whose_caller_is_cancelled_leaves_no_file_open(tmp_path: Path) -> None:
    """Its thread goes on after the engine is closed."""
    reading, closed = Event(), Event()

    def read(_connection: Connection) -> None:
        reading.set()
        assert closed.wait(PATIENCE_S)

    with not_collected():
        engine = await open_database(tmp_path / "state.db", MetaData())
        caller = asyncio.create_task(Records(engine).read(read))
        await until(reading.is_set)
        caller.cancel()
        await asyncio.wait({caller})
        await engine.dispose()
        closed.set()
        await until(lambda: open_files(tmp_path) == [])


async def test_a_search_is_answered_while_other_parts_of_the_daemon_make_their_tables(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with opened(path, ManualClock(datetime(2026, 5, 1, 12, tzinfo=UTC))) as memories:
        await memories.store.add(ANA, [Draft(text="Plum orders go to Brno")])
        with tables_made_while_full_text_opens(path) as made:
            found = await memories.search(ANA, "plum", mode="keyword")
        assert [hit.memory.text for hit in found.hits] == ["Plum orders go to Brno"]
        assert made
