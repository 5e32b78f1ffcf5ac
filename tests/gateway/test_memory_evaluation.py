"""What learning makes of sample conversations, with a good helper and every bad one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from gateway.cli.evaluate import driven
from gateway.clock import ManualClock
from gateway.learning import Learner
from gateway.memory_evaluation import ANA, LEARNS, Conversation, Learnt, OneModel, Unwritten, evaluate, judged
from gateway.models.scripted_helpers import LEARNING, Learning, ScriptedHelper
from memory.policy import LearnPolicy, MemoryPolicy
from memory.records import Change, Draft
from memory.samples import SAMPLES, SECRET
from tests.gateway.test_memory_tools import Opened
from tests.memory.opened import opened

if TYPE_CHECKING:
    from pathlib import Path

ANSWERS = ("good", "duplicates", "prose", "foreign", "leaks", "injected", "resurrects")
MUTE = ("broken", "hangs", "fails")


def measured(behaviour: Learning, language: str, folder: Path) -> Learnt:
    clock = ManualClock(datetime(2026, 5, 4, 12, tzinfo=UTC))
    helper = ScriptedHelper(behaviour, SAMPLES[language], clock)
    return asyncio.run(driven(clock, evaluate(helper, language, clock=clock, folder=folder)))


TRIED = [("en", one) for one in LEARNING]
TRIED += [(language, one) for language in ("cs", "th", "zh") for one in ("good", "contradicts", "resurrects", "leaks")]


@pytest.mark.parametrize(("language", "behaviour"), TRIED)
def test_no_helper_breaks_a_rule(behaviour: Learning, language: str, tmp_path: Path) -> None:
    found = measured(behaviour, language, tmp_path)
    assert found.broken == 0, found
    assert found.stale == 0
    assert found.failed == (found.runs if behaviour in MUTE else 0)
    if behaviour in ANSWERS:
        assert found.kept == found.wanted


async def test_what_breaks_a_rule_is_counted(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 5, 4, 12, tzinfo=UTC))
    sample = SAMPLES["en"]
    helper = ScriptedHelper("good", sample, clock)
    async with opened(tmp_path / "state.db", clock, MemoryPolicy(allow_secrets=True)) as memories:
        learner = Learner(Opened(tmp_path, memories), OneModel(helper), Unwritten(), clock, LearnPolicy())
        talk = Conversation(memories, learner, clock, sample)
        await driven_by(clock, talk)
        assert (await judged(talk, helper, "en")).secrets > 0  # the filter is off, and the question held them
        helper.asked.clear()
        assert (await judged(talk, helper, "en")).broken == 0
        for text in (SECRET, "yesterday's zebras", "Boris owns castles"):
            await memories.add(LEARNS, Draft(text=text, topic="projects"))
        await memories.add(ANA, Draft(text=sample.purged, topic="projects"))
        await memories.add(LEARNS, Draft(text=sample.order, topic="reference"))
        await memories.update(ANA, talk.hand, Change(text="something else"))
        found = await judged(talk, helper, "en")
        assert (found.secrets, found.deleted, found.edits, found.orders, found.dates) == (1, 1, 1, 1, 1)
        assert found.invented == 1  # the castles of Boris


async def driven_by(clock: ManualClock, talk: Conversation) -> None:
    task = asyncio.create_task(talk.hold())
    while not task.done():
        await clock.advance(30)
        await asyncio.sleep(0.001)
    await task
