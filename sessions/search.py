"""The full-text index of everything that was said: `search.db`, which can be built again from the transcripts."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import bindparam, delete, func, insert, select, text

from sessions.entries import AssistantEntry, RetractedEntry, ToolResultEntry, UserEntry
from sessions.found import DamagedIndex, Origin, Place, Scope, SearchFailed, scope_word
from sessions.heard import Feed, Gone, row_said
from sessions.search_database import (
    CREATE_WORDS,
    PUT_WORDS,
    TAKE_WORDS,
    add_indexes,
    build_engine,
    followed_table,
    interrupted_by,
    load_state,
    metadata,
    said_table,
    state_table,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from pathlib import Path

    from sqlalchemy import Connection, Engine

    from sessions.entries import Entry
    from sessions.found import Said

Cut = Callable[[str], list[str]]
T = TypeVar("T")

FORMAT = "1"
MAX_TERMS = 64
_SAMPLE = (
    "Příliš žluťoučký kůň běžel; running horses, ideas, potatoes 東京タワー ฉันแพ้ถั่ว 서울에서 Ёжик INV-0042 "
    "kočce Olga mic ❤️🍒"
)


class SearchIndex:
    """`search.db`, opened. Blocking; one thread changes it, any may look. All raise SearchFailed and DamagedIndex."""

    def __init__(self, engine: Engine, cut: Cut) -> None:
        self._engine = engine
        self._cut = cut
        with self._reading() as connection:
            self._last_id = int(connection.execute(select(func.max(said_table.c.id))).scalar() or 0)
        self.feed = Feed(self._last_id)

    @staticmethod
    def open(path: Path, cut: Cut) -> tuple[SearchIndex, bool]:
        """The index, and whether it is a new one."""
        engine = build_engine(path)
        wanted = {"format": FORMAT, "tokenizer": tokenizer_fingerprint(cut)}
        try:
            with told(), engine.begin() as connection:
                new = connection.execute(text("SELECT 1 FROM sqlite_master WHERE name = 'words'")).first() is None
                if new:
                    metadata.create_all(connection)
                    for statement in CREATE_WORDS:
                        connection.execute(text(statement))
                    connection.execute(insert(state_table), [{"name": n, "value": v} for n, v in wanted.items()])
                elif not wanted.items() <= load_state(connection).items():
                    raise DamagedIndex("it was made with another version of the tokenizer")
                else:
                    add_indexes(connection)
            return SearchIndex(engine, cut), new
        except BaseException:
            engine.dispose()
            raise

    def close(self) -> None:
        self._engine.dispose()

    def read(self, work: Callable[[Connection], T]) -> T:
        """What `work` finds in the tables."""
        with self._reading() as connection:
            return work(connection)

    @contextmanager
    def _reading(self) -> Generator[Connection]:
        with told(), self._engine.connect() as connection:
            yield connection

    # --- what is in it --------------------------------------------------------------------------------------------

    def mark(self) -> int | None:
        """The change of the session index up to which everything is in here; None when that is not known."""
        with self._reading() as connection:
            value = load_state(connection).get("complete")
        return None if value is None else int(value)

    def places(self, sessions: Sequence[str]) -> dict[str, Place]:
        """How far each of these sessions is; those that are not there are left out."""
        columns = followed_table.c
        query = select(columns.session, columns.generation, columns.position).where(columns.session.in_(sessions))
        with self._reading() as connection:
            return {session: Place(generation, position) for session, generation, position in connection.execute(query)}

    def sessions_after(self, session: str, limit: int) -> list[str]:
        """The next sessions in the index, by id."""
        column = followed_table.c.session
        query = select(column).where(column > session).order_by(column).limit(limit)
        with self._reading() as connection:
            return list(connection.execute(query).scalars())

    def wants_purge(self) -> bool:
        """Whether something was deleted whose bytes may still be in the file."""
        with self._reading() as connection:
            return "purge" in load_state(connection)

    # --- changing -------------------------------------------------------------------------------------------------

    @contextmanager
    def changing(self) -> Generator[Change]:
        """One transaction: all of it counts, or nothing."""
        before = self._last_id
        try:
            with told(), self._engine.begin() as connection:
                change = Change(connection, self)
                yield change
        except BaseException:
            self._last_id = before
            raise
        self.feed.commit(self._last_id, change.gone)

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def words_of(self, name: str | None, said: str) -> str:
        """The words a message is found by; who said it is one of them."""
        return " ".join(self._cut(said if name is None else f"{name}: {said}"))

    def purge(self) -> None:
        """Leaves no byte of what was deleted, in any file of the index, by writing it anew.

        Full text keeps deleted words until its parts are merged, and pages keep pieces of what stood there, also with
        `secure_delete`.
        """
        with self.changing() as change:
            change.merge_words()
        with self._reading() as connection:
            plain = connection.execution_options(isolation_level="AUTOCOMMIT")
            plain.execute(text("VACUUM"))
            busy = plain.execute(text("PRAGMA wal_checkpoint(TRUNCATE)")).scalar()
        if busy:
            raise SearchFailed("search.db was being read while deleted text was cleared from it; it is done again.")
        with self.changing() as change:
            change.set_state("purge", None)

    # --- looking --------------------------------------------------------------------------------------------------

    def find(
        self, terms: Sequence[str], scope: Scope | None, limit: int, expired: Callable[[], bool]
    ) -> dict[int, float]:
        """Ids and BM25 scores of the best messages that have any of the terms. `scope` None: everywhere.

        Raises SearchTooBroad when `expired` says so before it is done.
        """
        if not terms or scope == Scope():
            return {}
        conditions, given = _conditions(scope)
        query = f"SELECT words.rowid, words.rank FROM words {conditions} ORDER BY words.rank LIMIT :limit"  # noqa: S608
        asked = {"match": _match(terms[:MAX_TERMS], scope), "limit": limit, **given}
        with self._reading() as connection, interrupted_by(expired, connection):
            return {one: -rank for one, rank in connection.execute(text(query), asked)}

    def neighbours(self, ids: Iterable[int]) -> dict[int, list[int]]:
        """The messages directly before and after each of these, in the same session."""
        query = text(
            "SELECT said.id, "
            "(SELECT id FROM said AS other WHERE other.session = said.session AND other.seq < said.seq "
            " ORDER BY other.seq DESC LIMIT 1), "
            "(SELECT id FROM said AS other WHERE other.session = said.session AND other.seq > said.seq "
            " ORDER BY other.seq LIMIT 1) "
            "FROM said WHERE said.id IN :ids"
        ).bindparams(bindparam("ids", expanding=True))
        with self._reading() as connection:
            rows = connection.execute(query, {"ids": list(ids)})
            return {one: [near for near in both if near is not None] for one, *both in rows}

    def messages(self, ids: Sequence[int]) -> dict[int, Said]:
        """Messages by id."""
        with self._reading() as connection:
            rows = connection.execute(select(said_table).where(said_table.c.id.in_(ids)))
            return {row.id: row_said(row) for row in rows}

    def around(self, message: Said, before: int, after: int) -> tuple[list[Said], list[Said]]:
        """What was said before and after a message in its session, each in the order it was said."""
        own = select(said_table).where(said_table.c.session == message.session)
        seq = said_table.c.seq
        with self._reading() as connection:
            earlier = connection.execute(own.where(seq < message.seq).order_by(seq.desc()).limit(before)).all()
            later = connection.execute(own.where(seq > message.seq).order_by(seq).limit(after)).all()
        return [row_said(row) for row in reversed(earlier)], [row_said(row) for row in later]


class Change:
    """What is changed in one transaction."""

    def __init__(self, connection: Connection, index: SearchIndex) -> None:
        self._connection = connection
        self._index = index
        self.gone: list[Gone] = []

    def add(self, origin: Origin, entries: Iterable[Entry], place: Place) -> None:
        """Takes in what these entries say, and takes out what they retract; the session is followed up to `place`.

        Entries that a later generation carries are in the index already, from the generation they were written in.
        """
        rows: dict[int, dict[str, Any]] = {}
        for entry in entries:
            if isinstance(entry, RetractedEntry):
                gone = set(entry.seqs)
                rows = {one: row for one, row in rows.items() if row["seq"] not in gone}
                self._take(origin, said_table.c.seq.in_(gone))
            elif (row := _row(entry)) is not None:
                one = self._index.next_id()
                rows[one] = {"id": one, "session": origin.session, **row}
        if rows:
            self._connection.execute(insert(said_table), list(rows.values()))
            scope = origin.scope
            self._connection.execute(PUT_WORDS, [self._words(scope, row) for row in rows.values()])
        self._follow(origin, place)

    def is_of_another(self, origin: Origin) -> bool:
        """Whether a session is here under another key or person: its words are in the index with those."""
        columns = followed_table.c
        query = select(columns.key, columns.owner).where(columns.session == origin.session)
        known = self._connection.execute(query).first()
        return known is not None and (known.key, known.owner) != (origin.key, origin.owner)

    def forget(self, session: str) -> None:
        """Takes out a session. Its bytes leave the file with the next purge."""
        known = self._connection.execute(select(followed_table).where(followed_table.c.session == session)).first()
        if known is None:
            return
        self._take(Origin(known.session, known.key, known.owner), said_table.c.seq > 0)
        self._connection.execute(delete(followed_table).where(followed_table.c.session == session))
        self.set_state("purge", "1")

    def set_mark(self, number: int | None) -> None:
        """Says up to which change of the session index everything is in here; None: no longer."""
        self.set_state("complete", None if number is None else str(number))

    def set_state(self, name: str, value: str | None) -> None:
        self._connection.execute(delete(state_table).where(state_table.c.name == name))
        if value is not None:
            self._connection.execute(insert(state_table), {"name": name, "value": value})

    def merge_words(self) -> None:
        self._connection.execute(text("INSERT INTO words(words) VALUES ('optimize')"))

    def _follow(self, origin: Origin, place: Place) -> None:
        self._connection.execute(delete(followed_table).where(followed_table.c.session == origin.session))
        self._connection.execute(
            insert(followed_table),
            {
                "session": origin.session,
                "key": origin.key,
                "owner": origin.owner,
                "generation": place.generation,
                "position": place.position,
            },
        )

    def _take(self, origin: Origin, which: Any) -> None:
        mine = (said_table.c.session == origin.session) & which
        rows = (
            self._connection.execute(
                select(said_table.c.id, said_table.c.seq, said_table.c.name, said_table.c.text).where(mine)
            )
            .mappings()
            .all()
        )
        if rows:
            scope = origin.scope
            self.gone += [Gone(self._index.next_id(), origin.session, row["seq"], origin.key) for row in rows]
            self._connection.execute(TAKE_WORDS, [self._words(scope, dict(row)) for row in rows])
            self._connection.execute(delete(said_table).where(mine))

    def _words(self, scope: str, row: dict[str, Any]) -> dict[str, Any]:
        return {"id": row["id"], "scope": scope, "terms": self._index.words_of(row["name"], row["text"])}


def tokenizer_fingerprint(cut: Cut) -> str:
    """Differs when a tokenizer cuts otherwise, or knows other characters."""
    return hashlib.sha256(f"{unicodedata.unidata_version} {cut(_SAMPLE)}".encode()).hexdigest()


def _row(entry: Entry) -> dict[str, Any] | None:
    """What of an entry is searched; None: nothing."""
    match entry:
        case UserEntry():
            role, name, said = "user", entry.sender_name or entry.sender, entry.text
        case AssistantEntry():
            calls = [f"{call.name} {call.arguments}" for call in entry.calls]
            role, name, said = "assistant", None, "\n".join([*([entry.text] if entry.text else []), *calls])
        case ToolResultEntry():
            role, name, said = "tool", entry.name, entry.text
        case _:
            return None
    if not said.strip():
        return None
    return {"seq": entry.seq, "at": round(entry.at.timestamp() * 1000), "role": role, "name": name, "text": said}


def _match(terms: Sequence[str], scope: Scope | None) -> str:
    """The full-text query. Terms hold no quotes; a scope with prefixes is looked at row by row instead."""
    words = "terms : (" + " OR ".join(f'"{term}"' for term in terms) + ")"
    if scope is None or scope.prefixes:
        return words
    owned = [*(scope_word("k", key) for key in scope.keys), *(scope_word("o", owner) for owner in scope.owners)]
    return f"scope : ({' OR '.join(owned)}) AND {words}"


def _conditions(scope: Scope | None) -> tuple[str, dict[str, Any]]:
    """The WHERE of a search, with the tables it needs, and its values."""
    if scope is None or not scope.prefixes:
        return "WHERE words MATCH :match", {}
    given: dict[str, Any] = {}
    either: list[str] = []
    for column, values in (("key", scope.keys), ("owner", scope.owners)):
        for number, value in enumerate(values):
            given[f"{column}{number}"] = value
            either.append(f"followed.{column} = :{column}{number}")
    for number, prefix in enumerate(scope.prefixes):
        given[f"prefix{number}"] = f"{prefix.rstrip(':')}:"
        either.append(f"substr(followed.key || ':', 1, length(:prefix{number})) = :prefix{number}")
    joined = "JOIN said ON said.id = words.rowid JOIN followed ON followed.session = said.session"
    return f"{joined} WHERE words MATCH :match AND ({' OR '.join(either)})", given
