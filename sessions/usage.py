"""Token usage of one model call, normalised across providers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_COUNT = 2**53
"""No call costs this many tokens; larger numbers are no counts, and cannot be added up everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one call (spec compaction.md, "Tokens").

    `input_total` includes cached reads and cache writes, whatever the provider's own convention.
    `reported` is False when the numbers are our estimate.
    """

    input_total: int = 0
    cached_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    reported: bool = True

    @property
    def context_tokens(self) -> int:
        """What the call leaves for the next prompt: its prompt and its reply; reasoning is not sent again."""
        return self.input_total + max(0, self.output - self.reasoning)

    def to_json(self) -> dict[str, Any]:
        return {
            "input_total": self.input_total,
            "cached_read": self.cached_read,
            "cache_write": self.cache_write,
            "output": self.output,
            "reasoning": self.reasoning,
            "reported": self.reported,
        }

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Usage:
        """What is left out is nothing spent. Raises ValueError for what is no count."""
        return Usage(
            input_total=_count(raw, "input_total"),
            cached_read=_count(raw, "cached_read"),
            cache_write=_count(raw, "cache_write"),
            output=_count(raw, "output"),
            reasoning=_count(raw, "reasoning"),
            reported=raw.get("reported") is not False,
        )

    def __add__(self, other: Usage) -> Usage:
        """The spend of both calls; never a context size."""
        return Usage(
            input_total=self.input_total + other.input_total,
            cached_read=self.cached_read + other.cached_read,
            cache_write=self.cache_write + other.cache_write,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            reported=self.reported and other.reported,
        )


def _count(raw: Mapping[str, Any], name: str) -> int:
    value = raw.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COUNT:
        raise ValueError(f"{name} is {value!r:.40}, which is no count of tokens")
    return value
