"""The pieces of files, in a database of their own that can be made anew: which files are known, what is in them."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory.cache_file import OtherFormat, is_damage
from memory.records import TextHit
from memory.text import MAX_TERMS, any_of, cut, cut_query, cut_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from memory.chunk import Chunk

FORMAT = 2
"""Of the tables; how texts are cut belongs to the format of a file as well."""
SECURE_DELETE_SINCE = (3, 42, 0)
BUSY_S = 2.0
_IN_ONE_QUERY = 500

_SCHEMA = """
CREATE TABLE files (
    shelf TEXT NOT NULL, path TEXT NOT NULL, stamp TEXT NOT NULL, problem TEXT, PRIMARY KEY (shelf, path)
) WITHOUT ROWID;
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY AUTOINCREMENT, shelf TEXT NOT NULL, path TEXT NOT NULL, first INTEGER NOT NULL,
    last INTEGER NOT NULL, heading TEXT NOT NULL, text TEXT NOT NULL
);
CREATE INDEX chunks_file ON chunks (shelf, path);
CREATE TABLE removed (one INTEGER PRIMARY KEY);
CREATE TABLE changes (number INTEGER PRIMARY KEY AUTOINCREMENT, chunk INTEGER NOT NULL UNIQUE);
CREATE VIRTUAL TABLE words USING fts5(
    shelf, terms, tokenize="unicode61 remove_diacritics 0 categories 'L* M* N* P* S* Co'"
);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChunk:
    """A piece of a file. `stamp` is that of the file when it was read."""

    id: str
    shelf: str
    path: str
    first_line: int
    last_line: int
    heading: str
    text: str
    stamp: str

    @property
    def where(self) -> str:
        return f"{self.path}:{self.first_line}-{self.last_line}"


def chunk_id(number: int) -> str:
    return f"chunk-{number}"


def chunk_number(text_id: str) -> int | None:
    """The inverse; None for what is no id of a chunk."""
    name, _, number = text_id.rpartition("-")
    return int(number) if name == "chunk" and number.isascii() and number.isdecimal() and len(number) < 18 else None


def searched_text(heading: str, text: str) -> str:
    """What a piece is found by: where it stands belongs to it."""
    return f"{heading}\n{text}" if heading else text


class ChunkDatabase:
    """Blocks: call it in one thread. A file that is no database of this format is made anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: sqlite3.Connection | None = None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def renew(self) -> None:
        """Deletes everything: it is made anew when it is asked next."""
        self.close()
        for ending in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + ending).unlink(missing_ok=True)

    # --- files --------------------------------------------------------------------------------------------------

    def known(self, shelf: str) -> dict[str, str]:
        """The stamp of every file that was read, also of those with a problem."""
        return dict(self._open().execute("SELECT path, stamp FROM files WHERE shelf = ?", (shelf,)))

    def shelves(self) -> list[str]:
        return [row[0] for row in self._open().execute("SELECT DISTINCT shelf FROM files")]

    def problems(self) -> list[tuple[str, str, str]]:
        """(shelf, path, why) of files that are not indexed."""
        return self._open().execute("SELECT shelf, path, problem FROM files WHERE problem IS NOT NULL").fetchall()

    def put(self, shelf: str, path: str, stamp: str, chunks: Sequence[Chunk], problem: str | None = None) -> None:
        """What a file holds now. A piece whose words stay keeps its id, so its vector stays too."""
        file = self._open()
        rows = file.execute("SELECT id, heading, text FROM chunks WHERE shelf = ? AND path = ?", (shelf, path))
        before: dict[tuple[str, str], list[int]] = {}
        for number, heading, text in rows:
            before.setdefault((heading, text), []).append(number)
        with file:
            for one in chunks:
                kept = before.get((one.heading, one.text))
                if kept:
                    lines = (one.first_line, one.last_line, kept.pop())
                    file.execute("UPDATE chunks SET first = ?, last = ? WHERE id = ?", lines)
                else:
                    self._insert(file, shelf, path, one)
            self._delete(file, [number for numbers in before.values() for number in numbers])
            file.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", (shelf, path, stamp, problem))

    def remove(self, shelf: str, paths: Iterable[str]) -> None:
        file = self._open()
        with file:
            for path in paths:
                rows = file.execute("SELECT id FROM chunks WHERE shelf = ? AND path = ?", (shelf, path))
                self._delete(file, [row[0] for row in rows])
                file.execute("DELETE FROM files WHERE shelf = ? AND path = ?", (shelf, path))

    def to_wipe(self) -> bool:
        """Whether text was removed that is still in the files."""
        return self._open().execute("SELECT 1 FROM removed").fetchone() is not None

    def wipe(self) -> bool:
        """No byte of what was removed stays in the files. False: a reader held the log open; try again."""
        file = self._open()
        with file:
            if sqlite3.sqlite_version_info < SECURE_DELETE_SINCE:  # its segments keep words of deleted rows
                file.execute("INSERT INTO words (words) VALUES ('optimize')")
        (busy, *_) = file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if not busy:
            with file:
                file.execute("DELETE FROM removed")
        return not busy

    def _insert(self, file: sqlite3.Connection, shelf: str, path: str, one: Chunk) -> None:
        values = (shelf, path, one.first_line, one.last_line, one.heading, one.text)
        number = file.execute(
            "INSERT INTO chunks (shelf, path, first, last, heading, text) VALUES (?, ?, ?, ?, ?, ?)", values
        ).lastrowid
        words = " ".join(cut(f"{path} {searched_text(one.heading, one.text)}"))
        file.execute("INSERT INTO words (rowid, shelf, terms) VALUES (?, ?, ?)", (number, _shelf_term(shelf), words))
        file.execute("INSERT OR REPLACE INTO changes (chunk) VALUES (?)", (number,))

    def _delete(self, file: sqlite3.Connection, numbers: Sequence[int]) -> None:
        if numbers:
            file.execute("INSERT OR IGNORE INTO removed VALUES (1)")
        for number in numbers:
            file.execute("DELETE FROM chunks WHERE id = ?", (number,))
            file.execute("DELETE FROM words WHERE rowid = ?", (number,))
            file.execute("INSERT OR REPLACE INTO changes (chunk) VALUES (?)", (number,))

    # --- pieces -------------------------------------------------------------------------------------------------

    def hits(self, shelves: Sequence[str], words: str, limit: int) -> list[TextHit]:
        """The best pieces by words (BM25)."""
        terms = [term for term in cut_query(words) if term.strip()][:MAX_TERMS]
        if not terms or not shelves:
            return []
        wanted = any_of(terms)
        places = any_of(_shelf_term(shelf) for shelf in shelves)
        rows = self._open().execute(
            "SELECT rowid, -bm25(words, 0.0, 1.0) AS score FROM words WHERE words MATCH ? ORDER BY score DESC LIMIT ?",
            (f"shelf : ({places}) AND terms : ({wanted})", limit),
        )
        return [TextHit(chunk_id(number), score) for number, score in rows]

    def load(self, ids: Sequence[str]) -> list[FileChunk]:
        """Those that exist, in the order asked for, each once."""
        numbers = [number for text_id in dict.fromkeys(ids) if (number := chunk_number(text_id)) is not None]
        found: dict[int, FileChunk] = {}
        for at in range(0, len(numbers), _IN_ONE_QUERY):
            part = numbers[at : at + _IN_ONE_QUERY]
            found |= {row[0]: _chunk(row) for row in self._rows(f"id IN ({','.join('?' * len(part))})", part)}
        return [found[number] for number in numbers if number in found]

    def page(self, after: int, limit: int) -> list[FileChunk]:
        """Pieces by id."""
        return [_chunk(row) for row in self._rows("id > ? ORDER BY id LIMIT ?", (after, limit))]

    def latest(self) -> int:
        return self._open().execute("SELECT max(number) FROM changes").fetchone()[0] or 0

    def changes(self, after: int, limit: int) -> list[tuple[int, str]]:
        """(number, id of a piece) of what came or went since."""
        rows = self._open().execute(
            "SELECT number, chunk FROM changes WHERE number > ? ORDER BY number LIMIT ?", (after, limit)
        )
        return [(number, chunk_id(chunk)) for number, chunk in rows]

    def _rows(self, condition: str, values: Sequence[int]) -> Iterable[tuple[int, str, str, int, int, str, str, str]]:
        return self._open().execute(
            "SELECT id, shelf, path, first, last, heading, text, stamp FROM chunks JOIN files USING (shelf, path)"  # noqa: S608
            f" WHERE {condition}",
            values,
        )

    # --- the database -------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        """Raises sqlite3.OperationalError while somebody else holds the file."""
        if self._file is None:
            try:
                self._file = self._connect()
            except sqlite3.DatabaseError as error:
                if not is_damage(error):
                    raise
                self.renew()
                self._file = self._connect()
        return self._file

    def _connect(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.touch(mode=0o600)
        file = sqlite3.connect(self._path, timeout=BUSY_S, check_same_thread=False)
        try:
            self._prepare(file)
        except BaseException:
            file.close()
            raise
        return file

    def _prepare(self, file: sqlite3.Connection) -> None:
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON"):
            file.execute(f"PRAGMA {pragma}")
        (version,) = file.execute("PRAGMA user_version").fetchone()
        wanted = (cut_version(cut) + FORMAT) % 2**31 or 1
        if version == 0:
            file.executescript(_SCHEMA)
            if sqlite3.sqlite_version_info >= SECURE_DELETE_SINCE:
                file.execute("INSERT INTO words (words, rank) VALUES ('secure-delete', 1)")
            file.execute(f"PRAGMA user_version = {wanted}")
            file.commit()
        elif version != wanted:
            raise OtherFormat(f"format {version}")


def _chunk(row: tuple[int, str, str, int, int, str, str, str]) -> FileChunk:
    number, shelf, path, first, last, heading, text, stamp = row
    return FileChunk(
        id=chunk_id(number),
        shelf=shelf,
        path=path,
        first_line=first,
        last_line=last,
        heading=heading,
        text=text,
        stamp=stamp,
    )


def _shelf_term(shelf: str) -> str:
    return "s" + shelf.encode("utf-8", "replace").hex()
