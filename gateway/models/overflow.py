"""Recognises "the prompt is too long", whatever the provider and the language of its message."""

from __future__ import annotations

import re
from dataclasses import dataclass

STATUSES = frozenset({400, 413, 422, 500})
SMALLEST_WINDOW = 256
READ = 4000

_PHRASES = (
    "context length",
    "context window",
    "context size",
    "context limit",
    "context_length",
    "contextwindowexceeded",
    "exceed_context",
    "context overflow",
    "context the overflow",
    "maximum context",
    "max context",
    "n_ctx",
    "max_model_len",
    "maximum model length",
    "maximum prompt length",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "input too long",
    "input length",
    "prompt token count",
    "input token count",
    "input tokens exceed",
    "model token limit",
    "too many tokens",
    "tokens + `max_new_tokens`",
    "inputs must have less than",
    "maximum number of tokens",
    "reduce the length of the",
    "request_too_large",
    "超长",
    "上下文长度",
    "上下文窗口",
    "超出最大",
    "长度超过",
    "コンテキスト",
    "컨텍스트",
    "délka kontextu",
    "kontextové okno",
    "příliš dlouh",
    "kontextlänge",
    "kontextfenster",
    "longueur de contexte",
    "longueur maximale",
    "longitud de contexto",
    "contesto massima",
    "контекст",
    "ความยาวบริบท",
)
_OTHER_LIMITS = ("per minute", "per day", "tpm", "rate limit", "rate_limit", "quota", "completion tokens")
_ABOUT_OUTPUT = ("max_tokens", "max_completion_tokens", "max_output", "output tokens", "byte", "bytes", " mb", "image")

_N = r"(\d{1,3}(?:[,._\u00a0\u202f ]\d{3})+|\d+)"
_SUM = re.compile(rf"{_N} \+ `?\w* ?\d[\d,._]* ?> ?{_N}")
_ROOM = re.compile(rf"> ?{_N} - {_N}")
_GREATER = re.compile(rf"{_N}\s*(?:tokens?|токен\w*|トークン|个?\s*token)?\s*[>＞]\s*{_N}")
_TOKENS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_N}(?: tokens?)? (?:in|of) (?:the |your )?(?:messages|prompt|text input)",
        rf"{_N} input tokens",
        rf"given: {_N}",
        rf"received {_N}",
        rf"(?:resulted in|contains|requested:?|requested about|reserves?|passed|requires|got|first) {_N}",
        rf"n_prompt_tokens\W+{_N}",
        rf"(?:token count|length|request|input)(?: of)? ?\(?{_N}(?: tokens\))?\)?[^\d]{{0,12}}exceed",
        rf"\(length {_N}\)",
        rf"{_N}[^\d]{{0,40}}(?:exceeds?|is longer than|超过|超出|превышает|překra|überschreitet|dépasse|supera)",
    )
)
_WINDOW = tuple(
    re.compile(pattern)
    for pattern in (
        rf"n_ctx\W+{_N}",
        rf"range of input length should be \[\d+, ?{_N}",
        rf"must be <= {_N}",
        rf"must have less than {_N}",
        rf"cannot exceed {_N}",
        rf"(?:context|prompt|model)[\w ]* (?:length|window|size|limit)(?: is| of| was|:)?(?: only| at most)? ?\(?{_N}",
        rf"{_N}(?: tokens?)? (?:maximum|max context|context length|context window)",
        rf"(?:limit|maximum)(?: is| of|:)? {_N} ?(?:tokens|\()?",
        rf"(?:tokens allowed|allowed)[^\d]{{0,3}}{_N}",
        rf"(?:limit|length|window|size|maximum|长度|窗口|上限|délk\w*|länge|fenster|длин\w*|longueur|longitud)[^\d]{{0,24}}{_N}",
        rf"(?:exceeds?|longer than|超过|超出|превышает|překra\w*|überschreitet|dépasse|supera)[^\d]{{0,60}}{_N}",
    )
)
_LONE_NUMBER_COUNTS = re.compile(r"token|токен|トークン|토큰|โทเคน|ctx|input length")


@dataclass(frozen=True, slots=True)
class Overflow:
    """Numbers as the text gives them; None where it does not. `tokens` is the prompt, without room for the reply."""

    tokens: int | None
    window: int | None


def read_overflow(status: int, text: str) -> Overflow | None:
    """What a provider's error says about the length of the prompt; None when it is about something else."""
    if status not in STATUSES:
        return None
    lowered = text[:READ].casefold()
    if any(word in lowered for word in _OTHER_LIMITS):
        return None
    named = any(phrase in lowered for phrase in _PHRASES)
    if named:
        return _numbers(lowered)
    greater = _GREATER.search(lowered)
    if status == 500 or greater is None or any(word in lowered for word in _ABOUT_OUTPUT):
        return None
    tokens, window = (_value(part) for part in greater.groups())
    return Overflow(tokens, window) if tokens > window >= SMALLEST_WINDOW else None


def _numbers(text: str) -> Overflow:
    if found := _ROOM.search(text):
        return Overflow(_value(found[2]), _value(found[1]))
    if found := _SUM.search(text) or _GREATER.search(text):
        return Overflow(_value(found[1]), _value(found[2]))
    tokens, window = _first(_TOKENS, text), _first(_WINDOW, text)
    if tokens == window:
        tokens = None
    if tokens is None and not _LONE_NUMBER_COUNTS.search(text):
        window = None
    return Overflow(tokens, window)


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> int | None:
    for pattern in patterns:
        for found in pattern.finditer(text):
            if (value := _value(found[1])) >= SMALLEST_WINDOW:
                return value
    return None


def _value(digits: str) -> int:
    return int(re.sub(r"\D", "", digits))
