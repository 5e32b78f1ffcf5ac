"""What survives of planted facts, with every kind of writer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from compaction.plants import PLANTS
from compaction.policy import CompactionPolicy
from gateway.clock import ManualClock
from gateway.evaluation import Trial, evaluate
from gateway.models.scripted import BAD, Behaviour, ScriptedSummariser
from tests.sessions.builders import AT

if TYPE_CHECKING:
    from pathlib import Path

    from compaction.evaluation import Survival

POLICY = CompactionPolicy()


def count(text: str) -> int:
    return len(text.encode()) // 4 + 1


async def measured(folder: Path, language: str, behaviour: Behaviour | None, generations: int) -> list[Survival]:
    clock = ManualClock(AT)
    writer = None if behaviour is None else ScriptedSummariser(behaviour, clock)
    trial = Trial(language=language, generations=generations, model=writer, window=4000)
    task = asyncio.create_task(evaluate(trial, policy=POLICY, count=count, clock=clock, folder=folder))
    while not task.done():
        await clock.advance(60)
        await asyncio.sleep(0.001)
    return task.result()


def sound(found: list[Survival], generations: int) -> None:
    assert [one.generation for one in found] == list(range(1, generations + 1))
    assert [(one.invented, one.orders, one.neither, one.stale) for one in found] == [(0, 0, 0, 0)] * generations
    assert [one.breaks for one in found] == list(range(1, generations + 1))
    assert all(one.tokens_after < one.tokens_before for one in found)


@pytest.mark.parametrize("language", list(PLANTS))
async def test_the_rules_keep_most_of_what_was_planted_and_the_rest_is_found(tmp_path: Path, language: str) -> None:
    found = await measured(tmp_path, language, None, 10)
    sound(found, 10)
    assert sum(found[0].kept.values()) >= 9
    assert sum(found[-1].kept.values()) >= 8
    assert all(found[-1].kept[name] for name in ("prohibition", "preference", "decision with reason"))
    assert all(all(one.reach.values()) for one in found)


@pytest.mark.parametrize("language", list(PLANTS))
async def test_the_oracle_keeps_everything(tmp_path: Path, language: str) -> None:
    found = await measured(tmp_path, language, "oracle", 10)
    sound(found, 10)
    assert {one.by for one in found} == {"model"}
    assert all(all(one.kept.values()) for one in found)


@pytest.mark.parametrize("behaviour", BAD)
async def test_no_bad_summariser_invents_orders_or_loses_anything(tmp_path: Path, behaviour: Behaviour) -> None:
    found = await measured(tmp_path, "cs", behaviour, 10)
    sound(found, 10)
    assert {one.by for one in found} == {"model" if behaviour == "injected" else "rules"}
