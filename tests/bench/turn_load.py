"""Rows 1 to 3: what a turn costs over calling the model directly, alone and with 32 sessions."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import aiohttp
import orjson

from tests.bench.figures import Figure, figure, quantile

if TYPE_CHECKING:
    from pathlib import Path

SESSIONS = 32
TEXT = "Where is the best place to buy bread in Brno on a Sunday, and when does it open?"
LINE = b"x" * 400 + b"\n"
JSON = {"Content-Type": "application/json"}
KEEP = aiohttp.ClientTimeout(total=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where the three servers listen."""

    model: str
    proxy: str
    daemon: str


def sync_ms(folder: Path, count: int) -> list[float]:
    """Milliseconds of an append of one line and its fdatasync, each by itself."""
    target = os.open(folder / "sync-probe", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    found: list[float] = []
    try:
        for _ in range(count):
            started = time.perf_counter()
            os.write(target, LINE)
            os.fdatasync(target)
            found.append((time.perf_counter() - started) * 1e3)
    finally:
        os.close(target)
    return found


class Load:
    """A client that counts on whole answers: one that is not 200, or empty, ends the run."""

    def __init__(self, client: aiohttp.ClientSession, at: Addresses) -> None:
        self._client = client
        self._at = at
        self._completion = orjson.dumps(
            {
                "model": "chat-model",
                "messages": [{"role": "user", "content": TEXT}],
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )

    async def direct(self) -> float:
        return await self._post(f"{self._at.model}/v1/chat/completions", self._completion)

    async def proxied(self) -> float:
        return await self._post(f"{self._at.proxy}/v1/chat/completions", self._completion)

    async def turn(self, key: str) -> float:
        return await self._post(f"{self._at.daemon}/v1/sessions/{key}/messages", orjson.dumps({"text": TEXT}))

    async def _post(self, url: str, body: bytes) -> float:
        """Milliseconds until the whole answer is there."""
        started = time.perf_counter()
        async with self._client.post(url, data=body, headers=JSON, timeout=KEEP) as response:
            content = await response.read()
            took_ms = (time.perf_counter() - started) * 1e3
            if response.status != 200 or b"word" not in content:
                raise RuntimeError(f"{url} answered {response.status}: {content[:300]!r}")
        return took_ms

    async def direct_first(self) -> float:
        return await self._first(f"{self._at.model}/v1/chat/completions", self._completion)

    async def turn_first(self, key: str) -> float:
        url = f"{self._at.daemon}/v1/sessions/{key}/messages"
        return await self._first(url, orjson.dumps({"text": TEXT, "stream": True}))

    async def _first(self, url: str, body: bytes) -> float:
        """Milliseconds until the first word is there; the rest is read, too, so that the next call meets no work."""
        started, took_ms, seen = time.perf_counter(), None, b""
        async with self._client.post(url, data=body, headers=JSON, timeout=KEEP) as response:
            async for piece in response.content.iter_any():
                seen += piece
                if took_ms is None and b"word" in seen:
                    took_ms = (time.perf_counter() - started) * 1e3
        if took_ms is None:
            raise RuntimeError(f"{url} answered without a word: {seen[:300]!r}")
        return took_ms

    async def rate_of_turns(self, prefix: str, each: int) -> float:
        """Turns per second of 32 sessions, each waiting for its reply before its next message."""

        async def talk(number: int) -> None:
            for _ in range(each):
                await self.turn(f"agent:main:bench:direct:{prefix}-{number}")

        started = time.perf_counter()
        await asyncio.gather(*(talk(number) for number in range(SESSIONS)))
        return SESSIONS * each / (time.perf_counter() - started)

    async def rate(self, call: str, each: int) -> float:
        """Calls per second of 32 callers, of `direct` or `proxied`."""
        one = {"direct": self.direct, "proxied": self.proxied}[call]

        async def talk() -> None:
            for _ in range(each):
                await one()

        started = time.perf_counter()
        await asyncio.gather(*(talk() for _ in range(SESSIONS)))
        return SESSIONS * each / (time.perf_counter() - started)


async def measure(at: Addresses, folder: Path, *, rounds: int, turns: int, each: int) -> list[Figure]:
    """Rows 1, 2 and 3. `turns`: of each round of rows 1 and 3; `each`: messages of a session in a round of row 2."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        load = Load(client, at)
        for number in range(20):
            await asyncio.gather(load.direct(), load.proxied(), load.turn(f"agent:main:bench:direct:warm-{number % 2}"))
        return [
            *await _rates(load, rounds, each),
            *await _latencies(load, folder, rounds, turns),
        ]


async def _latencies(load: Load, folder: Path, rounds: int, turns: int) -> list[Figure]:
    syncs: list[float] = []
    added: list[float] = []
    added_first: list[float] = []
    tails: list[float] = []
    directs: list[float] = []
    firsts: list[float] = []
    for round_number in range(rounds):
        key, streaming = (f"agent:main:bench:direct:{kind}-{round_number}" for kind in ("turn", "first"))
        direct: list[float] = []
        turn: list[float] = []
        direct_first: list[float] = []
        turn_first: list[float] = []
        for _ in range(turns):
            direct.append(await load.direct())
            turn.append(await load.turn(key))
            direct_first.append(await load.direct_first())
            turn_first.append(await load.turn_first(streaming))
            syncs += sync_ms(folder, 1)
        added.append(median(turn) - median(direct))
        tails.append(quantile(turn, 0.99) - quantile(direct, 0.99))
        added_first.append(median(turn_first) - median(direct_first))
        directs.append(median(direct))
        firsts.append(median(direct_first))
    sync = median(syncs)
    return [
        figure(0, "append and fdatasync of this machine, median", syncs, "ms"),
        figure(0, "the model called directly, whole reply", directs, "ms"),
        figure(1, "added by a turn, p50", added, "ms", goal=4 * sync + 3, compared=median(added) / (4 * sync + 3)),
        figure(1, "added by a turn, p99", tails, "ms", goal=4 * sync + 15),
        figure(
            3,
            "added to the first token, p50",
            added_first,
            "ms",
            goal=2 * sync + 2,
            compared=median(added_first) / (2 * sync + 2),
        ),
        figure(3, "first token, against the model's own", [a / d for a, d in _sums(added_first, firsts)], "x"),
    ]


def _sums(added: list[float], direct: list[float]) -> list[tuple[float, float]]:
    return [(a + d, d) for a, d in zip(added, direct, strict=True)]


async def _rates(load: Load, rounds: int, each: int) -> list[Figure]:
    turns: list[float] = []
    proxied: list[float] = []
    direct: list[float] = []
    for number in range(rounds):
        direct.append(await load.rate("direct", each))
        proxied.append(await load.rate("proxied", each))
        turns.append(await load.rate_of_turns(f"rate-{number}", each))
    shares = [100 * t / p for t, p in zip(turns, proxied, strict=True)]
    return [
        figure(0, "ceiling of the stand-in, 32 callers", direct, "/s", more_is_better=True),
        figure(0, "bare proxy, 32 callers", proxied, "/s", more_is_better=True),
        figure(2, "turns, 32 sessions", turns, "/s", more_is_better=True),
        figure(2, "turns against the bare proxy", shares, "%", goal=60, compared=median(shares), more_is_better=True),
    ]
