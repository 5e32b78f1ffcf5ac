"""Recognises "the prompt is too long", whatever the provider and the language of its message."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PHRASES = (
    "context length",
    "context window",
    "context size",
    "context_length_exceeded",
    "maximum context",
    "prompt is too long",
    "input is too long",
    "input token count",
    "exceeds the maximum number of tokens",
    "exceeds the available context",
    "exceed context",
    "too many tokens",
    "token limit",
    "max_model_len",
    "maximum prompt length",
    "reduce the length of the messages",
    "request too large",
    "n_ctx",
    "上下文长度",
    "超出最大",
    "长度超过",
    "コンテキスト長",
    "délka kontextu",
    "příliš dlouh",
    "kontextlänge",
    "longueur de contexte",
    "longitud de contexto",
    "контекст",
)
_NUMBER = r"(\d{1,3}(?:[,._  ]\d{3})+|\d{3,9})"
_GREATER = re.compile(_NUMBER + r"\s*(?:tokens?\s*)?(?:>|＞|exceeds?\b[^\d]{0,60}|≥)\s*" + _NUMBER)
_ANY = re.compile(_NUMBER)
_ABOUT_OUTPUT = ("max_tokens", "max_completion_tokens", "max_output", "rate limit", "per minute", "tpm", "quota")
STATUSES = frozenset({400, 413, 422, 500})


@dataclass(frozen=True, slots=True)
class Overflow:
    """Numbers as the text gives them; None where it does not."""

    tokens: int | None
    window: int | None


def read_overflow(status: int | None, text: str) -> Overflow | None:
    """What a provider's error says about the length of the prompt; None when it is about something else."""
    if status is not None and status not in STATUSES:
        return None
    lowered = text.casefold()
    named = any(phrase in lowered for phrase in _PHRASES)
    greater = _GREATER.search(lowered)
    if not named and greater is None:
        return None
    if not named and any(word in lowered for word in _ABOUT_OUTPUT):
        return None
    if greater is not None:
        first, second = (_value(part) for part in greater.groups())
        return Overflow(max(first, second), min(first, second))
    numbers = sorted({value for part in _ANY.findall(lowered) if 256 <= (value := _value(part)) < 20_000_000})
    if len(numbers) >= 2:
        return Overflow(numbers[-1], numbers[-2] if len(numbers) == 2 else _window_of(lowered, numbers))
    return Overflow(None, numbers[0] if numbers else None)


def _window_of(text: str, numbers: list[int]) -> int:
    """The number next to a word for the limit, else the second largest."""
    match = re.search(r"(?:maximum|limit|window|only|max)[^\d]{0,40}" + _NUMBER, text)
    found = _value(match[1]) if match else None
    return found if found in numbers[:-1] else numbers[-2]


def _value(digits: str) -> int:
    return int(re.sub(r"\D", "", digits))
