"""Measures evidence recall of the archive's search: conversations in, stored as real sessions, scores out."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.clock import SystemClock
from gateway.said_source import SaidSource
from gateway.said_vectors import ByMeaning
from gateway.search import CANDIDATES, ArchiveSearch, ByWords, Question
from memory.evidence import DEPTHS, score
from memory.fusion import min_max_sum, ranked
from memory.index import ListIndex
from memory.indexing import Indexer
from memory.policy import IndexPolicy
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
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from gateway.clock import Clock
    from gateway.search import Scorer
    from memory.embed import Embedder
    from memory.evidence import Asked, Conversation, Place, Score

    Scorers = Callable[[Archive, Clock], AbstractAsyncContextManager[Sequence[Scorer]]]

KEY = parse_key("agent:main:eval:group:conversation")
MOST = 1_000_000
WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Scores with what the archive's search ranks by, and without the credit of neighbours."""

    alone: Score
    with_neighbours: Score


@asynccontextmanager
async def by_words(archive: Archive, clock: Clock) -> AsyncGenerator[Sequence[Scorer]]:
    """Full text only."""
    yield [ByWords(archive, clock)]


def by_words_and_meaning(embedder: Embedder) -> Scorers:
    """Full text and vectors, as in a daemon; compared with all of them, which is exact."""

    @asynccontextmanager
    async def scorers(archive: Archive, clock: Clock) -> AsyncGenerator[Sequence[Scorer]]:
        indexer = Indexer(
            embedder=embedder,
            index=ListIndex(),
            sources=[SaidSource(archive, MOST, lambda _: None)],
            policy=IndexPolicy(),
            sleep=clock.sleep,
        )
        following = asyncio.create_task(indexer.run())
        try:
            await indexer.caught_up()
            yield [ByWords(archive, clock), ByMeaning(archive, indexer, WAIT_S)]
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    return scorers


async def measure(
    conversations: Sequence[Conversation],
    folder: Path,
    scorers: Scorers = by_words,
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
    conversation: Conversation, folder: Path, scorers: Scorers
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
        async with scorers(archive, clock) as given:
            yield ArchiveSearch(archive, store, given), places
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
