"""Search in what was said: ranked, within what the asker may see, with what stood around each hit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from memory.fusion import Scored, min_max_sum, ranked, with_neighbours
from memory.text import cut, cut_query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gateway.clock import Clock
    from sessions.archive import Archive
    from sessions.found import Said, Scope
    from sessions.record import SessionRecord
    from sessions.search import SearchIndex
    from sessions.store import SessionStore

CANDIDATES = 200
MAX_CANDIDATES = 3_200
SEARCH_S = 5.0
TEXT_CHARACTERS = 2_000
AROUND_CHARACTERS = 500
_SCANNED = 200_000
_WORD = re.compile(r"\S{1,200}")


class NothingToSearch(ValueError):
    """The question holds no word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is searched for, and where; `scope` None: everywhere. `terms` are those of `text`."""

    text: str
    terms: tuple[str, ...]
    scope: Scope | None
    candidates: int


class Scorer(Protocol):
    """One way of searching. Raises SearchFailed."""

    async def score(self, question: Question) -> Scored[int]:
        """The best messages in the scope, by their ids in the archive."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A message that was found, and what was said directly before and after it."""

    record: SessionRecord
    said: Said
    score: float
    before: Sequence[Said]
    after: Sequence[Said]


@dataclass(frozen=True, slots=True)
class Found:
    """The hits, best first. `complete` False: the index is being built again, there may be more."""

    hits: list[Hit]
    complete: bool


class ByWords:
    """Full text."""

    def __init__(self, archive: Archive, clock: Clock) -> None:
        self._archive = archive
        self._clock = clock

    async def score(self, question: Question) -> Scored[int]:
        until = self._clock.monotonic() + SEARCH_S

        def look(index: SearchIndex) -> dict[int, float]:
            return index.find(
                question.terms, question.scope, question.candidates, lambda: self._clock.monotonic() > until
            )

        return Scored(await self._archive.look(look))


class ArchiveSearch:
    """Every way of searching the archive, as one. A hit counts only if the session index still knows its session."""

    def __init__(
        self, archive: Archive, store: SessionStore, scorers: Sequence[Scorer], *, relevance: float = 0.0
    ) -> None:
        self._archive = archive
        self._store = store
        self._scorers = scorers
        self._relevance = relevance

    async def search(
        self,
        text: str,
        scope: Scope | None,
        *,
        allowed: Callable[[SessionRecord, Said], bool],
        limit: int,
        around: int = 2,
    ) -> Found:
        """The best `limit` messages that were found and are `allowed`; what stands beside them is shown with them.

        Raises NothingToSearch and SearchFailed.
        """
        terms = tuple(cut_query(text))
        if not terms:
            raise NothingToSearch("There is no word or number to search for.")
        complete = self._archive.complete
        candidates = CANDIDATES
        while True:
            question = Question(text=text, terms=terms, scope=scope, candidates=candidates)
            searches = await self.searches(question)
            scores = await self.fused(searches)
            hits = relevant(scores, searches, self._relevance)
            chosen = await self._allowed(hits, allowed, limit)
            exhausted = all(len(search.scores) < candidates for search in searches)
            if len(chosen) == limit or exhausted or candidates >= MAX_CANDIDATES:
                found = await self._with_surroundings(chosen, around)
                return Found(found, complete and self._archive.complete)
            candidates *= 4

    async def searches(self, question: Question) -> list[Scored[int]]:
        """What every scorer found."""
        return [await scorer.score(question) for scorer in self._scorers]

    async def fused(self, searches: Sequence[Scored[int]]) -> dict[int, float]:
        """One score for each message; one that stands beside a good one gains by that."""
        total = min_max_sum(searches)
        if not total:
            return total
        near = await self._archive.look(lambda index: index.neighbours(total))
        return with_neighbours(total, lambda one: near.get(one, []))

    async def _allowed(
        self, scores: Mapping[int, float], allowed: Callable[[SessionRecord, Said], bool], limit: int
    ) -> list[tuple[SessionRecord, Said, float]]:
        order = ranked(scores, len(scores))
        chosen: list[tuple[SessionRecord, Said, float]] = []
        for start in range(0, len(order), 5 * limit):
            part = dict(order[start : start + 5 * limit])
            messages = await self._archive.look(lambda index, part=part: index.messages(list(part)))
            for one, score in part.items():
                said = messages.get(one)
                record = None if said is None else self._store.index.find(said.session)
                if said is None or record is None or record.ended == "deleted" or not allowed(record, said):
                    continue
                chosen.append((record, said, score))
                if len(chosen) == limit:
                    return chosen
        return chosen

    async def _with_surroundings(self, chosen: Sequence[tuple[SessionRecord, Said, float]], around: int) -> list[Hit]:
        def look(index: SearchIndex) -> list[Hit]:
            hits: list[Hit] = []
            for record, said, score in chosen:
                before, after = index.around(said, around, around)
                hits.append(Hit(record=record, said=said, score=round(score, 4), before=before, after=after))
            return hits

        return await self._archive.look(look) if chosen else []


def relevant(scores: Mapping[int, float], searches: Sequence[Scored[int]], least: float) -> dict[int, float]:
    """What was found itself and does not only stand beside it: by a word of the question, or by vectors with at least
    this share of the best possible score, since vectors find something for every question."""
    enough = least * sum(1 for search in searches if search.scores)
    return {
        one: score
        for one, score in scores.items()
        if any(one in search.scores and (search.floor is not None or score >= enough) for search in searches)
    }


def excerpt(text: str, terms: Sequence[str], limit: int) -> str:
    """The text, or when it is longer the part of it that begins shortly before the first of the terms."""
    if len(text) <= limit:
        return text
    wanted = set(terms)
    words = _WORD.finditer(text, 0, _SCANNED)
    at = next((word.start() for word in words if not wanted.isdisjoint(cut(word[0]))), 0)
    start = max(0, min(at - limit // 4, len(text) - limit))
    shown = text[start : start + limit]
    return f"{'…' if start else ''}{shown}{'…' if start + limit < len(text) else ''}"
