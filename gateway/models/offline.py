"""The built-in model: no key, no network. It answers from what it finds in the conversation, and says so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gateway.models.base import Finished, TextDelta
from sessions.context import ToolMessage, UserMessage
from sessions.entries import ToolCall
from sessions.usage import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from gateway.models.base import ModelEvent, ModelRequest
    from sessions.context import Message

INTRODUCTION = "I am sessiond's built-in offline model: I can only look things up in this conversation."
HINT = "Set OPENAI_API_KEY or ANTHROPIC_API_KEY, start Ollama, or run `sessiond setup` to use a real model."
WINDOW = 32_000
PIECE = 40
MAX_QUOTES = 3
_WORD = re.compile(r"\w{3,}")
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]?")
_TIME_WORDS = frozenset("time date today clock hodin kolik datum dnes วันนี้ เวลา 时间 今天".split())


class OfflineModel:
    """Deterministic: the same prompt gives the same reply."""

    def __init__(self, name: str = "offline", *, count: Callable[[str], int] = lambda text: len(text) // 4 + 1) -> None:
        self.name = name
        self.model = "offline"
        self.window: int | None = WINDOW
        self._count = count

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        messages = request.prompt.messages
        calls = _time_call(request)
        text = "" if calls else _reply(messages, request.prompt.summary)
        for start in range(0, len(text), PIECE):
            yield TextDelta(text[start : start + PIECE])
        read = sum(self._count(message.text) for message in messages) + self._count(request.prompt.system)
        usage = Usage(input_total=read, output=self._count(text), reported=False)
        yield Finished(text=text, calls=calls, finish="tool_calls" if calls else "stop", usage=usage, model=self.model)

    async def close(self) -> None:
        """Nothing is open."""


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)}


def _time_call(request: ModelRequest) -> tuple[ToolCall, ...]:
    """One call of `current_time` when the newest message asks for it and has no answer yet."""
    messages = request.prompt.messages
    if not messages or not isinstance(messages[-1], UserMessage):
        return ()
    offered = any(tool.name == "current_time" for tool in request.prompt.tools)
    if not offered or "?" not in messages[-1].text or not _words(messages[-1].text) & _TIME_WORDS:
        return ()
    return (ToolCall(id=f"call_{len(messages)}", name="current_time", arguments="{}"),)


def _reply(messages: Sequence[Message], summary: str | None) -> str:
    question = next((m.text for m in reversed(messages) if isinstance(m, UserMessage)), "")
    if messages and isinstance(messages[-1], ToolMessage):
        return f"The tool says: {messages[-1].text}"
    last = max((n for n, m in enumerate(messages) if isinstance(m, UserMessage)), default=0)
    quotes = _quotes(question, messages[:last], summary)
    if quotes:
        found = "\n".join(f"- “{quote}”" for quote in quotes)
        return f"{INTRODUCTION} This is what I found about it:\n{found}"
    opening = f"You wrote: “{_shortened(question)}”. " if question else ""
    return f"{opening}{INTRODUCTION} There is nothing about it here yet. {HINT}"


def _quotes(question: str, earlier: Sequence[Message], summary: str | None) -> list[str]:
    """The sentences of people that share most words with the question, newest first among equals."""
    wanted = _words(question)
    texts = [m.text for m in earlier if isinstance(m, UserMessage)] + ([summary] if summary else [])
    scored: list[tuple[int, int, str]] = []
    for position, text in enumerate(texts):
        for sentence in _SENTENCE.findall(text):
            shared = len(wanted & _words(sentence))
            if shared:
                scored.append((shared, position, sentence.strip()))
    scored.sort(key=lambda item: item[:2], reverse=True)
    return list(dict.fromkeys(_shortened(sentence) for _, _, sentence in scored))[:MAX_QUOTES]


def _shortened(text: str, limit: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
