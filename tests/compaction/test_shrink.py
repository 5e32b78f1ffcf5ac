"""Prompts made to fit, over random histories and long tool loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from compaction.shrink import shrink, size_of
from sessions.context import AssistantMessage, Message, ToolMessage, UserMessage
from tests.sessions.builders import tool_call

if TYPE_CHECKING:
    from collections.abc import Sequence


def count(text: str) -> int:
    return len(text) // 4 + 1


def loop(rounds: Sequence[tuple[int, int]], first: int) -> list[Message]:
    """Rounds of tool calls: (how many calls at once, how long each result is)."""
    out: list[Message] = []
    for calls, length in rounds:
        made = tuple(tool_call(f"c{n}") for n in range(calls))
        out.append(AssistantMessage(text="", calls=made, tokens=2, seq=first + len(out)))
        for call in made:
            text = "r" * length
            out.append(ToolMessage(call_id=call.id, name="t", text=text, tokens=count(text), seq=first + len(out)))
    return out


def pairs_are_whole(messages: Sequence[Message]) -> bool:
    waiting: list[str] = []
    for message in messages:
        match message:
            case AssistantMessage():
                if waiting:
                    return False
                waiting = [call.id for call in message.calls]
            case ToolMessage():
                if not waiting or waiting.pop(0) != message.call_id:
                    return False
            case UserMessage():
                if waiting:
                    return False
    return not waiting


rounds = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9000)), max_size=8)
turns = st.lists(st.tuples(st.integers(1, 600), rounds), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(turns, st.integers(60, 6000))
def test_what_is_left_fits_keeps_the_newest_message_whole_and_cuts_no_pair(
    story: list[tuple[int, list[tuple[int, int]]]], budget: int
) -> None:
    messages: list[Message] = []
    for length, calls in story:
        text = "q" * length
        messages.append(UserMessage(text=text, tokens=count(text), seq=len(messages) + 1))
        messages += loop(calls, len(messages) + 1)
    newest = max(n for n, message in enumerate(messages) if isinstance(message, UserMessage))
    kept = shrink(messages, budget, count)
    assert messages[newest] in kept
    assert pairs_are_whole(kept)
    order = [message.seq for message in kept]
    assert order == sorted(order)
    last_round = 3 * (count("r" * 90) + 6)
    assert size_of(kept) <= max(budget, size_of([messages[newest]]) + last_round)


def test_a_tool_loop_behind_the_newest_message_is_shortened_oldest_result_first() -> None:
    question = UserMessage(text="do it", tokens=3, seq=1)
    messages = [question, *loop([(1, 8000)] * 3, 2)]
    kept = shrink(messages, size_of(messages) - 1000, count)
    lengths = [len(m.text) for m in kept if isinstance(m, ToolMessage)]
    assert lengths[0] < 2100
    assert lengths[1:] == [8000, 8000]


def test_a_loop_of_hundreds_of_rounds_keeps_the_question_and_the_newest_rounds() -> None:
    question = UserMessage(text="do it", tokens=3, seq=1)
    messages = [question, *loop([(2, 4000)] * 300, 2)]
    kept = shrink(messages, 3000, count)
    assert kept[0] == question
    assert [m.seq for m in kept[-3:]] == [m.seq for m in messages[-3:]]
    assert 1500 < size_of(kept) <= 3000
