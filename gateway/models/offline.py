"""The built-in model: no key, no network. It answers from what it finds in the conversation, and says so."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import TYPE_CHECKING

from gateway.models.base import Finished, TextDelta
from gateway.models.estimate import estimate
from sessions.context import ToolMessage, UserMessage
from sessions.entries import ToolCall

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from compaction.layout import Prompt
    from gateway.models.base import ModelEvent, ModelRequest

WHO = "I am sessiond's built-in offline model: no language model is behind me, I only find what was said here."
HINT = "For real answers set OPENAI_API_KEY or ANTHROPIC_API_KEY, start Ollama, or run `sessiond setup`."
WINDOW = 32_000
PIECE = 40
MAX_QUOTES = 3
MAX_QUOTE_CHARACTERS = 200
_WORD = re.compile(r"[^\W\d_]{3,}|\d+")
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")
_WITHOUT_SPACES = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_ASKS_TIME = re.compile(
    r"\b(what|which|tell|current)\b.{0,20}\b(time|date|day)\b|\btime is it\b|\bkolik je hodin\b|\bkolikátého\b"
    r"|\bwie spät\b|\bquelle heure\b|\bqué hora\b|กี่โมง|วันที่เท่าไ|几点|几号|何時|何日",
    re.IGNORECASE,
)


class OfflineModel:
    """Deterministic: the same prompt gives the same reply. The one tool it calls is `current_time`, when asked."""

    def __init__(self, name: str = "offline", *, count: Callable[[str], int] = lambda text: len(text) // 4 + 1) -> None:
        self.name = name
        self.model = "offline"
        self.window: int | None = WINDOW
        self._count = count

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        prompt = request.prompt
        calls = _time_call(prompt)
        text = "" if calls else _reply(prompt)
        for start in range(0, len(text), PIECE):
            yield TextDelta(text[start : start + PIECE])
        usage = estimate(prompt, text, self._count)
        finish = "tool_calls" if calls else "stop"
        yield Finished(text=text, calls=calls, finish=finish, usage=usage, model=self.model, name=self.name)

    async def close(self) -> None:
        """Nothing is open."""


def _time_call(prompt: Prompt) -> tuple[ToolCall, ...]:
    newest = prompt.messages[-1] if prompt.messages else None
    offered = any(tool.name == "current_time" for tool in prompt.tools)
    if not offered or not isinstance(newest, UserMessage) or not _ASKS_TIME.search(newest.text):
        return ()
    return (ToolCall(id=f"call_{len(prompt.messages)}", name="current_time", arguments="{}"),)


def _reply(prompt: Prompt) -> str:
    messages = prompt.messages
    if messages and isinstance(messages[-1], ToolMessage):
        return f"The tool {messages[-1].name} says: {messages[-1].text}"
    last = max((n for n, m in enumerate(messages) if isinstance(m, UserMessage)), default=-1)
    question = messages[last].text if last >= 0 else ""
    said = [m.text for m in messages[: max(last, 0)] if isinstance(m, UserMessage)]
    quotes = _quotes(question, [prompt.summary or "", *said, prompt.trailing or ""])
    if quotes:
        found = "\n".join(f"- “{quote}”" for quote in quotes)
        return f"This is what was said about it:\n{found}\n\n{WHO}"
    opening = f"I read your message: “{_shortened(question)}”. " if question.strip() else ""
    return f"{opening}{WHO} There is nothing about it yet. {HINT}"


def _quotes(question: str, texts: Sequence[str]) -> list[str]:
    """The sentences closest to the question, rare words first; among equals the newest. Questions are no answers."""
    sentences = [
        s.strip() for text in texts for s in _SENTENCE.findall(text) if s.strip() and s.strip()[-1] not in "?？"
    ]
    words = [_words(sentence) for sentence in sentences]
    wanted = _words(question)
    weights = {w: math.log(1 + len(words) / n) for w in wanted if (n := sum(w in each for each in words))}
    scored = [
        (sum(weights[word] for word in wanted & own), position)
        for position, own in enumerate(words)
        if wanted & own and sentences[position] != question.strip()
    ]
    best = max((score for score, _ in scored), default=0.0)
    scored = sorted((item for item in scored if item[0] >= best / 2), reverse=True)
    return list(dict.fromkeys(_shortened(sentences[position]) for _, position in scored))[:MAX_QUOTES]


def _words(text: str) -> set[str]:
    """Words without case and accents; pairs of characters where a script writes no spaces."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    folded = "".join(c for c in decomposed if not "\u0300" <= c <= "\u036f")
    pairs = {run[n : n + 2] for run in _WITHOUT_SPACES.findall(folded) for n in range(max(1, len(run) - 1))}
    return pairs | set(_WORD.findall(_WITHOUT_SPACES.sub(" ", folded)))


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_QUOTE_CHARACTERS else line[: MAX_QUOTE_CHARACTERS - 1] + "…"
