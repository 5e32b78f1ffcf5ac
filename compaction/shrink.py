"""Makes messages fit when nothing else does: long results first, then the oldest messages; the newest stays whole."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

from compaction.prompt import head_and_tail
from sessions.context import Message, ToolMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RESULT_CHARACTERS = 2000
SHORT_RESULT_CHARACTERS = 300
LEAST_RESULT_CHARACTERS = 40
OVERHEAD = 4


def size_of(messages: Sequence[Message]) -> int:
    """Tokens of messages by the counts stored with them."""
    return sum(message.tokens + OVERHEAD for message in messages)


def shrink(messages: Sequence[Message], budget: int, count: Callable[[str], int]) -> list[Message]:
    """The messages within `budget` tokens; no call is parted from its results.

    Results are shortened, oldest first; then the oldest messages go; then what the model has called behind the newest
    message of a person, which stays as it is: it alone may be more than the budget.
    """
    kept = list(messages)
    if size_of(kept) <= budget:
        return kept
    kept = _results_cut(kept, budget, RESULT_CHARACTERS, count)
    last_user = max((n for n, message in enumerate(kept) if isinstance(message, UserMessage)), default=0)
    start = _first_kept(kept, last_user, size_of(kept) - budget)
    older, newest = kept[start:last_user], kept[last_user:]
    if size_of(older) + size_of(newest) <= budget or not newest:
        return [*older, *newest]
    return _loop_cut(newest, budget, count)


def _first_kept(messages: Sequence[Message], last_user: int, excess: int) -> int:
    """How many of the oldest messages go: up to a person's message, so that nothing stands without its question."""
    start = 0
    while start < last_user and (excess > 0 or (start > 0 and not isinstance(messages[start], UserMessage))):
        excess -= messages[start].tokens + OVERHEAD
        start += 1
    return start


def _loop_cut(newest: Sequence[Message], budget: int, count: Callable[[str], int]) -> list[Message]:
    """A person's message and the tool calls behind it: shorter results, then fewer rounds, then the last ones bare."""
    kept = _results_cut(newest, budget, SHORT_RESULT_CHARACTERS, count)
    question = kept[:1] if isinstance(kept[0], UserMessage) else []
    rounds = _rounds(kept[len(question) :])
    size = size_of(kept)
    gone = 0
    while size > budget and gone < len(rounds) - 1:
        size -= size_of(rounds[gone])
        gone += 1
    left = [*question, *itertools.chain.from_iterable(rounds[gone:])]
    return _results_cut(left, budget, LEAST_RESULT_CHARACTERS, count)


def _rounds(messages: Sequence[Message]) -> list[list[Message]]:
    """Each reply of the model with the results of its calls."""
    rounds: list[list[Message]] = []
    for message in messages:
        if isinstance(message, ToolMessage) and rounds:
            rounds[-1].append(message)
        else:
            rounds.append([message])
    return rounds


def _results_cut(
    messages: Sequence[Message], budget: int, characters: int, count: Callable[[str], int]
) -> list[Message]:
    """Results longer than `characters` lose their middle, oldest first, until the whole fits."""
    kept = list(messages)
    excess = size_of(kept) - budget
    for position, message in enumerate(kept):
        if excess <= 0:
            break
        if isinstance(message, ToolMessage) and len(message.text) > characters:
            text = head_and_tail(message.text, characters)
            shorter = dataclasses.replace(message, text=text, tokens=count(text))
            if shorter.tokens < message.tokens:
                excess -= message.tokens - shorter.tokens
                kept[position] = shorter
    return kept
