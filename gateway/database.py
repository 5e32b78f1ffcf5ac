"""`state.db`: the tables of the gateway, and the engine that opens them."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, MetaData, String, Table, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.util import await_only, greenlet_spawn

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy.engine import Dialect

BUSY_TIMEOUT_MS = 10_000
LOG_PAGES = 4_000
"""How long the log grows (16 MB) before its pages go into the file. At SQLite's own 1,000 that took a fifth of the time
of adding many memories."""

metadata = MetaData()

usage_table = Table(
    "usage",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("at", BigInteger, nullable=False, comment="milliseconds since 1970, UTC"),
    Column("session", String(26), nullable=False),
    Column("key", String(512), nullable=False),
    Column("user", String(512)),
    Column("agent", String(512), nullable=False),
    Column("role", String(32), nullable=False),
    Column("model_name", String(256), nullable=False),
    Column("model", String(256), nullable=False),
    Column("input_total", BigInteger, nullable=False),
    Column("cached_read", BigInteger, nullable=False),
    Column("cache_write", BigInteger, nullable=False),
    Column("output", BigInteger, nullable=False),
    Column("reasoning", BigInteger, nullable=False),
    Column("reported", Boolean, nullable=False),
    Column("cost_pico", BigInteger, comment="10^-12 of the currency, exact; null: the price is unknown"),
    Column("duration_s", Float, nullable=False),
    Index("usage_at", "at"),
    Index("usage_session", "session"),
)

cause_table = Table(
    "usage_causes",
    metadata,
    Column("id", String(64), primary_key=True, comment="of the call in usage"),
    Column("cause", String(32), nullable=False, comment="why the provider's cache broke; none: it did not"),
)


async def open_database(path: Path, tables: MetaData = metadata, *, synchronous: str = "NORMAL") -> AsyncEngine:
    """An engine of `state.db`, with the tables given; WAL, secure delete, and a wait instead of "database is locked".

    `synchronous="FULL"`: what is committed survives a power cut too.
    """
    factory = partial(_Connection, synchronous=synchronous)
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", connect_args={"factory": factory})
    event.listen(engine.sync_engine, "do_connect", _connect)
    try:
        await asyncio.to_thread(_prepare_file, path)
        async with engine.begin() as connection:
            await connection.run_sync(tables.create_all)
    except BaseException:
        await engine.dispose()
        raise
    return engine


class _Connection(sqlite3.Connection):
    """Made with its settings in one step, and closed with its cursors.

    A cursor of a caller who was cancelled is there until it is collected, which may take minutes. SQLite would keep the
    file open for it, and the lock on it.
    """

    def __init__(self, *values: Any, synchronous: str, **named: Any) -> None:
        super().__init__(*values, **named)
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()
        pragmas = (
            f"busy_timeout={BUSY_TIMEOUT_MS}",
            "secure_delete=ON",
            f"synchronous={synchronous}",
            f"wal_autocheckpoint={LOG_PAGES}",
        )
        try:
            for pragma in pragmas:
                self.execute(f"PRAGMA {pragma}")
        except BaseException:
            self.close()
            raise

    def cursor(self, *values: Any, **named: Any) -> Any:
        """`execute` comes here too."""
        cursor = super().cursor(*values, **named)
        self._cursors.add(cursor)
        return cursor

    def close(self) -> None:
        for cursor in list(self._cursors):
            cursor.close()
        super().close()


def _connect(dialect: Dialect, _record: Any, values: list[Any], named: dict[str, Any]) -> Any:
    return await_only(_opened(asyncio.ensure_future(greenlet_spawn(dialect.connect, *values, **named))))


async def _opened(opening: asyncio.Future[Any]) -> Any:
    """The connection, opened to its end: aiosqlite forgets one whose caller is cancelled, and never closes it."""
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close)
        raise


def _close(opening: asyncio.Future[Any]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().driver_connection.stop()


preparing = Lock()


def _prepare_file(path: Path) -> None:
    """Its mode comes first: its log files get the mode the database has then. Raises OSError.

    WAL is a property of the file. Two connections that switch to it at once do not wait for each other: one is told
    "database is locked" whatever its timeout, and a new daemon opens this file for four of its parts.
    """
    with preparing:
        path.touch(mode=0o600)
        path.chmod(0o600)
        try:
            with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_MS / 1000)) as file:
                file.execute("PRAGMA journal_mode=WAL")
        except sqlite3.Error as error:
            raise OSError(str(error)) from error
