"""Counters for Prometheus: no keys, texts or people in their labels."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import Metric

    from gateway.calls import CallWatch
    from gateway.jobs.wiring import JobParts
    from gateway.turns import Turns
    from sessions.index import Index

METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class RequestTally(Collector):
    """Counts and times of requests, in plain numbers: updating them costs next to nothing."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], int] = {}
        self._times: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def note(self, method: str, route: str, status: int, took_s: float) -> None:
        """Counts one request. `route` is a template; a method of the client's own invention is counted as `other`."""
        key = (method if method in METHODS else "other", route, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        if route not in self._times:
            self._times[route] = [0] * (len(SECONDS) + 1)
        self._times[route][bisect_left(SECONDS, took_s)] += 1
        self._sums[route] = self._sums.get(route, 0.0) + took_s

    def collect(self) -> Iterator[Metric]:
        counts = CounterMetricFamily("sessiond_requests", "HTTP requests", labels=["method", "route", "status"])
        for (method, route, status), count in self._counts.items():
            counts.add_metric([method, route, str(status)], count)
        yield counts
        times = HistogramMetricFamily("sessiond_request_seconds", "Time until the answer was ready", labels=["route"])
        limits = [*map(str, SECONDS), "+Inf"]
        for route, numbers in self._times.items():
            times.add_metric([route], list(zip(limits, accumulate(numbers), strict=True)), self._sums[route])
        yield times


class CacheTally(Collector):
    """Model calls by why their prompt was not read from the provider's cache, and the tokens that were."""

    def __init__(self, calls: CallWatch) -> None:
        self._calls = calls

    def collect(self) -> Iterator[Metric]:
        causes = CounterMetricFamily(
            "sessiond_cache_calls", "Model calls by why the prompt cache broke; none: it did not", labels=["cause"]
        )
        for cause, count in self._calls.causes.items():
            causes.add_metric([cause], count)
        yield causes
        tokens = CounterMetricFamily(
            "sessiond_prompt_tokens",
            "Prompt tokens: input in all, shared with the call before, cached as reported",
            labels=["kind"],
        )
        for kind, count in self._calls.tokens.items():
            tokens.add_metric([kind], count)
        yield tokens


class JobTally(Collector):
    """Runs by how they ended, attempts to deliver by what came of them, and runs that are open."""

    def __init__(self, jobs: JobParts) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        runs = CounterMetricFamily("sessiond_runs", "Runs of jobs and webhooks that ended", labels=["kind", "status"])
        for (kind, status), count in self._jobs.telling.runs.items():
            runs.add_metric([kind, status], count)
        yield runs
        tries = CounterMetricFamily(
            "sessiond_deliveries", "Attempts to deliver, by what came of them", labels=["outcome"]
        )
        for outcome, count in self._jobs.telling.deliveries.items():
            tries.add_metric([outcome], count)
        yield tries
        opened = GaugeMetricFamily("sessiond_runs_open", "Runs of jobs and webhooks that are open", labels=["state"])
        opened.add_metric(["going"], self._jobs.runs.going)
        opened.add_metric(["waiting"], self._jobs.runs.waiting)
        yield opened


class Metrics:
    """The registry of one daemon."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.requests = RequestTally()
        self.registry.register(self.requests)
        self._turns = Gauge("sessiond_turns_running", "Turns that are being answered", registry=self.registry)
        self._sessions = Gauge("sessiond_sessions", "Sessions in the index", ["state"], registry=self.registry)
        self._streams = Gauge("sessiond_streams_open", "Event streams being read", registry=self.registry)

    def watch_streams(self, count: Callable[[], int]) -> None:
        self._streams.set_function(count)

    def watch(self, turns: Turns, index: Index, calls: CallWatch, jobs: JobParts) -> None:
        """Reads these when Prometheus asks."""
        self.registry.register(CacheTally(calls))
        self.registry.register(JobTally(jobs))
        self._turns.set_function(lambda: turns.running)
        for state in ("active", "former", "archived"):
            self._sessions.labels(state).set_function(lambda state=state: index.count(state))

    def render(self) -> bytes:
        return generate_latest(self.registry)
