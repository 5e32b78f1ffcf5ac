"""`search.db`: its tables, the engine that opens it, and what its errors mean."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Column, Index, MetaData, String, Table, create_engine, event, select, text
from sqlalchemy.exc import DBAPIError

from sessions.found import DamagedIndex, SearchFailed, SearchTooBroad

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from sqlalchemy import Connection, Engine

BUSY_TIMEOUT_MS = 10_000
STEPS_BETWEEN_LOOKS = 2_000
_DAMAGE = (11, 26)  # SQLITE_CORRUPT, SQLITE_NOTADB
_MOVED = 8 | 4 << 8  # SQLITE_READONLY_DBMOVED: the open file is no longer the one of that name
_INTERRUPTED = 9

metadata = MetaData()

state_table = Table("state", metadata, Column("name", String(32), primary_key=True), Column("value", String(256)))

followed_table = Table(
    "followed",
    metadata,
    Column("session", String(64), primary_key=True),
    Column("key", String(512), nullable=False),
    Column("owner", String(512)),
    Column("generation", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False, comment="bytes of that generation's transcript that are in here"),
    Index("followed_owner", "owner"),
)

said_table = Table(
    "said",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("session", String(64), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False, comment="milliseconds since 1970, UTC"),
    Column("role", String(16), nullable=False),
    Column("name", String(512)),
    Column("text", String, nullable=False),
    Index("said_place", "session", "seq"),
    Index("said_at", "at"),
)

# A row of words is taken out by cutting its text again, so the state holds a fingerprint of the tokenizer: another one
# means a new index. `scope` has hashes of key and owner: what a person said is found among thousands of others without
# looking at theirs. It weighs nothing in the ranking.
CREATE_WORDS = (
    "CREATE VIRTUAL TABLE words USING fts5(scope, terms, content='', tokenize='ascii')",
    "INSERT INTO words(words, rank) VALUES ('rank', 'bm25(0.0, 1.0)')",
)
PUT_WORDS = text("INSERT INTO words(rowid, scope, terms) VALUES (:id, :scope, :terms)")
TAKE_WORDS = text("INSERT INTO words(words, rowid, scope, terms) VALUES ('delete', :id, :scope, :terms)")


def add_indexes(connection: Connection) -> None:
    """Those that a file of an older version lacks."""
    for index in (*followed_table.indexes, *said_table.indexes):
        index.create(connection, checkfirst=True)


def load_state(connection: Connection) -> dict[str, str]:
    """All of the table `state`."""
    return {row.name: row.value for row in connection.execute(select(state_table))}


def build_engine(path: Path) -> Engine:
    """An engine whose connections have WAL, secure delete, and a wait instead of "database is locked"."""
    engine = create_engine(f"sqlite:///{path}")

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", f"busy_timeout={BUSY_TIMEOUT_MS}", "secure_delete=ON", "synchronous=NORMAL"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    return engine


@contextmanager
def interrupted_by(expired: Callable[[], bool], connection: Connection) -> Generator[None]:
    """Stops a statement when `expired` says so, every few milliseconds."""
    driver: Any = connection.connection.driver_connection
    driver.set_progress_handler(expired, STEPS_BETWEEN_LOOKS)
    try:
        yield
    finally:
        driver.set_progress_handler(None, 0)


@contextmanager
def told() -> Generator[None]:
    """Errors of the database as ours."""
    try:
        yield
    except DBAPIError as error:
        extended: int = getattr(error.orig, "sqlite_errorcode", 0)
        code = extended & 0xFF
        if code in _DAMAGE or extended == _MOVED:
            raise DamagedIndex(str(error.orig)) from error
        if code == _INTERRUPTED:
            raise SearchTooBroad(
                "These words are in too many messages. Search for rarer ones, or in one chat."
            ) from error
        raise SearchFailed(
            f"search.db cannot be used now ({error.orig}). Try again; free space if it is full."
        ) from error
