"""Token usage of one model call, normalised across providers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        return Usage(
            input_total=int(raw.get("input_total", 0)),
            cached_read=int(raw.get("cached_read", 0)),
            cache_write=int(raw.get("cache_write", 0)),
            output=int(raw.get("output", 0)),
            reasoning=int(raw.get("reasoning", 0)),
            reported=bool(raw.get("reported", True)),
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
