"""The secret filter: keys, tokens, passwords, codes and card numbers become placeholders."""

from __future__ import annotations

import re
from dataclasses import dataclass

from memory.secret_codes import without_codes
from memory.secret_names import without_named
from memory.secret_shapes import without_cards, without_random_words, without_shapes

PLACEHOLDER = re.compile(r"\[(?:private key|webhook address|card number|password|token|key|secret|code) removed\]")


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without its secrets, and the kinds that were taken out, each once."""

    text: str
    kinds: tuple[str, ...]


def redact(text: str) -> Redacted:
    """Replaces what looks like a secret by `[<kind> removed]`. Redacting twice changes nothing more."""
    kinds: list[str] = []

    def note(kind: str) -> str:
        kinds.append(kind)
        return f"[{kind} removed]"

    text = without_cards(without_shapes(text, note), note)
    before = len(kinds)
    text = without_random_words(without_codes(without_named(text, note), note), note)
    if len(kinds) > before:  # a card's digits may have had others beside them that are gone now
        text = without_cards(text, note)
    return Redacted(text, tuple(sorted(dict.fromkeys(kinds), key="card number".__eq__)))


def only_placeholders(text: str) -> bool:
    """Whether a text without its secrets says nothing more: such texts are all the same."""
    rest, found = PLACEHOLDER.subn(" ", text)
    return found > 0 and re.search(r"\w", rest) is None
