"""Lower case as patterns that ignore case take it, so that what they find can be looked up."""

from __future__ import annotations

LOOKALIKES = (("\u0130", "i"), ("\u0131", "i"), ("\u017f", "s"), ("\u1c82", "\u043e"))
"""Where `re.IGNORECASE` takes more letters for the same than `str.lower` does: İ, ı, ſ, and an old о."""


def lowered(text: str) -> str:
    """In lower case, and of the same length."""
    if text.isascii():
        return text.lower()
    for one, other in LOOKALIKES:
        text = text.replace(one, other)
    return text.lower()
