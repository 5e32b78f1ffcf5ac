"""Vectors that were computed before, by fingerprint and hash of the text, in a bounded file of their own."""

from __future__ import annotations

import hashlib
import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from memory.embed import Purpose

_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (
    fingerprint TEXT NOT NULL, digest BLOB NOT NULL, vector BLOB NOT NULL, used INTEGER NOT NULL,
    PRIMARY KEY (fingerprint, digest)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS vectors_used ON vectors (used);
"""
_SHARE_KEPT = 0.9
_IN_ONE_QUERY = 500


def digest_of(purpose: Purpose, text: str) -> bytes:
    """What a text is found by; a query and a passage with the same words are two texts."""
    return hashlib.sha256(f"{purpose}\0{text}".encode("utf-8", "replace")).digest()


class VectorCache:
    """Blocks: call it in one thread. Nothing in it is needed: a file that cannot be read is made anew."""

    def __init__(self, path: Path, *, entries: int) -> None:
        self._path = path
        self._entries = entries
        self._file: sqlite3.Connection | None = None

    def load(self, fingerprint: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """The vectors that are known, as little-endian float32."""
        found: dict[bytes, bytes] = {}
        file = self._open()
        for at in range(0, len(digests), _IN_ONE_QUERY):
            part = digests[at : at + _IN_ONE_QUERY]
            marks = ",".join("?" * len(part))
            rows = file.execute(
                f"SELECT digest, vector FROM vectors WHERE fingerprint = ? AND digest IN ({marks})",  # noqa: S608
                (fingerprint, *part),
            )
            found.update(rows)
        if found:
            stamp = self._stamp(file)
            file.executemany(
                "UPDATE vectors SET used = ? WHERE fingerprint = ? AND digest = ?",
                ((stamp, fingerprint, digest) for digest in found),
            )
            file.commit()
        return found

    def save(self, fingerprint: str, vectors: Mapping[bytes, bytes]) -> None:
        """Keeps them; the longest unused go when there are too many."""
        file = self._open()
        stamp = self._stamp(file)
        file.executemany(
            "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)",
            ((fingerprint, digest, vector, stamp) for digest, vector in vectors.items()),
        )
        (count,) = file.execute("SELECT count(*) FROM vectors").fetchone()
        if count > self._entries:
            file.execute(
                "DELETE FROM vectors WHERE (fingerprint, digest) IN"
                " (SELECT fingerprint, digest FROM vectors ORDER BY used LIMIT ?)",
                (count - int(self._entries * _SHARE_KEPT),),
            )
        file.commit()

    def forget(self, texts: Iterable[str]) -> None:
        """Removes the vectors of texts, of every model."""
        file = self._open()
        models = file.execute("SELECT DISTINCT fingerprint FROM vectors").fetchall()
        digests = [digest_of(purpose, text) for text in texts for purpose in ("query", "passage")]
        file.executemany(
            "DELETE FROM vectors WHERE fingerprint = ? AND digest = ?",
            ((model, digest) for (model,) in models for digest in digests),
        )
        file.commit()
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _stamp(self, file: sqlite3.Connection) -> int:
        (newest,) = file.execute("SELECT max(used) FROM vectors").fetchone()
        return (newest or 0) + 1

    def _open(self) -> sqlite3.Connection:
        if self._file is None:
            try:
                self._file = self._connect()
            except sqlite3.DatabaseError:
                for ending in ("", "-wal", "-shm"):
                    self._path.with_name(self._path.name + ending).unlink(missing_ok=True)
                self._file = self._connect()
        return self._file

    def _connect(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.touch(mode=0o600)
        file = sqlite3.connect(self._path, check_same_thread=False)
        for pragma in ("journal_mode=WAL", "synchronous=OFF", "secure_delete=ON"):
            file.execute(f"PRAGMA {pragma}")
        file.executescript(_SCHEMA)
        return file
