"""Rows 12 and 13: how much of every prompt was sent before, and what a long conversation costs."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import aiohttp

from gateway.config import Config
from gateway.daemon import Daemon
from gateway.models.policy import ModelPolicy
from gateway.models.prices import price
from gateway.parts import Parts
from sessions.usage import Usage
from tests.bench.figures import Figure
from tests.bench.prefix_cache import PrefixCache
from tests.bench.standin import Pace, StandIn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from compaction.layout import CacheLayout
    from gateway.turn import Incoming
    from sessions.session import Session

KEY = "agent:main:bench:direct:ana"
WINDOW = 32_000
REPLY_TOKENS = 120
MEMORIES = 6
SYSTEM = "You are the assistant of a small bakery. Answer briefly, with prices in crowns. " * 12
LISTED = ModelPolicy(provider="anthropic", model="claude-sonnet-4-5")
WORDS = (
    "bread flour oven hive market order price tuesday crowns delivery sourdough rye seed customer invoice school "
    "church festival morning evening refund recipe butter plum poppy walnut counter shelf van driver tray"
).split()


@dataclass(slots=True)
class Told:
    """What one conversation came to."""

    calls: list[Usage] = field(default_factory=list[Usage])
    shared: int = 0
    breaks: dict[str, int] = field(default_factory=dict[str, int])
    compactions: int = 0
    whole: list[int] = field(default_factory=list[int])

    @property
    def input_tokens(self) -> int:
        return sum(usage.input_total for usage in self.calls)

    @property
    def shared_share(self) -> float:
        """Of all calls but the first, which has none before it."""
        return 100 * self.shared / sum(usage.input_total for usage in self.calls[1:])

    @property
    def cached_share(self) -> float:
        return 100 * sum(u.cached_read for u in self.calls[1:]) / sum(u.input_total for u in self.calls[1:])

    @property
    def unexplained(self) -> int:
        """Breaks that neither the first call nor a compaction accounts for."""
        explained = self.breaks.get("first_call", 0) + min(self.breaks.get("compaction", 0), self.compactions)
        return sum(self.breaks.values()) - explained


@asynccontextmanager
async def _daemon(folder: Path, standin: StandIn, layout: CacheLayout) -> AsyncIterator[Daemon]:
    chat = {"provider": "openai", "base_url": standin.base_url, "model": "chat-model", "api_key": "x"}
    settings = {
        "server": {"port": 0, "rate_limit_per_minute": None},
        "models": {"chat": {**chat, "window": WINDOW}},
        "roles": {"chat": "chat", "summary": "offline"},
        "agents": {"main": {"system": SYSTEM}},
        "compaction": {"cache_layout": layout},
        "sessions": {"durability": "flush"},
    }
    daemon = Daemon(Parts(Config.model_validate(settings), folder, environ={}))
    task = asyncio.create_task(daemon.run())
    await daemon.ready.wait()
    try:
        yield daemon
    finally:
        daemon.stop()
        await task


async def conversation(folder: Path, turns: int, layout: CacheLayout) -> Told:
    """A conversation with other memories recalled at every turn, against a provider that caches what it was sent."""
    chance = random.Random(12)
    told = Told()

    def recalled(_: Session, incoming: Incoming) -> str:
        picked = [" ".join(chance.choices(WORDS, k=12)) for _ in range(MEMORIES)]
        return "Recalled memories, as reference:\n" + "\n".join(f"- {one}" for one in picked)

    async with (
        StandIn(Pace(tokens=REPLY_TOKENS), cache=PrefixCache()) as standin,
        _daemon(folder, standin, layout) as daemon,
        aiohttp.ClientSession() as client,
    ):
        parts = daemon.parts
        parts.prompts.changing.append(recalled)
        history = 0
        for number in range(turns):
            text = f"{number}: " + " ".join(chance.choices(WORDS, k=60))
            turn = await _say(client, daemon.url, text)
            session = await parts.store.open(turn["session"])
            await _settled(parts.compactor, session.id)
            call = parts.calls.last(session)
            assert call is not None
            told.calls.append(Usage(**turn["usage"]))
            told.shared += call.shared_tokens
            if call.cause is not None:
                told.breaks[call.cause] = told.breaks.get(call.cause, 0) + 1
            head = call.outline.tools.tokens + call.outline.system.tokens
            ours = sum(e["tokens"] + 4 for e in turn["entries"] if e["type"] == "user")
            ratio = call.input_tokens / call.counted
            told.whole.append(round((head + history + ours) * ratio))
            history += ours + sum(e["tokens"] + 4 for e in turn["entries"] if e["type"] == "assistant")
        told.compactions = session.record.compactions
    return told


async def _say(client: aiohttp.ClientSession, url: str, text: str) -> dict[str, Any]:
    async with client.post(f"{url}/v1/sessions/{KEY}/messages", json={"text": text}) as response:
        turn = await response.json()
        if turn.get("state") != "done":
            raise RuntimeError(f"the turn failed: {turn}")
        return turn


async def _settled(compactor: Any, session: str) -> None:
    job = compactor._jobs.get(session)
    if job is not None:
        await asyncio.wait({job})


def cost(usages: list[Usage]) -> Decimal:
    """At the list prices of one model."""
    costs = [price(LISTED, LISTED.model, usage) for usage in usages]
    return sum((one for one in costs if one is not None), Decimal(0))


def written(usage: Usage) -> Usage:
    """What was not read from the cache was written to it, as the priced provider would charge it."""
    return dataclasses.replace(usage, cache_write=usage.input_total - usage.cached_read)


def whole_history(told: Told, *, cached: bool) -> list[Usage]:
    """The same conversation with all of it in every prompt; `cached`: all but what is new comes from the cache."""
    before = [0, *told.whole[:-1]]
    return [
        Usage(
            input_total=size,
            cached_read=min(known, size) if cached else 0,  # sizes are estimates, and may go back by a few tokens
            cache_write=max(0, size - known) if cached else 0,
            output=usage.output,
        )
        for size, known, usage in zip(told.whole, before, told.calls, strict=True)
    ]


async def measure(folder: Path, *, shared_turns: int, long_turns: int) -> list[Figure]:
    """Row 12 over `shared_turns`, row 13 over `long_turns`; and a tenth of each."""
    found: list[Figure] = []
    for turns in (shared_turns // 10, shared_turns):
        ours = await conversation(folder / f"last-{turns}", turns, "memories_last")
        usual = await conversation(folder / f"first-{turns}", turns, "memories_first")
        goal = 95.0 if turns == shared_turns else None
        found += [
            one(12, f"shared with the call before, {turns} turns", ours.shared_share, "%", goal, more=True),
            one(12, f"the same, memories in the system text, {turns} turns", usual.shared_share, "%"),
            one(12, f"read from the provider's cache, {turns} turns", ours.cached_share, "%"),
            one(12, f"compactions, {turns} turns", ours.compactions, ""),
            one(12, f"breaks no compaction explains, {turns} turns", ours.unexplained, "", 0),
            one(12, f"breaks a compaction, {turns} turns", _per(ours), "", 1),
        ]
    for turns in (long_turns // 10, long_turns):
        ours = await conversation(folder / f"long-{turns}", turns, "memories_last")
        whole = sum(ours.whole)
        found += [
            one(13, f"prompt tokens, {turns} turns", ours.input_tokens, ""),
            one(13, f"sending the whole history, {turns} turns", whole, ""),
            one(13, f"prompt tokens against the whole history, {turns} turns", ours.input_tokens / whole, "x"),
            one(13, f"cost at list prices, {turns} turns", float(cost(list(map(written, ours.calls)))), "$"),
            one(13, f"whole history, cached, {turns} turns", float(cost(whole_history(ours, cached=True))), "$"),
            one(13, f"whole history, not cached, {turns} turns", float(cost(whole_history(ours, cached=False))), "$"),
        ]
    return found


def _per(told: Told) -> float:
    return told.breaks.get("compaction", 0) / told.compactions if told.compactions else 1.0


def one(row: int, name: str, value: float, unit: str, goal: float | None = None, *, more: bool = False) -> Figure:
    return Figure(
        row=row, name=name, value=value, low=value, high=value, unit=unit, goal=goal, more_is_better=more, compared=None
    )
