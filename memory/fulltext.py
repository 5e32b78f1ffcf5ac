"""The full text of memories in SQLite's FTS5, cut by our own tokenizer on both sides."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from memory.records import TextHit
from memory.text import MAX_TERMS, any_of, cut_version
from memory.turn_by_turn import turn_by_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from memory.records import Pool

TABLE = "memory_text"

_HITS = (
    f"SELECT memories.id, -bm25({TABLE}, 0.0, 1.0) AS score FROM {TABLE} "  # noqa: S608
    f"JOIN memories ON memories.number = {TABLE}.rowid "
    f"WHERE {TABLE} MATCH :match AND {{state}} ORDER BY score DESC, memories.number DESC LIMIT :limit"
)
_ACTIVE = "(memories.state = 'active' OR (memories.state = 'superseded' AND memories.valid_to > :at))"
_VALID = (
    "memories.state IN ('active', 'superseded') AND memories.valid_from <= :at "
    "AND (memories.valid_to IS NULL OR memories.valid_to > :at)"
)


class FullText:
    """Rows of full text by the number of their memory. Every hit is a proposal, for the store to confirm."""

    def __init__(
        self, terms: Callable[[str], list[str]], query_terms: Callable[[str], list[str]] | None = None
    ) -> None:
        self._terms = terms
        self._query_terms = query_terms or terms

    def terms(self, words: str) -> list[str]:
        """What a text is found by."""
        return [term for term in self._terms(words) if term.strip()]

    async def put(self, connection: AsyncConnection, rows: Iterable[tuple[int, str, str]]) -> None:
        """(number, pool, text) of each memory; its former row goes."""
        given = list(rows)
        if not given:
            return
        fields = await turn_by_turn(self._cut, given, lambda row: len(row[2]))
        await self.drop(connection, [row["number"] for row in fields])
        await connection.execute(
            text(f"INSERT INTO {TABLE} (rowid, pool, words) VALUES (:number, :pool, :words)"),  # noqa: S608
            fields,
        )

    def _cut(self, row: tuple[int, str, str]) -> dict[str, Any]:
        number, pool, words = row
        return {"number": number, "pool": _pool_term(pool), "words": " ".join(self.terms(words))}

    @property
    def version(self) -> int:
        return cut_version(self._terms)

    async def put_again(self, connection: AsyncConnection, after: int, limit: int) -> int | None:
        """Cuts the next rows anew. Returns the number of the last one; None: there are no more."""
        kept = text(
            f"SELECT memories.number, memories.pool, memories.text FROM {TABLE} "  # noqa: S608
            f"JOIN memories ON memories.number = {TABLE}.rowid "
            f"WHERE {TABLE}.rowid > :after ORDER BY {TABLE}.rowid LIMIT :limit"
        )
        rows = [
            (int(row[0]), str(row[1]), str(row[2]))
            for row in await connection.execute(kept, {"after": after, "limit": limit})
        ]
        await self.put(connection, rows)
        return rows[-1][0] if rows else None

    async def drop(self, connection: AsyncConnection, numbers: Sequence[int]) -> None:
        if numbers:
            statement = text(f"DELETE FROM {TABLE} WHERE rowid = :number")  # noqa: S608
            await connection.execute(statement, [{"number": number} for number in numbers])

    def hits(
        self,
        connection: Connection,
        words: str,
        pools: Sequence[Pool],
        limit: int,
        *,
        now: int,
        as_of: int | None = None,
    ) -> list[TextHit]:
        """The best active memories of these pools, and those that will be superseded later than `now`; or those valid
        at a time. Both in milliseconds; the best first (BM25).

        What is superseded or in the trash is left out before the limit, so it cannot crowd out what counts.
        """
        terms = list(dict.fromkeys(term for term in self._query_terms(words) if term.strip()))[:MAX_TERMS]
        if not terms or not pools:
            return []
        wanted = any_of(terms)
        places = any_of(_pool_term(str(pool)) for pool in pools)
        found = connection.execute(
            text(_HITS.format(state=_ACTIVE if as_of is None else _VALID)),
            {
                "match": f"pool : ({places}) AND words : ({wanted})",
                "limit": limit,
                "at": now if as_of is None else as_of,
            },
        )
        return [TextHit(str(row[0]), float(row[1])) for row in found]

    async def wipe(self, connection: AsyncConnection) -> None:
        """Merges the index into one piece, so that it names no term of a deleted row any more."""
        await connection.execute(text(f"INSERT INTO {TABLE} ({TABLE}) VALUES ('optimize')"))  # noqa: S608


def _pool_term(pool: str) -> str:
    return "p" + hashlib.sha256(pool.encode("utf-8", "replace")).hexdigest()[:20]
