"""How much one token may ask for: requests a minute, and event streams at the same time."""

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
        level = min(self._burst, level + max(0.0, now - at) * self._rate)
        if level >= 1:
            self._buckets[name] = (level - 1, now)
            return 0
        self._buckets[name] = (level, now)
        return max(1, math.ceil((1 - level) / self._rate))


class StreamLimit:
    """Event streams that each caller holds open."""

    def __init__(self, per_caller: int) -> None:
        self.per_caller = per_caller
        self.total = 0
        self._open: dict[str, int] = {}

    def enter(self, name: str) -> bool:
        """Counts one more stream; False when the caller has as many as allowed."""
        count = self._open.get(name, 0)
        if count >= self.per_caller:
            return False
        self._open[name] = count + 1
        self.total += 1
        return True

    def leave(self, name: str) -> None:
        count = self._open[name] - 1
        self.total -= 1
        if count:
            self._open[name] = count
        else:
            del self._open[name]
