"""Makes messages fit when nothing else does: long results first, then the oldest messages; the newest stays whole."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from compaction.prompt import head_and_tail
from sessions.context import Message, ToolMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RESULT_CHARACTERS = 2000
OVERHEAD = 4


def size_of(messages: Sequence[Message]) -> int:
    """Tokens of messages by the counts stored with them."""
    return sum(message.tokens + OVERHEAD for message in messages)


def shrink(messages: Sequence[Message], budget: int, count: Callable[[str], int]) -> list[Message]:
    """The messages within `budget` tokens, as far as the newest message of a person allows it; no pair is cut."""
    kept = list(messages)
    if size_of(kept) <= budget:
        return kept
    kept = [_shortened(message, count) for message in kept]
    last_user = max((n for n, message in enumerate(kept) if isinstance(message, UserMessage)), default=0)
    start, size = 0, size_of(kept)
    while start < last_user and (size > budget or (start > 0 and not isinstance(kept[start], UserMessage))):
        size -= size_of(kept[start : start + 1])
        start += 1
    return kept[start:]


def _shortened(message: Message, count: Callable[[str], int]) -> Message:
    if not isinstance(message, ToolMessage) or len(message.text) <= RESULT_CHARACTERS:
        return message
    text = head_and_tail(message.text, RESULT_CHARACTERS)
    return dataclasses.replace(message, text=text, tokens=count(text))
