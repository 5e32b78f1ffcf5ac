"""What was said, as an index of vectors follows it, and as a search by vectors finds it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from memory.index import point_of
from memory.indexing import Indexable, IndexChange, SourceFailed
from sessions.found import SearchFailed, scope_word
from sessions.heard import heard_after, heard_at, heard_before, keys_of, places_between, time_of_newest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from memory.index import Near
    from sessions.archive import Archive
    from sessions.found import Scope
    from sessions.heard import Heard
    from sessions.search import SearchIndex

T = TypeVar("T")

PAGE = 500
CHARACTERS = 4_000
"""More of a message is found by its words only: models read some hundred words."""
MOST_KEYS = 200
"""A scope of more chats is searched everywhere, and what is not in it left out."""
SLACK = 10
"""When a tenth more messages have a vector than should, the oldest lose theirs."""


def pool_of(key: str) -> str:
    """Where the messages of a chat are; it does not tell the key."""
    return scope_word("k", key)


def indexable(one: Heard) -> Indexable:
    said = one.said
    text = f"{said.name}: {said.text}" if said.name else said.text
    return Indexable(_id_of(said.session, said.seq), pool_of(one.key), text[:CHARACTERS])


def _id_of(session: str, seq: int) -> str:
    return f"{session}.{seq}"


class SaidSource:
    """The newest `most` messages of people and models. `on_gone` hears of the pools that something is taken out of."""

    def __init__(self, archive: Archive, most: int, on_gone: Callable[[set[str]], None]) -> None:
        self._archive = archive
        self._most = most
        self._on_gone = on_gone
        self._index: SearchIndex | None = None
        self._since = 0
        self._extra = 0

    async def latest(self) -> int:
        """Raises SourceFailed also while the archive is being built: what it does not hold yet is not gone."""
        if not self._archive.complete:
            raise SourceFailed("Transcripts are still being read.")

        def look(index: SearchIndex) -> tuple[SearchIndex, int, int]:
            return index, index.feed.number, index.read(lambda tables: time_of_newest(tables, self._most))

        self._index, number, self._since = await self._asked(look)
        self._extra = 0
        return number

    async def everything(self) -> AsyncIterator[Sequence[Indexable]]:
        before = await self._read(lambda index: index.feed.number) + 1
        while page := await self._read(
            lambda index, at=before: index.read(lambda tables: heard_before(tables, at, self._since, PAGE))
        ):
            yield [indexable(one) for one in page]
            before = page[-1].said.id

    async def changes(self, after: int, limit: int) -> Sequence[IndexChange]:
        def look(index: SearchIndex) -> list[IndexChange]:
            number, gone = index.feed.since(after)
            rows = index.read(lambda tables: heard_after(tables, after, number, self._since, limit))
            if len(rows) == limit:
                gone = [one for one in gone if one.number <= rows[-1].said.id]
            self._extra += len(rows)
            fresh = [IndexChange(one.said.id, (item := indexable(one)).id, item) for one in rows]
            away = [IndexChange(one.number, _id_of(one.session, one.seq), None) for one in gone]
            self._on_gone({pool_of(one.key) for one in gone})
            return sorted([*fresh, *away], key=lambda change: change.number) or self._too_old(index, after)

        return await self._read(look)

    def _too_old(self, index: SearchIndex, after: int) -> list[IndexChange]:
        """What loses its vector since there are newer messages."""
        if self._extra * SLACK < self._most:
            return []
        before = self._since
        self._since = index.read(lambda tables: time_of_newest(tables, self._most))
        self._extra = 0
        old = index.read(lambda tables: places_between(tables, before, self._since))
        return [IndexChange(after, _id_of(*place), None) for place in old]

    async def _read(self, work: Callable[[SearchIndex], T]) -> T:
        """From the same archive as at the beginning. Raises SourceFailed when that was built again."""

        def look(index: SearchIndex) -> T:
            if index is not self._index:
                raise SearchFailed("The archive was built again; everything is compared.")
            return work(index)

        return await self._asked(look)

    async def _asked(self, work: Callable[[SearchIndex], T]) -> T:
        try:
            return await self._archive.look(work)
        except SearchFailed as error:
            raise SourceFailed(str(error)) from error


def pools_in(index: SearchIndex, scope: Scope | None) -> list[str] | None:
    """Where to look for what is in a scope; None: everywhere."""
    if scope is None:
        return None
    keys = index.read(lambda tables: keys_of(tables, scope, MOST_KEYS))
    return None if keys is None else [pool_of(key) for key in keys]


def confirmed(index: SearchIndex, near: Sequence[Near], scope: Scope | None) -> dict[int, float]:
    """Ids and scores of the messages that are there, in the scope, and as the index of vectors has them."""
    places = {place: one for one in near if (place := _place_of(one.point.id)) is not None}
    heard = index.read(lambda tables: heard_at(tables, list(places)))
    found: dict[int, float] = {}
    for place, one in heard.items():
        item = indexable(one)
        right = places[place].point == point_of(item.id, item.pool, item.text)
        if right and (scope is None or scope.holds(one.key, one.owner)):
            found[one.said.id] = places[place].score
    return found


def _place_of(text_id: str) -> tuple[str, int] | None:
    session, _, seq = text_id.rpartition(".")
    return (session, int(seq)) if session and seq.isascii() and seq.isdecimal() and len(seq) < 19 else None
