"""The secret filter: keys, tokens, passwords, codes and card numbers become placeholders."""

from __future__ import annotations

from dataclasses import dataclass

from memory.secret_names import without_named
from memory.secret_shapes import without_cards, without_random_words, without_shapes


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
    text = without_random_words(without_named(text, note), note)
    if len(kinds) > before:  # a card's digits may have had others beside them that are gone now
        text = without_cards(text, note)
    return Redacted(text, tuple(sorted(dict.fromkeys(kinds), key="card number".__eq__)))
