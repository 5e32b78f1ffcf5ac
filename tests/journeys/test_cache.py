"""What is sent again stays the same to the byte, what is not says why, and sizes are those of the provider."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from gateway.clock import ManualClock
from gateway.ledger import UsageFilter
from sessions.entries import AssistantEntry, RetractedEntry, UserEntry
from sessions.keys import parse_key
from tests.bench.prefix_cache import PrefixCache
from tests.bench.standin import Pace, StandIn
from tests.journeys.daemon import KEY, Client, config, model_settings, running

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
PATH = f"/v1/sessions/{KEY}"
LONG = "The hive by the lime tree was opened at noon and all frames were counted again. " * 20


async def causes(client: Client) -> list[str | None]:
    return [one["cause"] for one in (await client.get(f"{PATH}/cache"))["recent"]]


async def last_call(client: Client) -> dict[str, Any]:
    return (await client.get(f"{PATH}/cache"))["last"]


def settings(standin: StandIn, provider: str, **more: Any) -> dict[str, Any]:
    url = standin.base_url if provider == "openai" else standin.anthropic_url
    return {**model_settings(url, provider=provider), **more}


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_every_call_reads_the_one_before_from_the_cache(tmp_path: Path, provider: str) -> None:
    agents = {"main": {"system": LONG, "tells_time": True}}
    async with StandIn(cache=PrefixCache()) as standin:
        clock = ManualClock(NOON)
        async with running(tmp_path, config(**settings(standin, provider, agents=agents)), clock=clock) as client:
            for number in range(8):
                await client.say("call:current_time {}" if number == 3 else f"{number}: {LONG}")
                await clock.advance(61)
            report = await client.get(f"{PATH}/cache")
            assert [one["cause"] for one in report["recent"]] == ["first_call", *[None] * 8]
            for one in report["recent"][1:]:
                assert one["cached_tokens"] >= 0.9 * one["shared_tokens"] > 0
                assert one["section"] is None
            assert [section["name"] for section in report["sections"]] == ["tools", "system", "summary", "history"]
            told = (await client.say("/context"))["text"]
            assert "were as in the call before" in told
            assert "measured" in told
            _, metrics = await client.call("GET", "/metrics")
            assert b'sessiond_cache_calls_total{cause="first_call"} 1.0' in metrics
            assert b'sessiond_cache_calls_total{cause="none"} 8.0' in metrics
            said = [m["content"] for m in standin.requests[-1].body["messages"] if m["role"] != "assistant"]
            timed = ["(It is " in orjson.dumps(content).decode() for content in said]
            assert timed == [*[False] * (len(said) - 1), True], "the time is behind the newest message, and no history"


async def test_memories_first_breaks_the_cache_with_every_call(tmp_path: Path) -> None:
    more = {"agents": {"main": {"tells_time": True}}, "compaction": {"cache_layout": "memories_first"}}
    async with StandIn(cache=PrefixCache()) as standin:
        clock = ManualClock(NOON)
        async with running(tmp_path, config(**settings(standin, "openai", **more)), clock=clock) as client:
            for number in range(4):
                await client.say(f"{number}: {LONG}")
                await clock.advance(61)
            assert await causes(client) == ["first_call", *["system_changed"] * 3]
            assert (await last_call(client))["byte"] > 0


async def test_a_compaction_breaks_it_once_and_the_tokens_shown_are_new(tmp_path: Path) -> None:
    async with StandIn(cache=PrefixCache()) as standin:
        small = model_settings(standin.base_url, window=6000, max_output=500)
        small["roles"]["summary"] = "offline"
        async with running(tmp_path, config(**small)) as client:
            for number in range(12):
                await client.say(f"{number}: {LONG[:400]}")
            before = (await client.get(PATH))["context"]
            assert before["share"] > 0
            await client.call("POST", f"{PATH}/compact", {})
            assert (await client.get(PATH))["context"]["tokens"] is None, "not the size of a prompt that is gone"
            told = (await client.get(f"{PATH}/context"))["context"]
            assert told["estimated"]
            assert told["tokens"] < before["tokens"]
            for number in range(3):
                await client.say(f"after {number}")
            seen = await causes(client)
            assert seen.count("compaction") == 1
            assert seen[-3:] == ["compaction", None, None]
            assert not (await client.get(PATH))["context"]["estimated"]


async def test_what_a_restart_changes_is_told_and_what_it_does_not_is_shared(tmp_path: Path) -> None:
    async with StandIn(cache=PrefixCache()) as standin:
        plain = settings(standin, "openai")
        async with running(tmp_path, config(**plain)) as client:
            await client.say(LONG)
        async with running(tmp_path, config(**plain)) as client:
            assert (await last_call(client))["cause"] == "first_call"
            measured = (await client.get(f"{PATH}/context"))["context"]
            assert not measured["estimated"], "what was measured before the restart holds"
            await client.say(LONG)
            assert (await last_call(client))["cause"] is None
        changed = {**plain, "agents": {"main": {"system": "Be short."}}}
        async with running(tmp_path, config(**changed)) as client:
            assert (await client.get(f"{PATH}/context"))["context"]["estimated"]
            await client.say(LONG)
            last = await last_call(client)
            assert (last["cause"], last["section"], last["byte"]) == ("system_changed", "system", None)


async def test_an_edit_is_told_with_its_place_and_what_was_measured_is_forgotten(tmp_path: Path) -> None:
    async with (
        StandIn(cache=PrefixCache()) as standin,
        running(tmp_path, config(**settings(standin, "openai"))) as client,
    ):
        for number in range(4):
            await client.say(f"{number}: {LONG}")
        store = client.daemon.parts.store
        session = await store.active(parse_key(KEY))
        seqs = [e.seq for e in session.entries if isinstance(e, UserEntry | AssistantEntry)]
        await store.append(session, RetractedEntry(seqs=tuple(seqs[4:6])))
        assert (await client.get(PATH))["context"]["tokens"] is None
        assert (await client.get(f"{PATH}/context"))["context"]["estimated"]
        await client.say("and now?")
        last = await last_call(client)
        assert (last["cause"], last["section"]) == ("history_edited", "history")
        place = (await client.get(f"{PATH}/cache"))["sections"][3]["bytes"]
        assert 0 < last["byte"] < place
        assert 0 < last["cached_tokens"] < last["prompt_tokens"]
        await client.say("goes on")
        assert (await last_call(client))["cause"] is None


async def test_another_model_shares_nothing_and_its_fill_is_not_that_of_the_first(tmp_path: Path) -> None:
    async with StandIn(cache=PrefixCache()) as standin:
        both = settings(standin, "openai")
        both["models"]["other"] = {**both["models"]["chat"], "model": "other-model", "window": 9000}
        async with running(tmp_path, config(**both)) as client:
            await client.say(LONG)
            await client.say("/model other")
            shown = (await client.get(PATH))["context"]
            assert (shown["tokens"], shown["window"], shown["share"]) == (None, None, None)
            told = (await client.get(f"{PATH}/context"))["context"]
            assert (told["window"], told["estimated"]) == (9000, True)
            assert "of 9000 tokens" in (await client.say("/status"))["text"]
            await client.say(LONG)
            assert (await last_call(client))["cause"] == "model_changed"


async def test_a_provider_that_forgets_is_expired_or_has_missed(tmp_path: Path) -> None:
    cache, clock = PrefixCache(), ManualClock(NOON)
    async with (
        StandIn(cache=cache) as standin,
        running(tmp_path, config(**settings(standin, "anthropic")), clock=clock) as client,
    ):
        for number in range(3):
            await client.say(f"{number}: {LONG * 10}")
        cache.clear()
        await client.say("forgotten at once")
        cache.clear()
        await clock.advance(301)
        await client.say("forgotten in time")
        assert (await causes(client))[-2:] == ["provider_miss", "expired"]


async def test_an_overflow_teaches_window_and_factor_for_good(tmp_path: Path) -> None:
    async with StandIn(window=3000) as standin:
        unknown = settings(standin, "openai")
        del unknown["models"]["chat"]["window"]
        async with running(tmp_path, config(**unknown)) as client:
            await client.say("hello")
            assert (await client.get(PATH))["context"]["share"] is None
            assert "window is not known" in (await client.say("/status"))["text"]
            for number in range(12):
                assert (await client.say(f"{number}: {LONG[:900]}"))["state"] == "done"
                jobs = list(client.daemon.parts.compactor._jobs.values())
                if jobs:
                    await asyncio.wait(jobs)
            assert (await client.get(PATH))["context"]["window"] == 3000
        kept = orjson.loads((tmp_path / "models.json").read_bytes())["models"]["chat"]
        assert kept["window"] == 3000
        async with running(tmp_path, config(**unknown)) as client:
            told = (await client.get(f"{PATH}/context"))["context"]
            assert told["window"] == 3000
            assert told["share"] == round(told["tokens"] / 3000, 4)
        other = {**unknown, "models": {"chat": {**unknown["models"]["chat"], "model": "another"}}}
        async with running(tmp_path, config(**other)) as client:
            assert (await client.get(f"{PATH}/context"))["context"]["window"] is None, "another model is learnt anew"


async def test_the_last_call_of_a_tool_loop_is_the_context_and_the_sum_is_the_spend(tmp_path: Path) -> None:
    async with StandIn() as standin, running(tmp_path, config(**settings(standin, "openai"))) as client:
        turn = await client.say("call:current_time {}")
        replies = [e["usage"] for e in turn["entries"] if e["type"] == "assistant"]
        assert len(replies) == 2
        assert turn["usage"]["input_total"] == sum(one["input_total"] for one in replies)
        last = replies[-1]
        assert turn["context"]["tokens"] == last["input_total"] + last["output"] - last["reasoning"]
        shown = (await client.get(PATH))["context"]
        assert shown == turn["context"]
        assert (await client.get(f"{PATH}/context"))["context"] == shown


async def test_sizes_nobody_reported_are_marked(tmp_path: Path) -> None:
    async with StandIn() as standin, running(tmp_path, config(**settings(standin, "openai"))) as client:
        turn = await client.say("fault:no_usage")
        assert turn["context"]["estimated"]
        assert (await client.get(PATH))["context"]["estimated"]
        assert "about" in (await client.say("/status"))["text"]


async def test_the_usage_of_a_summary_is_no_context(tmp_path: Path) -> None:
    async with StandIn() as standin, StandIn() as writer:
        both = settings(standin, "openai")
        both["models"]["summary"] = {**both["models"]["chat"], "base_url": writer.base_url, "model": "summary-model"}
        both["roles"]["summary"] = "summary"
        async with running(tmp_path, config(**both)) as client:
            for number in range(12):
                await client.say(f"{number}: {LONG[:300]}")
            before = (await client.get(PATH))["context"]
            status, told = await client.call("POST", f"{PATH}/compact", {})
            assert status == 200
            assert writer.requests
            assert "failed" in told["outcome"], "the echo is no summary, but it was asked and has used tokens"
            assert (await client.get(PATH))["context"] == before
            assert client.daemon.parts.calls.causes == {"first_call": 1, "none": 11}


async def test_the_size_of_the_next_prompt_is_foretold(tmp_path: Path) -> None:
    async with StandIn(Pace(tokens=20)) as standin, running(tmp_path, config(**settings(standin, "openai"))) as client:
        await client.say("0: " + LONG)
        for number in range(1, 12):
            foretold = (await client.get(f"{PATH}/context"))["context"]
            turn = await client.say(f"{number}: {LONG[: 40 * number]}")
            asked, replied = turn["entries"]
            factor = client.daemon.parts.learnt.of("chat").factor
            reported = replied["usage"]["input_total"]
            assert not foretold["estimated"]
            assert foretold["tokens"] + factor * asked["tokens"] == pytest.approx(reported, rel=0.05)


@pytest.mark.parametrize("known", [True, False])
async def test_no_prompt_is_above_the_hard_limit_by_the_count_of_the_provider(tmp_path: Path, known: bool) -> None:
    async with StandIn(Pace(tokens=60), cache=PrefixCache(), window=3000) as standin:
        chat = model_settings(standin.base_url, **({"window": 3000} if known else {"window": None}))
        chat["roles"]["summary"] = "offline"
        chat["agents"] = {"main": {"tools": []}}  # the descriptions of all tools would fill half of the window
        async with running(tmp_path, config(**chat)) as client:
            for number in range(80):
                length = (40, 300, 300, 2500)[number % 4]
                assert (await client.say(f"{number}: {LONG[:length]}"))["state"] == "done"
            sizes = [len(orjson.dumps(r.body)) // 4 for r in standin.requests]
            above = [size for size in sizes if size > 0.95 * 3000]
            assert len(above) <= (0 if known else 2), "an unknown window is found by one refusal"
            seen = client.daemon.parts.calls.causes
            session = await client.get(PATH)
            assert seen["compaction"] == session["compactions"] > 5
            assert set(seen) <= {"none", "first_call", "compaction", "history_edited"}


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_the_last_round_of_tool_calls_keeps_the_tools_and_so_the_cache(tmp_path: Path, provider: str) -> None:
    async with StandIn(cache=PrefixCache()) as standin:
        made = settings(standin, provider, turn={"max_tool_rounds": 1})
        async with running(tmp_path, config(**made)) as client:
            await client.say(LONG)
            assert (await client.say("call:current_time {}"))["state"] == "done"
            told = standin.requests[-1].body
            assert told["tool_choice"] in ("none", {"type": "none"})
            assert told["tools"] == standin.requests[-2].body["tools"]
            assert await causes(client) == ["first_call", None, None]


async def test_why_the_cache_broke_is_known_after_a_restart(tmp_path: Path, standin: StandIn) -> None:
    chosen = config(**model_settings(standin.base_url))
    async with running(tmp_path / "data", chosen) as client:
        await client.say("hi")
        await client.say("again", key="agent:main:web:direct:bob")
    async with running(tmp_path / "data", chosen) as client:
        ledger = client.daemon.parts.ledger
        assert await ledger.causes(UsageFilter()) == {"first_call": 2}
        assert await ledger.causes(UsageFilter(keys=lambda key: key.endswith(":bob"))) == {"first_call": 1}
        assert await ledger.causes(UsageFilter(since=datetime.now(UTC) + timedelta(hours=1))) == {}
        assert "First call" in (await client.get("/console/usage")).decode()
