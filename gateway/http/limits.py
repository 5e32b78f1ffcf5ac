"""How many requests a token may make: a bucket that fills with time."""

from __future__ import annotations

import math


class RateLimit:
    """One bucket for each caller's name. Time is an argument, in seconds."""

    def __init__(self, per_minute: int) -> None:
        self._rate = per_minute / 60
        self._burst = max(1.0, per_minute / 6)
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait_s(self, name: str, now: float) -> int:
        """0 when the request may go on; else the seconds after which it may be tried again."""
        level, at = self._buckets.get(name, (self._burst, now))
        level = min(self._burst, level + (now - at) * self._rate)
        if level >= 1:
            self._buckets[name] = (level - 1, now)
            return 0
        self._buckets[name] = (level, now)
        return max(1, math.ceil((1 - level) / self._rate))
