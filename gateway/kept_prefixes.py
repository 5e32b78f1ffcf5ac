"""What stood in the prefix of each session that goes on, so that it stands there after a restart too.

Memories are kept by id and revision, never by their words: what is deleted for good must not live on here. The agent's
notes are kept as they were read, once for all sessions that begin with the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from memory.cache_file import open_cache, remove_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

T = TypeVar("T")

FORMAT = 1
_SCHEMA = """
CREATE TABLE notes (sha256 TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE prefixes (session TEXT PRIMARY KEY, owner TEXT, notes TEXT, always TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX prefixes_notes ON prefixes (notes);
"""
_UNUSED = "DELETE FROM notes WHERE NOT EXISTS (SELECT 1 FROM prefixes WHERE prefixes.notes = sha256)"


@dataclass(frozen=True, slots=True)
class KeptMemory:
    """A memory. `created_at` tells it from another one with its id; `topic` is the name it was shown with."""

    id: str
    created_at: datetime
    revision: int
    topic: str | None


@dataclass(frozen=True, slots=True)
class KeptPrefix:
    """What `Prefix` was made of. `owner` is the person's id; None: nobody known, or a chat of many."""

    owner: str | None
    notes: str | None
    always: tuple[KeptMemory, ...] = ()


class KeptPrefixes:
    """A file in `cache/`. Losing it costs one prompt that is not cached, so one that cannot be read is made anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prefixes")

    async def load(self, session: str) -> KeptPrefix | None:
        """Raises OSError and sqlite3.Error."""
        return await self._in_thread(lambda file: _load(file, session))

    async def save(self, session: str, prefix: KeptPrefix) -> None:
        """Raises OSError and sqlite3.Error."""
        await self._in_thread(lambda file: _save(file, session, prefix))

    async def forget(self, sessions: Iterable[str]) -> None:
        """Notes that no other session has go along. Raises OSError and sqlite3.Error."""
        gone = list(sessions)
        await self._in_thread(lambda file: _forget(file, gone))

    async def sessions(self) -> list[str]:
        """Whose prefixes are kept. Raises OSError and sqlite3.Error."""
        return await self._in_thread(lambda file: [row[0] for row in file.execute("SELECT session FROM prefixes")])

    async def close(self) -> None:
        """After everything that was asked for is done."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: self._done(work))

    def _done(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            file = self._open()
            with file:
                return work(file)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # damaged
            self._close()
            with (file := self._renewed()):
                return work(file)

    def _open(self) -> sqlite3.Connection:
        if self._file is None:
            self._file = open_cache(self._path, _SCHEMA, FORMAT)
        return self._file

    def _renewed(self) -> sqlite3.Connection:
        remove_cache(self._path)
        return self._open()


def _load(file: sqlite3.Connection, session: str) -> KeptPrefix | None:
    row = file.execute(
        "SELECT owner, text, always, notes FROM prefixes LEFT JOIN notes ON sha256 = notes WHERE session = ?",
        (session,),
    ).fetchone()
    if row is None:
        return None
    owner, text, always, notes = row
    if notes is not None and text is None:
        raise sqlite3.DatabaseError("notes are missing")
    rows = [(id_, datetime.fromisoformat(at), revision, topic) for id_, at, revision, topic in json.loads(always)]
    return KeptPrefix(owner, text, tuple(KeptMemory(*row) for row in rows))


def _save(file: sqlite3.Connection, session: str, prefix: KeptPrefix) -> None:
    notes = None
    if prefix.notes is not None:
        notes = hashlib.sha256(prefix.notes.encode("utf-8", "replace")).hexdigest()
        file.execute("INSERT OR IGNORE INTO notes VALUES (?, ?)", (notes, prefix.notes))
    always = json.dumps([[one.id, one.created_at.isoformat(), one.revision, one.topic] for one in prefix.always])
    file.execute("INSERT OR REPLACE INTO prefixes VALUES (?, ?, ?, ?)", (session, prefix.owner, notes, always))


def _forget(file: sqlite3.Connection, sessions: list[str]) -> None:
    file.executemany("DELETE FROM prefixes WHERE session = ?", [(session,) for session in sessions])
    file.execute(_UNUSED)
