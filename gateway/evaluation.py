"""Runs planted conversations through compactions, with any writer of summaries."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compaction.evaluation import SESSION, PlantedChat, Survival
from compaction.plan import Plan
from compaction.triggers import MAX_FAILURES
from gateway.summariser import Summariser, SummaryFailed, SummaryJob
from memory.text import cut, cut_query
from sessions.found import Origin, Place
from sessions.search import SearchIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from compaction.policy import CompactionPolicy
    from gateway.clock import Clock
    from gateway.models.base import ChatModel
    from sessions.entries import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One conversation and who summarises it; `model` None: the rules."""

    language: str
    generations: int
    model: ChatModel | None
    window: int


async def evaluate(
    trial: Trial, *, policy: CompactionPolicy, count: Callable[[str], int], clock: Clock, folder: Path
) -> list[Survival]:
    """What survives after each compaction. `folder` holds a search index meanwhile.

    A model that gives no summary is asked as often as in a daemon, then the rules write it.
    """
    summariser = Summariser(count=count, clock=clock, policy=policy)
    chat = PlantedChat(trial.language, count, clock.now())
    found: list[Survival] = []
    with _searching(chat, folder / f"{trial.language}.db") as find:
        for generation in range(1, trial.generations + 1):
            chat.grow(generation)
            plan = chat.plan(policy, trial.window)
            if isinstance(plan, Plan):
                summary, model = await _written(summariser, trial, plan, generation + 1)
                chat.compact(plan, summary, model)
                chat.say("?")
                found.append(chat.judged(generation, plan, find))
    return found


async def _written(summariser: Summariser, trial: Trial, plan: Plan, generation: int) -> tuple[JsonObject, str | None]:
    if trial.model is not None:
        job = SummaryJob(plan=plan, generation=generation, model=trial.model, window=trial.model.window or trial.window)
        for _ in range(MAX_FAILURES):
            with contextlib.suppress(SummaryFailed):
                return await summariser.write(job), trial.model.model
    return summariser.by_rules(plan, generation), None


@contextlib.contextmanager
def _searching(chat: PlantedChat, path: Path) -> Generator[Callable[[str], list[int]]]:
    """A search over all that was said, as the archive has it."""
    index, _ = SearchIndex.open(path, cut)
    known = 0
    origin = Origin(SESSION, "agent:main:web:direct:eval", None)

    def find(question: str) -> list[int]:
        nonlocal known
        fresh = [entry for seq, entry in chat.said.items() if seq > known]
        if fresh:
            known = fresh[-1].seq
            with index.changing() as change:
                change.add(origin, fresh, Place(1, known))
        hits = index.find(cut_query(question), None, 20, lambda: False)
        ranked = sorted(hits, key=lambda one: hits[one], reverse=True)
        messages = index.messages(ranked)
        return [messages[one].seq for one in ranked if one in messages]

    try:
        yield find
    finally:
        index.close()
