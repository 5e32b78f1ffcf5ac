"""Settings people make for themselves: their names, and what then holds."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, cast

from gateway.clock import ManualClock
from gateway.personal import PersonalSettings, effective, flat, names
from memory.policy import MemoryPolicy, RecallPolicy
from memory.records import Viewer, user_pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.vectors import Opener


def test_every_setting_of_recall_has_a_name() -> None:
    told = flat(RecallPolicy().model_dump(), "recall.")
    assert {name for name in names() if name.startswith("recall.")} == set(told)
    assert told["recall.mid_turn.searches"] == 6


def test_what_is_chosen_holds_and_what_is_impossible_or_unknown_is_as_configured() -> None:
    policy = MemoryPolicy(recall=RecallPolicy(limit=4))
    chosen = {
        "recall.wait_s": 0,
        "recall.mid_turn.batch": 1,
        "recall.limit": 1000,
        "recall.on_message": None,
        "recall.colour": "red",
        "retention.enabled": False,
    }
    found = effective(policy, chosen)
    assert (found.recall.wait_s, found.recall.mid_turn.batch) == (0, 1)
    assert (found.recall.limit, found.recall.on_message) == (4, True)
    assert found.retention.enabled
    assert found.recall.mid_turn.searches == 6


class Chosen:
    """What people have chosen; an answer can be held back after it was read."""

    def __init__(self) -> None:
        self.answering = asyncio.Event()
        self._chosen: dict[str, Any] = {}

    async def open(self) -> Self:
        return self

    @property
    def store(self) -> Self:
        return self

    @property
    def settings(self) -> Self:
        return self

    async def of(self, viewer: Viewer, pool: object) -> dict[str, Any]:
        read = dict(self._chosen)
        await self.answering.wait()
        return read

    async def change(self, viewer: Viewer, pool: object, decide: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._chosen |= decide(self._chosen)


async def test_what_a_turn_reads_while_somebody_changes_it_is_not_what_the_next_turn_gets() -> None:
    chosen = Chosen()
    personal = PersonalSettings(cast("Opener", chosen), MemoryPolicy(), ManualClock(datetime(2026, 5, 4, tzinfo=UTC)))
    turn = asyncio.create_task(personal.recall("ana"))
    await asyncio.sleep(0)
    await personal.put(Viewer(user="ana", author="ana"), user_pool("ana"), {"recall.limit": 3})
    chosen.answering.set()
    assert (await turn).limit == 10
    assert (await personal.recall("ana")).limit == 3
