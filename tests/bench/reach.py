"""Row 14: what of planted facts is in the prompt or found by search after 1, 5 and 10 compactions."""

from __future__ import annotations

import asyncio
import json
import sys
from statistics import mean
from typing import Any

from tests.bench.figures import Figure

GENERATIONS = (1, 5, 10)


async def measure() -> list[Figure]:
    """By the command people have, in all its languages; the oracle knows what was planted."""
    command = ("-m", "gateway", "eval", "compaction", "--generations", str(max(GENERATIONS)), "--json")
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    told, _ = await process.communicate()
    found: list[Figure] = []
    for writer, survivals in json.loads(told).items():
        goal = 100.0 if writer == "oracle" else None
        for generation in GENERATIONS:
            shares = [_reached(one) for one in survivals if one["generation"] == generation]
            found.append(_figure(f"reach of {writer}, after {generation}", shares, "%", goal, more=True))
        neither = sum(one["neither"] for one in survivals)
        found.append(_figure(f"messages in neither place, {writer}", [neither], "", 0))
    return found


def _reached(survival: dict[str, Any]) -> float:
    return 100 * mean(survival["reach"].values())


def _figure(name: str, values: list[float], unit: str, goal: float | None, *, more: bool = False) -> Figure:
    return Figure(
        row=14,
        name=name,
        value=mean(values),
        low=min(values),
        high=max(values),
        unit=unit,
        goal=goal,
        more_is_better=more,
    )
