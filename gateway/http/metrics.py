"""Counters for Prometheus: no keys, texts or people in their labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.turns import Turns
    from sessions.index import Index


METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


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

        self._noted: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._streams = Gauge("sessiond_streams_open", "Event streams being read", registry=self.registry)

    def note(self, method: str, route: str, status: int, took_s: float) -> None:
        """Counts one request. `route` is a template; a method of the client's own invention is counted as `other`."""
        method = method if method in METHODS else "other"
        noted = self._noted.get((method, route, status))
        if noted is None:
            noted = self.requests.labels(method, route, status), self.latency.labels(route)
            self._noted[method, route, status] = noted
        count, latency = noted
        count.inc()
        latency.observe(took_s)

    def watch_streams(self, count: Callable[[], int]) -> None:
        self._streams.set_function(count)

    def watch(self, turns: Turns, index: Index) -> None:
        """Reads these when Prometheus asks."""
        self._turns.set_function(lambda: turns.running)
        for state in ("active", "former", "archived"):
            self._sessions.labels(state).set_function(lambda state=state: index.count(state))

    def render(self) -> bytes:
        return generate_latest(self.registry)
