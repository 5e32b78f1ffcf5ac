"""Counters for Prometheus: no keys, texts or people in their labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from gateway.turns import Turns
    from sessions.index import Index


class Metrics:
    """The registry of one daemon."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "sessiond_requests", "HTTP requests", ["method", "route", "status"], registry=self.registry
        )
        self.latency = Histogram(
            "sessiond_request_seconds", "Time until the answer was complete", ["route"], registry=self.registry
        )
        self._turns = Gauge("sessiond_turns_running", "Turns that are being answered", registry=self.registry)
        self._sessions = Gauge("sessiond_sessions", "Sessions in the index", ["state"], registry=self.registry)

    def watch(self, turns: Turns, index: Index) -> None:
        """Reads these when Prometheus asks."""
        self._turns.set_function(lambda: turns.running)
        for state in ("active", "former", "archived"):
            self._sessions.labels(state).set_function(lambda state=state: index.count(state))

    def render(self) -> bytes:
        return generate_latest(self.registry)
