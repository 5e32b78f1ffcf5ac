"""Usage where a provider reports none: our own count, marked as an estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from sessions.context import AssistantMessage
from sessions.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from compaction.layout import Prompt
    from sessions.context import Message

PER_MESSAGE = 4


def estimate(prompt: Prompt, reply: str, count: Callable[[str], int]) -> Usage:
    """What the prompt and the reply come to by our own tokenizer."""
    texts = [prompt.system, prompt.summary or "", prompt.trailing or ""]
    tools = [f"{tool.name} {tool.description} {orjson.dumps(dict(tool.parameters)).decode()}" for tool in prompt.tools]
    history = sum((message.tokens or _tokens(message, count)) + PER_MESSAGE for message in prompt.messages)
    sent = history + sum(count(text) for text in (*texts, *tools) if text)
    return Usage(input_total=sent, output=count(reply), reported=False)


def _tokens(message: Message, count: Callable[[str], int]) -> int:
    calls = message.calls if isinstance(message, AssistantMessage) else ()
    return count(message.text) + sum(count(call.name + call.arguments) for call in calls)
