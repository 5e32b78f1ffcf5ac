"""How our own count of tokens becomes a model's: a factor and a window, learnt from what providers report."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sessions.entries import JsonObject

LEAST, MOST = 0.5, 5.0
WEIGHT = 0.2
FULL_WEIGHT_TOKENS = 1000
"""A prompt shorter than this teaches less: in a short one the provider's own words around ours are most of it."""


def start_factor(provider: str, *, original: bool) -> float:
    """Before anything is learnt. `original`: the provider's own servers, not one that speaks its API."""
    if provider == "offline" or (provider == "openai" and original):
        return 1.0
    return 1.5 if provider == "anthropic" else 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """What is known of one model. `factor`: its tokens for one of ours. `window`: as its errors tell; None: unknown.

    `caches`: it has reported tokens read from a cache, so that none reported means none read.
    """

    factor: float
    window: int | None = None
    caches: bool = False

    def after_report(self, *, counted: int, reported: int, cached: int) -> Learnt:
        """A prompt we counted, and what the provider made of it. One above the learnt window proves that wrong.

        A report no tokenizer explains teaches nothing: some servers cut a prompt in silence, or report its end only.
        """
        weight = WEIGHT * min(1.0, counted / FULL_WEIGHT_TOKENS) if is_plausible(counted, reported) else 0.0
        return Learnt(
            factor=clamped(self.factor + weight * (reported / max(1, counted) - self.factor)),
            window=None if self.window is not None and reported > self.window else self.window,
            caches=self.caches or cached > 0,
        )

    def after_overflow(self, *, counted: int, tokens: int | None, window: int | None, known: int | None) -> Learnt:
        """A prompt that was refused as too long. `tokens` and `window` as the text gives them, `known` as we thought.

        The numbers of a refusal are certain, so they count at once. Without the prompt's own number it is at least as
        long as the window.
        """
        window = window or self.window
        limit = window or known
        least = tokens or limit
        if counted <= 0 or least is None:
            return dataclasses.replace(self, window=window)
        seen = least / counted
        return dataclasses.replace(self, factor=clamped(seen if tokens else max(self.factor, seen)), window=window)

    def to_json(self) -> JsonObject:
        return {"factor": round(self.factor, 4), "window": self.window, "caches": self.caches}

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Learnt:
        """Raises KeyError, TypeError or ValueError for what is none."""
        window = raw.get("window")
        return Learnt(
            factor=clamped(float(raw["factor"])),
            window=None if window is None else max(1, int(window)),
            caches=raw.get("caches") is True,
        )


def is_plausible(counted: int, reported: int) -> bool:
    """Whether a tokenizer could make `reported` tokens of what is `counted` by ours."""
    return LEAST * counted <= reported <= MOST * counted


def clamped(factor: float) -> float:
    """Raises ValueError for what is no number."""
    if factor != factor:
        raise ValueError("a factor must be a number")
    return min(MOST, max(LEAST, factor))


def window_of(known: int | None, learnt: int | None) -> int | None:
    """The window to reckon with: a provider that has refused less than the settings or the list say is right."""
    if known is None or learnt is None:
        return known or learnt
    return min(known, learnt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Size of the next prompt. `measured` of its tokens were reported by the provider; 0: all is our estimate.

    `at_most` is what a limit is held by: a factor below 1 was learnt from long prompts, and says little of the few
    messages that came after the measured part.
    """

    tokens: int
    at_most: int
    measured: int
    window: int | None

    @property
    def estimated(self) -> bool:
        return self.measured == 0

    @property
    def share(self) -> float | None:
        """None while the window is not known."""
        return None if not self.window else round(self.tokens / self.window, 4)


def next_prompt(*, measured: int, tail: int, factor: float, window: int | None) -> Reading:
    """`measured`: the provider's tokens of an unchanged prefix, 0 for none; `tail`: our count of what came after."""
    careful = max(factor, 1.0) if measured else factor
    return Reading(
        tokens=measured + round(factor * tail),
        at_most=measured + round(careful * tail),
        measured=measured,
        window=window,
    )
