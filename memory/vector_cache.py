"""Vectors that were computed before, by fingerprint and hash of the text, in a bounded file of their own."""

from __future__ import annotations

import hashlib
import sqlite3
from typing import TYPE_CHECKING, TypeVar

from memory.cache_file import is_damage, open_cache, remove_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")

_FORMAT = 2
_SCHEMA = """
CREATE TABLE vectors (
    fingerprint TEXT NOT NULL, digest BLOB NOT NULL, vector BLOB NOT NULL, used INTEGER NOT NULL,
    PRIMARY KEY (fingerprint, digest)
) WITHOUT ROWID;
CREATE INDEX vectors_used ON vectors (used);
"""
_MODELS = """
WITH RECURSIVE models (name) AS (
    SELECT min(fingerprint) FROM vectors
    UNION ALL
    SELECT (SELECT min(fingerprint) FROM vectors WHERE fingerprint > name) FROM models WHERE name IS NOT NULL
)
SELECT name FROM models WHERE name IS NOT NULL
"""  # DISTINCT would read every vector
_SHARE_KEPT = 0.9
_IN_ONE_QUERY = 500


def digest_of(text: str) -> bytes:
    """What a text is found by."""
    return hashlib.sha256(b"passage\0" + _bytes_of(text)).digest()


def sealed(fingerprint: str, text: str, vector: bytes) -> bytes:
    """The vector as it is kept, and back: readable by whoever has the text, and by nobody else.

    So a text that is deleted takes its vector along, wherever a copy of that may be left: in a page of the file that
    was not written over, in a backup.
    """
    key = hashlib.shake_256(f"vector\0{fingerprint}\0".encode() + _bytes_of(text)).digest(len(vector))
    return (int.from_bytes(vector) ^ int.from_bytes(key)).to_bytes(len(vector))


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "replace")


class VectorCache:
    """Blocking; for one thread. Losing it costs time only, so a file that cannot be read is made anew."""

    def __init__(self, path: Path, *, entries: int) -> None:
        self._path = path
        self._entries = entries
        self._file: sqlite3.Connection | None = None

    def load(self, fingerprint: str, texts: Sequence[str]) -> dict[str, bytes]:
        """The vectors that are known, by text, as little-endian float32."""
        return self._done(lambda file: self._load(file, fingerprint, texts))

    def save(self, fingerprint: str, vectors: Mapping[str, bytes]) -> None:
        """Keeps the vectors of texts; the longest unused go when there are too many."""
        self._done(lambda file: self._save(file, fingerprint, vectors))

    def forget(self, texts: Iterable[str]) -> None:
        """Removes the vectors of texts, of every model."""
        digests = [digest_of(text) for text in texts]
        self._done(lambda file: _forget(file, digests))

    def clear(self) -> None:
        """Removes everything, whoever else has the file open."""
        self.close()
        remove_cache(self._path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _done(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Also with a file made anew where it is damaged; one that is locked is left as it is."""
        try:
            return work(self._open())
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            self.clear()
            return work(self._open())

    def _open(self) -> sqlite3.Connection:
        if self._file is None:
            self._file = open_cache(self._path, _SCHEMA, _FORMAT, journal="WAL")
        return self._file

    def _load(self, file: sqlite3.Connection, fingerprint: str, texts: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        asked = {digest_of(text): text for text in texts}
        digests = list(asked)
        for at in range(0, len(digests), _IN_ONE_QUERY):
            part = digests[at : at + _IN_ONE_QUERY]
            marks = ",".join("?" * len(part))
            rows = file.execute(
                f"SELECT digest, vector FROM vectors WHERE fingerprint = ? AND digest IN ({marks})",  # noqa: S608
                (fingerprint, *part),
            )
            found |= {asked[digest]: sealed(fingerprint, asked[digest], kept) for digest, kept in rows}
        if found:
            stamp = self._stamp(file)
            file.executemany(
                "UPDATE vectors SET used = ? WHERE fingerprint = ? AND digest = ?",
                ((stamp, fingerprint, digest_of(text)) for text in found),
            )
            file.commit()
        return found

    def _save(self, file: sqlite3.Connection, fingerprint: str, vectors: Mapping[str, bytes]) -> None:
        stamp = self._stamp(file)
        file.executemany(
            "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)",
            (
                (fingerprint, digest_of(text), sealed(fingerprint, text, vector), stamp)
                for text, vector in vectors.items()
            ),
        )
        (count,) = file.execute("SELECT count(*) FROM vectors").fetchone()
        if count > self._entries:
            file.execute(
                "DELETE FROM vectors WHERE (fingerprint, digest) IN"
                " (SELECT fingerprint, digest FROM vectors ORDER BY used LIMIT ?)",
                (count - int(self._entries * _SHARE_KEPT),),
            )
        file.commit()

    def _stamp(self, file: sqlite3.Connection) -> int:
        (newest,) = file.execute("SELECT max(used) FROM vectors").fetchone()
        return (newest or 0) + 1


def _forget(file: sqlite3.Connection, digests: Sequence[bytes]) -> None:
    models = file.execute(_MODELS).fetchall()
    file.executemany(
        "DELETE FROM vectors WHERE fingerprint = ? AND digest = ?",
        ((model, digest) for (model,) in models for digest in digests),
    )
    file.commit()
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
