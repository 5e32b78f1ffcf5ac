"""Evidence recall: how many of the turns that answer a question a search brings among its first, in LoCoMo's format."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Place = tuple[int, int]
"""A turn: the number of its session and its number in it, from 1. `D3:7` in the file."""

DEPTHS = (5, 10, 20)
NDCG_DEPTH = 10
_PLACE = re.compile(r"D:?(\d+):(\d+)")


class BadEvidenceFile(ValueError):
    """The file is not in LoCoMo's format; the message says where."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One thing somebody said; a shared picture stands in it by its caption."""

    place: Place
    speaker: str
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and the turns that answer it."""

    text: str
    evidence: frozenset[Place]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Sessions in order, and the questions about them that have evidence in them."""

    sessions: tuple[tuple[Turn, ...], ...]
    questions: tuple[Asked, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """Shares of 1, averaged over questions."""

    questions: int
    recall: dict[int, float]
    ndcg: float

    def to_json(self) -> dict[str, float]:
        """In per cent, with one decimal."""
        shown = {f"recall@{depth}": round(100 * share, 1) for depth, share in self.recall.items()}
        return {**shown, f"ndcg@{NDCG_DEPTH}": round(100 * self.ndcg, 1)}


def parse_evidence(payload: str) -> list[Conversation]:
    """The conversations of a file. Raises BadEvidenceFile.

    Ids of evidence are read leniently, also several in one text; what names no turn is left out, and a question without
    evidence with it.
    """
    try:
        raw = json.loads(payload)
    except ValueError as error:
        raise BadEvidenceFile(f"not JSON: {error}") from error
    if not isinstance(raw, list) or not raw:
        raise BadEvidenceFile("the file must hold a list of conversations")
    found: list[Conversation] = []
    for number, one in enumerate(cast("list[Any]", raw), 1):
        try:
            found.append(_conversation(one))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise BadEvidenceFile(f"conversation {number} cannot be read: {error!r}") from error
    return found


def _conversation(raw: dict[str, Any]) -> Conversation:
    said: dict[str, Any] = raw["conversation"]
    names = [name for name in said if re.fullmatch(r"session_\d+", name)]
    sessions = tuple(
        tuple(_turn(turn) for turn in said[name]) for name in sorted(names, key=lambda name: int(name[8:]))
    )
    known = {turn.place for session in sessions for turn in session}
    questions = [
        Asked(str(one["question"]), frozenset(_places(one.get("evidence") or ())) & known) for one in raw["qa"]
    ]
    return Conversation(sessions, tuple(one for one in questions if one.evidence))


def _turn(raw: dict[str, Any]) -> Turn:
    (place,) = _places([raw["dia_id"]])
    caption = raw.get("blip_caption")
    return Turn(place, str(raw["speaker"]), f"{raw['text']} [shared {caption}]" if caption else str(raw["text"]))


def _places(texts: Iterable[Any]) -> list[Place]:
    return [(int(first), int(second)) for text in texts for first, second in _PLACE.findall(str(text))]


def score(answers: Sequence[tuple[Asked, Sequence[Place]]]) -> Score:
    """What rankings are worth: one for each question, best first."""
    count = max(1, len(answers))
    recall = {
        depth: sum(len(asked.evidence & set(order[:depth])) / len(asked.evidence) for asked, order in answers) / count
        for depth in DEPTHS
    }
    return Score(len(answers), recall, sum(_ndcg(asked.evidence, order) for asked, order in answers) / count)


def _ndcg(evidence: frozenset[Place], order: Sequence[Place]) -> float:
    gained = sum(1 / math.log2(rank + 2) for rank, place in enumerate(order[:NDCG_DEPTH]) if place in evidence)
    return gained / sum(1 / math.log2(rank + 2) for rank in range(min(NDCG_DEPTH, len(evidence))))
