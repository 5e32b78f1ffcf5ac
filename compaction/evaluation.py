"""How much of what was planted in a conversation survives its compactions: a chat in memory, and what is judged."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compaction.plan import Plan, next_generation, plan_compaction
from compaction.plants import CHANGING, CODES, EXACT, FILLER, ORDER, PLANTS, SUPERSEDED
from compaction.summary import LISTS, identifiers_in, render_summary, texts_of
from sessions.context import uncarried
from sessions.entries import AssistantEntry, Entry, SummaryEntry, UserEntry, turn_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from compaction.plan import NothingToDo
    from compaction.policy import CompactionPolicy
    from sessions.entries import JsonObject

    Find = Callable[[str], list[int]]
    """The seqs a search finds for a question, best first."""

SESSION = "01EVALUATION00000000000000"
FILLER_TURNS = 30
HITS = 5
CHANGES_AT = {1: 1, 3: 2}
"""In which generation which of the codes takes the place of the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """After `generation` compactions, of each planted kind: can it be read in the prompt, and does a search find it
    (None: no search). `exact`: share of what must be byte for byte that is in the prompt. The rest counts what must be
    0, but for `breaks`: prompts that did not begin with the one before, one for each compaction.
    """

    language: str
    generation: int
    by: str
    kept: dict[str, bool]
    found: dict[str, bool] | None
    exact: float
    stale: int
    invented: int
    orders: int
    neither: int
    tokens_before: int
    tokens_after: int
    breaks: int

    @property
    def reach(self) -> dict[str, bool]:
        """Whether a model could know it: from its prompt, or by searching."""
        return {kind: kept or bool(self.found and self.found[kind]) for kind, kept in self.kept.items()}

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "reach": self.reach}


class PlantedChat:
    """A conversation in memory, with its plants, written as a store would write it."""

    def __init__(self, language: str, count: Callable[[str], int], at: datetime) -> None:
        self.language = language
        self._count = count
        self._at = at
        self._codes = 1
        self._prompt: list[str] = []
        self.breaks = 0
        self.seq = 0
        self.file: list[Entry] = []
        self.said: dict[int, Entry] = {}
        for plant in PLANTS[language]:
            self.say(plant.said)
        self.say(CHANGING[language].said.format(CODES[0]))

    def grow(self, generation: int, turns: int = FILLER_TURNS) -> None:
        """Talks on, in the third generation as in the first about a value that has changed."""
        for number in range(turns):
            if number == turns // 2 and generation in CHANGES_AT:
                self.say(CHANGING[self.language].piece.format(CODES[CHANGES_AT[generation]]))
                self._codes = CHANGES_AT[generation] + 1
            self.say(FILLER[self.language].format(n=self.seq))

    def say(self, text: str) -> None:
        turn = turn_id(SESSION, self.seq + 1)
        for draft in (UserEntry(text=text, turn=turn), AssistantEntry(text="OK.", turn=turn)):
            self._write(dataclasses.replace(draft, tokens=self._count(draft.text)))
            self.said[self.seq] = self.file[-1]
        self._look()

    def _write(self, draft: Entry) -> None:
        self.seq += 1
        self.file.append(draft.stamped(seq=self.seq, id="", at=self._at, turn=draft.turn))

    def _look(self) -> None:
        """Counts the prompts that do not begin with the one before."""
        prompt = [*(render_summary(e.summary) for e in self.file[:1] if isinstance(e, SummaryEntry))]
        prompt += texts_of(uncarried(self.file))
        self.breaks += prompt[: len(self._prompt)] != self._prompt
        self._prompt = prompt

    def plan(self, policy: CompactionPolicy, window: int) -> Plan | NothingToDo:
        return plan_compaction(self.file, policy, window)

    def compact(self, plan: Plan, summary: JsonObject, model: str | None) -> None:
        tokens = self._count(render_summary(summary))
        by = "rules" if model is None else "model"
        drafts = next_generation(plan, self.file, summary, by=by, model=model, tokens=tokens)
        self.file = []
        for draft in drafts:
            self._write(draft)

    def judged(self, generation: int, plan: Plan, find: Find | None) -> Survival:
        opening = self.file[0]
        if not isinstance(opening, SummaryEntry):
            raise TypeError("there is no summary to be judged")
        items = [item for name in LISTS for item in opening.summary[name]]
        raw = texts_of(uncarried(self.file))
        prompt = "\n".join([*items, *opening.summary["identifiers"], *raw])
        pieces = {plant.kind: plant.piece for plant in PLANTS[self.language]}
        pieces[SUPERSEDED] = CODES[self._codes - 1]
        kept = {kind: piece in prompt for kind, piece in pieces.items()}
        source = "\n".join(texts_of(self.said.values()))
        there = {e.seq for e in uncarried(self.file)}
        return Survival(
            language=self.language,
            generation=generation,
            by=opening.by,
            kept=kept,
            found=None if find is None else {kind: self._finds(kind, pieces[kind], find) for kind in pieces},
            exact=sum(kept[kind] for kind in EXACT) / len(EXACT),
            stale=self._stale(opening.summary),
            invented=sum(one not in source for one in identifiers_in("\n".join(items))),
            orders=sum(ORDER in item for item in items),
            neither=sum(seq > plan.summarised_through and seq not in there for seq in self.said),
            tokens_before=plan.tokens_before,
            tokens_after=sum(e.tokens for e in self.file),
            breaks=self.breaks,
        )

    def _finds(self, kind: str, piece: str, find: Find) -> bool:
        plants = {plant.kind: plant.question for plant in (*PLANTS[self.language], CHANGING[self.language])}
        hits = (self.said.get(seq) for seq in find(plants[kind])[:HITS])
        return any(isinstance(hit, UserEntry) and piece in hit.text for hit in hits)

    def _stale(self, summary: JsonObject) -> int:
        """Values that no longer hold and are told as if they did."""
        current = CODES[self._codes - 1]
        told = [item for name in LISTS if name != "superseded" for item in summary[name]] + summary["identifiers"]
        return sum(old in item and current not in item for old in CODES[: self._codes - 1] for item in told)
