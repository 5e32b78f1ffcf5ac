"""Measures evidence recall of the archive's search: conversations in, stored as real sessions, scores out."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.clock import SystemClock
from gateway.search import CANDIDATES, ArchiveSearch, ByWords, Question
from memory.evidence import DEPTHS, score
from memory.fusion import Scored, min_max_sum, ranked
from memory.text import cut, cut_query
from sessions.archive import Archive
from sessions.entries import UserEntry
from sessions.files import OsFiles
from sessions.found import Scope
from sessions.keys import parse_key
from sessions.policy import SessionsPolicy
from sessions.store import SessionStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from pathlib import Path

    from gateway.clock import Clock
    from gateway.search import Scorer
    from memory.embed import Embedder, Vectors
    from memory.evidence import Asked, Conversation, Place, Score

KEY = parse_key("agent:main:eval:group:conversation")


@dataclass(frozen=True, slots=True)
class Measured:
    """Scores with what the archive's search ranks by, and without the credit of neighbours."""

    alone: Score
    with_neighbours: Score


def by_words(archive: Archive, clock: Clock) -> Sequence[Scorer]:
    """Full text only."""
    return [ByWords(archive, clock)]


class ByMeaning:
    """Vectors of everything in one archive, compared with all of it: for archives of some thousand messages."""

    def __init__(self, archive: Archive, embedder: Embedder) -> None:
        self._archive = archive
        self._embedder = embedder
        self._known: tuple[list[int], Vectors] | None = None

    async def score(self, question: Question) -> Scored[int]:
        """Of everything, whatever the scope: only one chat is in it."""
        ids, vectors = self._known or await self._embed()
        (query,) = await self._embedder.embed_queries([question.text])
        near = dict(zip(ids, (vectors @ query).tolist(), strict=True))
        return Scored(dict(ranked(near, question.candidates)), floor=None)

    async def _embed(self) -> tuple[list[int], Vectors]:
        said = await self._archive.look(lambda index: index.messages(range(1, index.next_id())))
        texts = [f"{one.name}: {one.text}" if one.name else one.text for one in said.values()]
        self._known = list(said), await self._embedder.embed_passages(texts)
        return self._known


def by_words_and_meaning(embedder: Embedder) -> Callable[[Archive, Clock], Sequence[Scorer]]:
    """Full text and vectors."""
    return lambda archive, clock: [ByWords(archive, clock), ByMeaning(archive, embedder)]


async def measure(
    conversations: Sequence[Conversation],
    folder: Path,
    scorers: Callable[[Archive, Clock], Sequence[Scorer]] = by_words,
) -> Measured:
    """Each conversation is the chat of one data directory under `folder`, each of its sessions one session."""
    alone: list[tuple[Asked, list[Place]]] = []
    near: list[tuple[Asked, list[Place]]] = []
    for number, conversation in enumerate(conversations):
        async with _stored(conversation, folder / f"{number}", scorers) as (search, places):
            for asked in conversation.questions:
                question = Question(
                    text=asked.text,
                    terms=tuple(cut_query(asked.text)),
                    scope=Scope(keys=(str(KEY),)),
                    candidates=CANDIDATES,
                )
                found = await search.searches(question)
                alone.append((asked, _order(min_max_sum(found), places)))
                near.append((asked, _order(await search.fused(found), places)))
    return Measured(score(alone), score(near))


def _order(scores: Mapping[int, float], places: Mapping[int, Place]) -> list[Place]:
    return [places[one] for one, _ in ranked(scores, max(DEPTHS))]


@asynccontextmanager
async def _stored(
    conversation: Conversation, folder: Path, scorers: Callable[[Archive, Clock], Sequence[Scorer]]
) -> AsyncGenerator[tuple[ArchiveSearch, dict[int, Place]]]:
    """The search over a conversation that is kept as sessions, and the turn each of its messages is."""
    clock, files = SystemClock(), OsFiles()
    store = SessionStore(folder, SessionsPolicy(durability="flush"), files, clock)
    archive = Archive(folder, files, store, clock, cut)
    await store.start()
    loops = [asyncio.create_task(store.run()), asyncio.create_task(archive.run())]
    try:
        turns = await _say(store, conversation)
        said = await archive.look(lambda index: index.messages(range(1, len(turns) + 1)))
        places = {one.id: turns[one.session, one.seq] for one in said.values()}
        yield ArchiveSearch(archive, store, scorers(archive, clock)), places
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await archive.stop()
        await store.stop()


async def _say(store: SessionStore, conversation: Conversation) -> dict[tuple[str, int], Place]:
    turns: dict[tuple[str, int], Place] = {}
    for said in conversation.sessions:
        session = await store.active(KEY)
        if not said:
            continue
        written = await store.append(session, *(UserEntry(text=turn.text, sender_name=turn.speaker) for turn in said))
        turns |= {(session.id, entry.seq): turn.place for entry, turn in zip(written, said, strict=True)}
        await store.end(session, "new")
    return turns
