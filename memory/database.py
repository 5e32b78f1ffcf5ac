"""Connections to the records: reads, writes one after the other, the tables brought up to date, and text wiped out."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import create_engine, event, inspect
from sqlalchemy.exc import DBAPIError, IntegrityError

from memory.errors import MemoryConflict, MemoryUnavailable
from memory.tables import VERSION, VERSION_TABLE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from sqlalchemy import URL, Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

T = TypeVar("T")

MIGRATIONS = Path(__file__).parent / "migrations"
BUSY_S = 10
LOG_WAIT_MS = 5_000
"""How long the log is waited for that a reader holds open, as a long export does: others who write wait behind that."""


class Records:
    """The engine given from outside, as memory uses it."""

    def __init__(self, engine: AsyncEngine, *, wait_s: float = BUSY_S) -> None:
        """`wait_s`: how long a write waits for others, as an import, which takes a minute."""
        self._engine = engine
        self._wait_s = wait_s
        self._writer = asyncio.Lock()
        self.sqlite = engine.dialect.name == "sqlite"
        self._plain = _Plain(engine) if self.sqlite else None

    async def migrate(self) -> None:
        """Makes or changes the tables. Alembic reads its steps from files, and waits: in a thread, for SQLite.

        Tables that are up to date, as at nearly every start, need no Alembic.
        """
        if self.sqlite:
            await asyncio.to_thread(_migrate_file, self._engine.url)
            return
        async with self._engine.begin() as connection:
            await connection.run_sync(_upgrade)

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[AsyncConnection, None]:
        """Raises MemoryUnavailable when the database cannot be read."""
        try:
            async with self._engine.connect() as connection:
                yield connection
        except (DBAPIError, OSError) as error:
            raise _unavailable(error) from error

    async def read(self, work: Callable[[Connection], T]) -> T:
        """One piece of reading as a whole: a step in a thread for SQLite, where each statement of `reading` takes five,
        and one moment of the file.

        Raises MemoryUnavailable when the database cannot be read.
        """
        try:
            if self._plain is not None:
                return await asyncio.to_thread(self._plain.read, work)
            async with self._engine.connect() as connection:
                return await connection.run_sync(work)
        except (DBAPIError, OSError) as error:
            raise _unavailable(error) from error

    @asynccontextmanager
    async def writing(self, *, patient: bool = False) -> AsyncGenerator[AsyncConnection, None]:
        """One transaction that may read first: it holds SQLite's write lock from its beginning, so it cannot come
        to nothing half way. `patient`: nobody waits for it, so it waits as long as others write.

        Raises MemoryUnavailable.
        """
        try:
            async with self._turn(patient=patient), self._engine.begin() as connection:
                if self.sqlite:
                    await connection.exec_driver_sql("BEGIN IMMEDIATE")
                yield connection
        except IntegrityError as error:
            raise MemoryConflict("Another memory or topic has that place or name; nothing was changed.") from error
        except (DBAPIError, OSError) as error:
            raise _unavailable(error) from error

    async def scrub(self) -> bool:
        """Rewrites the database without what was deleted, and empties its log. False: a reader held the log open."""
        return await self._clear("PRAGMA temp_store=MEMORY", "VACUUM")

    async def empty_log(self) -> bool:
        """Until then what was deleted stands in it. False: a reader held it open."""
        return await self._clear()

    async def _clear(self, *first: str) -> bool:
        if not self.sqlite:
            return True
        try:
            async with self._turn(), self._engine.connect() as plain:
                connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
                for statement in first:
                    await connection.exec_driver_sql(statement)
                wait_ms = (await connection.exec_driver_sql("PRAGMA busy_timeout")).scalar_one()
                try:
                    await connection.exec_driver_sql(f"PRAGMA busy_timeout={LOG_WAIT_MS}")
                    return not (await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")).one()[0]
                finally:
                    await connection.exec_driver_sql(f"PRAGMA busy_timeout={wait_ms}")
        except (DBAPIError, OSError) as error:
            raise _unavailable(error) from error

    @asynccontextmanager
    async def _turn(self, *, patient: bool = False) -> AsyncGenerator[None, None]:
        """Writes come one after the other."""
        try:
            async with asyncio.timeout(None if patient else self._wait_s):
                await self._writer.acquire()
        except TimeoutError as error:
            raise MemoryUnavailable(
                "Memory is being written to by something long, as an import is. Try again in a moment."
            ) from error
        try:
            yield
        finally:
            self._writer.release()


def _unavailable(error: Exception) -> MemoryUnavailable:
    return MemoryUnavailable(f"Memory cannot be reached now ({_short(error)}). Try again in a moment.")


def _short(error: Exception) -> str:
    """The driver's words: the statement and its values, which hold texts, stay out."""
    return str(getattr(error, "orig", None) or error)


class _Plain:
    """A second way to the same file, for threads; it is closed with the first."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = create_engine(engine.url.set(drivername="sqlite"), connect_args={"timeout": BUSY_S})
        self._closed = False
        event.listen(engine.sync_engine, "engine_disposed", self._close)

    def read(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._engine.connect() as connection:
                # SQLite cannot read the schema anew while it opens full text: a table that another part of the daemon
                # makes then fails the search (SQLITE_SCHEMA). Within a transaction whose schema was read, none appears.
                connection.exec_driver_sql("BEGIN")
                connection.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1").all()
                return work(connection)
        finally:
            if self._closed:  # the caller was cancelled, the thread was not
                self._engine.pool.dispose()

    def _close(self, _engine: Engine) -> None:
        self._closed = True
        self._engine.pool.dispose()


def _migrate_file(url: URL) -> None:
    engine = create_engine(url.set(drivername="sqlite"), connect_args={"timeout": BUSY_S})
    try:
        with engine.begin() as connection:
            _upgrade(connection)
    finally:
        engine.dispose()


def _upgrade(connection: Connection) -> None:
    if _is_current(connection):
        return
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _is_current(connection: Connection) -> bool:
    if not inspect(connection).has_table(VERSION_TABLE):
        return False
    return connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalars().all() == [VERSION]  # noqa: S608
