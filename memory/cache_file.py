"""A SQLite file that may be lost: opened in its format, or made anew."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path


class OtherFormat(sqlite3.DatabaseError):
    """Another version wrote it."""


def is_damage(error: Exception) -> bool:
    """Whether making the file anew mends it: not when it is locked, or the disk is full."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, OtherFormat) or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def open_cache(
    path: Path, schema: str, version: int, *, journal: Literal["WAL", "TRUNCATE"] = "TRUNCATE"
) -> sqlite3.Connection:
    """Readable by its owner only, and what is removed is written over. An empty file gets the schema.

    Raises OSError and sqlite3.DatabaseError; `is_damage` tells which of them a new file mends.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    file = sqlite3.connect(path, check_same_thread=False)
    try:
        for pragma in (f"journal_mode={journal}", "synchronous=OFF", "secure_delete=ON"):
            file.execute(f"PRAGMA {pragma}")
        (tables,) = file.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (found,) = file.execute("PRAGMA user_version").fetchone()
        if not tables:
            file.executescript(f"{schema}\nPRAGMA user_version = {version};")
        elif found != version:
            raise OtherFormat(f"format {found}")
    except sqlite3.DatabaseError:
        file.close()
        raise
    return file


def remove_cache(path: Path) -> None:
    """The file, and what SQLite keeps beside it. Raises OSError."""
    for ending in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
