"""One search for memories, files and transcripts: proposals of words and vectors, confirmed, fused, ordered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

from memory.embed import EmbeddingFailed
from memory.fusion import Scored, min_max_sum, with_neighbours
from memory.index import IndexBroken, point_of
from memory.text import cut, cut_query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory.index import Near
    from memory.policy import SearchPolicy
    from memory.records import TextHit

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

SearchMode = Literal["hybrid", "vector", "keyword"]

OVER_FETCH = 2
OVER_FETCH_MORE = 10
ROUNDS = 3
GROWTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[T_co]):
    """A text the searcher may see, as it is now. `weight` multiplies its score: 1 is neutral."""

    id: str
    pool: str
    text: str
    item: T_co
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit(Generic[T_co]):
    """A result. `score` orders; `keyword` and `vector` are the scores of the two searches, None: not found by it."""

    found: Found[T_co]
    score: float
    keyword: float | None
    vector: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult(Generic[T_co]):
    """The hits, best first. `problem` says why vectors were asked for and not used; None when they were."""

    hits: tuple[Hit[T_co], ...]
    problem: str | None = None


class Corpus(Protocol[T_co]):
    """Texts as one searcher may see them. Whatever is proposed, only what `confirm` returns is shown."""

    async def pools(self) -> Sequence[str]:
        """Where vectors are looked for."""
        ...

    async def propose(self, words: str, limit: int) -> Sequence[TextHit]:
        """What the full text finds, the best first; 0 is the score of what it does not find."""
        ...

    async def confirm(self, ids: Sequence[str]) -> Sequence[Found[T_co]]:
        """What of these is there for the searcher: asked last, so that what was deleted meanwhile is not shown."""
        ...

    def beside(self, text_id: str) -> Sequence[str]:
        """Ids of the texts before and after, in a conversation; nothing elsewhere."""
        ...


class NearTexts(Protocol):
    """Proposals of vectors. Raises EmbeddingFailed and IndexBroken."""

    async def near(self, pools: Sequence[str], text: str, limit: int) -> list[Near]: ...


async def search(
    corpus: Corpus[T],
    vectors: NearTexts | None,
    words: str,
    *,
    policy: SearchPolicy,
    limit: int,
    mode: SearchMode = "hybrid",
) -> SearchResult[T]:
    """Asks for more than is wanted, since not everything will be confirmed, and for still more while that is few.

    What is there and not relevant is no reason to ask again: what comes after it is less so.
    """
    want = limit * OVER_FETCH + OVER_FETCH_MORE
    rounds_left = ROUNDS
    while True:
        hits, problem, there, full = await _once(corpus, vectors, words, policy=policy, want=want, mode=mode)
        rounds_left -= 1
        if there >= limit or not full or rounds_left == 0:
            return SearchResult(hits=tuple(hits[:limit]), problem=problem)
        want *= GROWTH


async def _once(
    corpus: Corpus[T], vectors: NearTexts | None, words: str, *, policy: SearchPolicy, want: int, mode: SearchMode
) -> tuple[list[Hit[T]], str | None, int, bool]:
    """The hits, the problem of vectors, how many were confirmed, relevant or not, and whether a search gave as many
    proposals as it was asked for."""
    (near, problem), texts = await asyncio.gather(
        _near(corpus, vectors, words, policy, want, mode), _texts(corpus, words, want, mode)
    )
    proposed = [*(hit.id for hit in texts), *(one.point.id for one in near)]
    confirmed = {found.id: found for found in await corpus.confirm(proposed)}
    keyword = {hit.id: hit.score for hit in texts if hit.id in confirmed}
    vector = {one.point.id: one.score for one in near if _is_present(one, confirmed.get(one.point.id))}
    scores = fuse(keyword, vector)
    if policy.neighbour_weight:
        scores = with_neighbours(scores, corpus.beside, policy.neighbour_weight)
        reached = [text_id for text_id in scores if text_id not in confirmed]
        confirmed |= {found.id: found for found in await corpus.confirm(reached)} if reached else {}
    hits = order(confirmed, scores, keyword, vector, words=words, relevance=policy.relevance)
    there = sum(text_id in confirmed for text_id in scores)
    return hits, problem, there, len(texts) >= want or len(near) >= want


def order(
    confirmed: Mapping[str, Found[T]],
    scores: Mapping[str, float],
    keyword: Mapping[str, float],
    vector: Mapping[str, float],
    *,
    words: str,
    relevance: float,
) -> list[Hit[T]]:
    """What is relevant enough, the best first. A text that holds every telling word stays, however poor its score."""
    possible = max(1, (len(keyword) > 0) + (len(vector) > 0))
    terms = frozenset(cut_query(words))
    hits: list[Hit[T]] = []
    for text_id, score in scores.items():
        found = confirmed.get(text_id)
        if found is None:
            continue
        relevant = score >= relevance * possible
        if relevant or (text_id in keyword and holds_all(terms, found.text)):
            hits.append(
                Hit(
                    found=found,
                    score=score / possible * found.weight,
                    keyword=keyword.get(text_id),
                    vector=vector.get(text_id),
                )
            )
    return sorted(hits, key=lambda hit: -hit.score)


async def _near(
    corpus: Corpus[T], vectors: NearTexts | None, words: str, policy: SearchPolicy, want: int, mode: SearchMode
) -> tuple[list[Near], str | None]:
    if mode == "keyword":
        return [], None
    if vectors is None:
        return [], "There is no embedding model; set roles.embedding."
    try:
        async with asyncio.timeout(policy.vectors_wait_s):
            return await vectors.near(await corpus.pools(), words, want), None
    except TimeoutError:
        return [], f"The embedding model took longer than {policy.vectors_wait_s:g} s."
    except (EmbeddingFailed, IndexBroken) as error:
        return [], str(error)


async def _texts(corpus: Corpus[T], words: str, want: int, mode: SearchMode) -> Sequence[TextHit]:
    return [] if mode == "vector" else await corpus.propose(words, want)


def _is_present(near: Near, found: Found[T] | None) -> bool:
    """Whether a vector stands for the text as it is now; an index may be stale, or wrong."""
    return found is not None and near.point == point_of(found.id, found.pool, found.text)


def fuse(keyword: Mapping[str, float], vector: Mapping[str, float]) -> dict[str, float]:
    """The sum of both, each brought to 0..1 (spec memory.md, "Recall")."""
    return min_max_sum([Scored(keyword), Scored(vector, floor=None)])


def holds_all(terms: frozenset[str], text: str) -> bool:
    return bool(terms) and terms <= set(cut(text))
