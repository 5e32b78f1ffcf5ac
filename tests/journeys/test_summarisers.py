"""Conversations go on whatever writes their summaries: every bad summariser, over a whole daemon."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from compaction.plants import ORDER, PLANTS
from compaction.summary import LISTS, identifiers_in
from gateway.clock import ManualClock
from gateway.models.scripted import BAD, Behaviour, ScriptedSummariser
from sessions.entries import parse_time
from tests.journeys.daemon import KEY, Client, config, model_settings, running
from tests.journeys.test_compaction import words
from tests.sessions.builders import AT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable
    from pathlib import Path

    from tests.bench.standin import StandIn

WINDOW = 4000
TIMEOUT_S = 60
GENERATIONS = 10 if os.environ.get("SOAK") else 3
"""Ten with `make soak`; over the summariser alone always ten (tests/compaction/test_evaluation.py)."""


@asynccontextmanager
async def talking(
    folder: Path, standin: StandIn, behaviour: Behaviour, clock: ManualClock, **compaction: Any
) -> AsyncIterator[tuple[Client, ScriptedSummariser]]:
    """A daemon whose summaries are written by a script."""
    settings = model_settings(standin.base_url, window=WINDOW, max_output=500)
    settings["models"]["summary"] = {"provider": "offline", "model": "scripted"}
    settings["roles"]["summary"] = "summary"
    settings["compaction"] = {"timeout_s": TIMEOUT_S, **compaction}
    writer = ScriptedSummariser(behaviour, clock, name="summary")
    async with running(folder, config(**settings), clock=clock) as client:
        client.daemon.parts.models.put(writer)
        yield client, writer


async def driven(clock: ManualClock, work: Awaitable[Any], step_s: float = 5.0) -> Any:
    """Time passes until the work is done."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await clock.advance(step_s)
        await asyncio.sleep(0.002)
    return task.result()


async def settled(client: Client, clock: ManualClock) -> None:
    jobs = list(client.daemon.parts.compactor._jobs.values())
    if jobs:
        await driven(clock, asyncio.wait(jobs))


async def everything(client: Client) -> list[dict[str, Any]]:
    return (await client.get(f"/v1/sessions/{KEY}/transcript?limit=1000"))["entries"]


@pytest.mark.parametrize("behaviour", BAD)
async def test_generations_with_a_bad_summariser_lose_invent_and_order_nothing(
    tmp_path: Path, standin: StandIn, behaviour: Behaviour
) -> None:
    clock = ManualClock(AT)
    async with talking(tmp_path, standin, behaviour, clock, min_messages=2) as (client, writer):
        await client.say(" ".join(plant.said for plant in PLANTS["en"]))
        number = 0
        while (await client.get(f"/v1/sessions/{KEY}"))["generation"] <= GENERATIONS:
            assert number < 300, "compactions do not come"
            number += 1
            assert (await driven(clock, client.say(words(number, 110))))["state"] == "done"
            await settled(client, clock)
            await clock.advance(120)
        entries = await everything(client)
        said = "\n".join(e["text"] for e in entries if e["type"] in ("user", "assistant"))
        summaries = [e for e in entries if e["type"] == "summary"]
        anchor = max(e["covers"]["to"] for e in summaries)
        shown = {m["content"] for m in standin.requests[-1].body["messages"]}
        assert [e["seq"] for e in entries if e["type"] == "user" and e["seq"] > anchor and e["text"] not in shown] == []
        items = "\n".join(item for e in summaries for name in LISTS for item in e["summary"][name])
        assert [one for one in identifiers_in(items) if one not in said] == []
        assert not any(ORDER in orjson.dumps(request.body).decode() for request in standin.requests)
        assert len(summaries) == GENERATIONS
        assert writer.calls >= GENERATIONS
        assert {e.get("by", "model") for e in summaries} == {"model" if behaviour == "injected" else "rules"}


@pytest.mark.parametrize("behaviour", ["hangs", "fails", "slow"])
async def test_replies_do_not_wait_for_a_summary_and_what_is_said_meanwhile_is_all_there(
    tmp_path: Path, standin: StandIn, behaviour: Behaviour
) -> None:
    clock = ManualClock(AT)
    async with talking(tmp_path, standin, behaviour, clock) as (client, _):
        for number in range(12):
            await client.say(words(number, 20))
        job = asyncio.create_task(client.call("POST", f"/v1/sessions/{KEY}/compact", {}))
        await asyncio.sleep(0)
        late = [f"meanwhile {number}" for number in range(5)]
        for text in late:
            assert (await client.say(text))["state"] == "done", "no time has passed"
        _, told = await driven(clock, job)
        assert told["generation"] == (2 if behaviour == "slow" else 1)
        assert [t for t in await client.texts() if t.startswith("meanwhile")] == late
        await client.say("and then")
        shown = [m["content"] for m in standin.requests[-1].body["messages"]]
        assert [text for text in shown if text in late] == late


async def test_a_cool_down_outlives_a_restart(tmp_path: Path, standin: StandIn) -> None:
    clock = ManualClock(AT)
    async with talking(tmp_path, standin, "fails", clock, threshold=0.3) as (client, writer):
        number = 0
        while not writer.calls:
            number += 1
            await client.say(words(number))
            await settled(client, clock)
        state = (await client.get(f"/v1/sessions/{KEY}"))["compaction"]
        assert (state["outcome"], state["failures"], state["error"]) == ("failed", 1, "The model is down.")
        assert parse_time(state["retry_at"]) - parse_time(state["at"]) == timedelta(seconds=60)
    async with talking(tmp_path, standin, "fails", clock, threshold=0.3) as (client, writer):
        await client.say("during the cool-down")
        await settled(client, clock)
        assert writer.calls == 0
        await clock.advance(61)
        await client.say("after it")
        await settled(client, clock)
        assert writer.calls == 1
        assert (await client.get(f"/v1/sessions/{KEY}"))["compaction"]["failures"] == 2


async def test_at_the_hard_limit_a_reply_waits_a_bounded_time_for_a_summary_then_the_rules_make_room(
    tmp_path: Path, standin: StandIn
) -> None:
    clock = ManualClock(AT)
    async with talking(tmp_path, standin, "hangs", clock, timeout_s=10_000) as (client, _):
        number = 0
        waited = 0.0
        while number == 0 or (await client.get(f"/v1/sessions/{KEY}"))["generation"] == 1:
            number += 1
            assert number < 60
            started = clock.monotonic()
            assert (await driven(clock, client.say(words(number)), 1.0))["state"] == "done"
            waited = clock.monotonic() - started
        assert 20 <= waited < 2000, "far less than the summary would take"
        assert max(len(orjson.dumps(r.body)) // 4 for r in standin.requests) <= 0.95 * WINDOW


async def test_the_progress_of_a_summary_is_told_to_who_follows_and_to_the_turn_that_waits(
    tmp_path: Path, standin: StandIn
) -> None:
    clock = ManualClock(AT)
    async with talking(tmp_path, standin, "slow", clock, chunk_tokens=400) as (client, _):
        for number in range(12):
            await client.say(words(number, 20))
        job = asyncio.create_task(client.call("POST", f"/v1/sessions/{KEY}/compact", {}))
        standin.script("slow")
        turn = await client.post("and this?")
        await driven(clock, job)
        followed = [event.fields for event in client.daemon.parts.bus.recent() if event.name == "compaction"]
        assert [fields["state"] for fields in followed][:2] == ["started", "progress"]
        assert [fields["state"] for fields in followed].count("done") == 1
        progress = [(fields["done"], fields["of"]) for fields in followed if fields["state"] == "progress"]
        assert progress == [(n, progress[0][1]) for n in range(len(progress))]
        told = await client.events("GET", f"/v1/turns/{turn['turn']}/events")
        assert "done" in [name for _, name, _ in told]
        assert "progress" in [fields["state"] for _, name, fields in told if name == "compaction"]
