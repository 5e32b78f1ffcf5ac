"""`state.db`, which several parts of a daemon open at the same time."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import MetaData
from sqlalchemy.exc import DatabaseError

from gateway import database
from gateway.database import open_database
from tests.memory.leftovers import not_collected, open_files
from tests.patience import until

if TYPE_CHECKING:
    from pathlib import Path

PARTS = 4
STOPS, LONGEST_S = 100, 0.02


async def test_a_new_file_is_opened_by_all_parts_at_once(tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / f"{number}.db"
        for engine in await asyncio.gather(*(open_database(path, MetaData()) for _ in range(PARTS))):
            await engine.dispose()
        with closing(sqlite3.connect(path)) as file:
            assert file.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert path.stat().st_mode & 0o777 == 0o600


async def test_one_part_at_a_time_switches_the_file_to_its_log(tmp_path: Path) -> None:
    """SQLite lets two that switch at once fail, and a wait does not help them: seen once in a thousand starts."""
    with database.preparing:
        opening = asyncio.create_task(open_database(tmp_path / "state.db", MetaData()))
        await asyncio.wait({opening}, timeout=0.2)
        assert not opening.done()
        assert not (tmp_path / "state.db").exists()
    await (await opening).dispose()


async def test_a_write_whose_caller_is_cancelled_leaves_no_lock(tmp_path: Path) -> None:
    """SQLite keeps a closed connection as long as one of its cursors is kept, here by a traceback."""
    engine = await open_database(tmp_path / "state.db", MetaData())
    begun = asyncio.Event()
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000) "

    async def write() -> None:
        async with engine.begin() as connection:
            await connection.exec_driver_sql("BEGIN IMMEDIATE")
            begun.set()
            await connection.exec_driver_sql(f"{numbers} SELECT count(*) FROM n UNION ALL SELECT i FROM n")

    with not_collected():
        writing = asyncio.create_task(write())
        await begun.wait()
        await asyncio.sleep(0.02)
        writing.cancel()
        await asyncio.wait({writing})
        assert writing.cancelled()
        with closing(sqlite3.connect(tmp_path / "state.db", timeout=5, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
        await engine.dispose()
        assert open_files(tmp_path) == []


async def test_a_caller_cancelled_at_any_moment_leaves_no_file_open(tmp_path: Path) -> None:
    """As a daemon that is stopped while it starts."""

    async def write() -> None:
        async with engine.begin() as connection:
            await connection.exec_driver_sql("CREATE TABLE one (number INTEGER)")
            await connection.exec_driver_sql("SELECT number FROM one")

    with not_collected():
        for turn in range(STOPS):
            engine = await open_database(tmp_path / f"{turn}.db", MetaData())
            await engine.dispose()
            writing = asyncio.create_task(write())
            await asyncio.wait({writing}, timeout=turn * LONGEST_S / STOPS)
            writing.cancel()
            await asyncio.wait({writing})
            await engine.dispose()
        await until(lambda: open_files(tmp_path) == [])


async def test_a_file_that_was_damaged_since_is_not_left_open(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    engine = await open_database(path, MetaData())
    await engine.dispose()
    path.write_bytes(b"no database " * 1000)
    with not_collected():
        with pytest.raises(DatabaseError, match="not a database"):
            await engine.connect()
        await until(lambda: open_files(tmp_path) == [])
