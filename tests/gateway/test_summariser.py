"""How models are asked for summaries: bounded calls, one repair, and nothing but what holds."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

from compaction.layout import Prompt, ToolSpec
from compaction.plan import Plan, plan_compaction
from compaction.policy import CompactionPolicy
from compaction.summary import render_summary
from gateway.clock import ManualClock
from gateway.models.base import ContextOverflow, Finished
from gateway.models.scripted import BAD, ScriptedSummariser, oracle_summary, shown_in
from gateway.summariser import Summariser, SummaryFailed, SummaryJob
from sessions.context import UserMessage, render_messages
from sessions.entries import turn_id
from tests.sessions.builders import AT, SESSION, assistant, user

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from gateway.models.base import ChatModel, ModelEvent, ModelRequest
    from sessions.entries import Entry, JsonObject

POLICY = CompactionPolicy()


def count(text: str) -> int:
    return len(text) // 4 + 1


class Recording:
    """A model that answers by the oracle, after the replies it is given; keeps what it was asked."""

    def __init__(self, *replies: str | Exception, window: int = 32_000) -> None:
        self.name = self.model = "recording"
        self.window: int | None = window
        self.requests: list[ModelRequest] = []
        self._replies = list(replies)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        reply = self._replies.pop(0) if self._replies else json.dumps(oracle_summary(shown_in(request.prompt)))
        if isinstance(reply, Exception):
            raise reply
        yield Finished(text=reply, calls=(), finish="stop", usage=None, model=self.model)

    async def close(self) -> None:
        """Nothing is open."""


def history(turns: int, size: int = 60) -> list[Entry]:
    entries: list[Entry] = []
    for n in range(turns):
        turn = turn_id(SESSION, 2 * n + 1)
        text = "The ticket is QX7-4431-ZK." if n == 0 else f"Turn {n} was about bees. " + "honey " * (size // 6)
        entries += [user(text, 2 * n + 1, turn), assistant("Yes, bees.", 2 * n + 2, turn)]
    return entries


def planned(entries: list[Entry], window: int = 4000) -> Plan:
    plan = plan_compaction(entries, POLICY, window)
    assert isinstance(plan, Plan)
    return plan


def job(model: ChatModel, entries: list[Entry], conversation: Prompt | None = None) -> SummaryJob:
    return SummaryJob(
        plan=planned(entries), generation=2, model=model, window=model.window or 0, conversation=conversation
    )


async def written(model: ChatModel, entries: list[Entry], conversation: Prompt | None = None) -> JsonObject:
    summariser = Summariser(count=count, clock=ManualClock(AT), policy=POLICY)
    return await summariser.write(job(model, entries, conversation))


def shown_so_far(entries: list[Entry]) -> Prompt:
    tools = (ToolSpec(name="t", description="d"),)
    return Prompt(system="S", tools=tools, messages=tuple(render_messages(entries)), summary="before", trailing=None)


async def test_behind_the_sessions_own_prompt_its_bytes_come_first_and_the_instruction_last() -> None:
    entries = history(60)
    late = [*entries, user("asked meanwhile", 121, turn_id(SESSION, 121))]
    conversation = shown_so_far(late)
    model = Recording()
    await written(model, late, conversation)
    (request,) = model.requests
    asked = request.prompt
    assert (asked.system, asked.tools, asked.summary) == (conversation.system, conversation.tools, "before")
    assert asked.messages[:-1] == conversation.messages[:-1]
    assert isinstance(asked.messages[-1], UserMessage)
    assert "Do not answer the conversation" in asked.messages[-1].text
    assert request.schema is None, "a schema would stand before the prefix"


async def test_a_reply_in_place_that_is_none_is_repaired_over_data_with_a_schema() -> None:
    entries = history(60)
    model = Recording("Of course!")
    summary = await written(model, entries, shown_so_far(entries))
    assert "QX7-4431-ZK" in summary["identifiers"]
    repair = model.requests[1]
    assert repair.schema is not None
    assert not repair.prompt.tools
    assert "was not accepted: there is no JSON object" in repair.prompt.messages[-1].text
    assert "<data" in repair.prompt.messages[0].text


async def test_one_repair_then_it_has_failed() -> None:
    model = Recording("no", "no")
    with pytest.raises(SummaryFailed, match="no usable summary"):
        await written(model, history(60))
    assert len(model.requests) == 2


async def test_a_history_larger_than_the_summarisers_window_is_read_in_pieces_and_merged() -> None:
    entries = history(120, 400)
    model = Recording(window=2000)
    summary = await written(model, entries)
    sizes = [count(request.prompt.messages[0].text) for request in model.requests]
    assert len(sizes) > 8
    assert max(sizes) < 1700
    texts = "\n".join(request.prompt.messages[0].text for request in model.requests)
    assert all(f"Turn {n} was about bees." in texts for n in range(1, 120))
    assert summary["facts"] == ["The ticket is QX7-4431-ZK."]


async def test_of_a_history_without_end_the_oldest_part_is_taken_by_rules() -> None:
    entries = history(3000, 400)
    model = Recording(window=2000)
    summary = await written(model, entries)
    assert POLICY.max_chunks < len(model.requests) < 2 * POLICY.max_chunks
    assert "QX7-4431-ZK" in json.dumps(summary)


async def test_a_provider_that_finds_the_input_too_long_gets_smaller_pieces() -> None:
    model = Recording(ContextOverflow("too long"), window=4000)
    await written(model, history(100, 200))
    first, second, *_ = (count(request.prompt.messages[0].text) for request in model.requests)
    assert second < 0.7 * first


async def test_one_text_of_any_length_becomes_many_calls_of_the_same_bound() -> None:
    entries = history(40)
    entries[4] = user("word " * 20_000, 5, turn_id(SESSION, 5))
    model = Recording(window=2000)
    await written(model, entries)
    assert max(count(request.prompt.messages[0].text) for request in model.requests) < 1700


@pytest.mark.parametrize("behaviour", [one for one in BAD if one != "injected"])
async def test_every_bad_summariser_fails_within_the_time_it_has(behaviour: str) -> None:
    clock = ManualClock(AT)
    summariser = Summariser(count=count, clock=clock, policy=POLICY)
    model = ScriptedSummariser(behaviour, clock)  # pyright: ignore[reportArgumentType]
    task = asyncio.create_task(summariser.write(job(model, history(60))))
    for _ in range(200):
        await clock.advance(POLICY.timeout_s)
        await asyncio.sleep(0.001)
        if task.done():
            break
    with pytest.raises(SummaryFailed):
        task.result()
    assert 1 <= model.calls <= 2


def test_a_summary_by_rules_is_shorter_than_what_it_replaces_or_there_is_none() -> None:
    summariser = Summariser(count=count, clock=ManualClock(AT), policy=POLICY)
    plan = planned(history(60))
    assert count(render_summary(summariser.by_rules(plan, 2))) <= plan.summary_limit < plan.replaced
    short = dataclasses.replace(plan, replaced=60, summary_limit=200)
    with pytest.raises(SummaryFailed, match="nothing to gain"):
        summariser.by_rules(short, 2)
