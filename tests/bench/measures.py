"""The measures of the speed page: ratios inside one run, medians of interleaved rounds."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import aiohttp

from sessions.entries import Header
from sessions.files import OsFiles
from sessions.index import Index
from sessions.lines import encode_entry, encode_header
from sessions.record import SessionRecord
from tests.bench import processes
from tests.sessions.builders import assistant, user

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from tests.bench.processes import Running

SESSIONS = 32


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `goal` None: only printed. `below`: smaller is better."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    below: bool = True
    spread: str = ""

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.value <= self.goal if self.below else self.value >= self.goal


async def measure_all(folder: Path, *, quick: bool) -> list[Row]:
    sync_ms = fdatasync_ms(folder, 100)
    rows = [Row("fdatasync here", sync_ms, "ms")]
    rows += await latency(folder, sync_ms, rounds=5, turns=20 if quick else 100)
    rows += await throughput(folder, rounds=3 if quick else 5, seconds=1.5 if quick else 4)
    for size in (1_000, 10_000) if quick else (10_000, 100_000):
        rows += await many_sessions(folder, size)
    rows += await start_and_memory(folder, active=100 if quick else 1_000)
    rows.append(Row("15 sessiond --help", help_s(), "s", 0.3))
    return rows


def fdatasync_ms(folder: Path, times: int) -> float:
    """The median of one small write with fdatasync on this disk, now."""
    descriptor = os.open(folder / "sync", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    taken: list[float] = []
    for _ in range(times):
        started = time.perf_counter()
        os.write(descriptor, b"x" * 300)
        os.fdatasync(descriptor)
        taken.append(time.perf_counter() - started)
    os.close(descriptor)
    return statistics.median(taken) * 1000


# --- one turn ---------------------------------------------------------------------------------------------------------


async def latency(folder: Path, sync_ms: float, *, rounds: int, turns: int) -> list[Row]:
    """Rows 1 and 3: what a turn, and its first token, take over calling the model directly."""
    async with (
        processes.standin(5, 20, 1) as model,
        processes.daemon(folder, model.url, name="latency") as daemon,
        aiohttp.ClientSession() as client,
    ):
        direct: list[tuple[float, float]] = []
        through: list[tuple[float, float]] = []
        for n in range(rounds):
            key = f"agent:main:bench:group:{n}"
            for turn in range(turns):
                direct.append(await timed_stream(client, f"{model.url}/v1/chat/completions", completion(f"hi {turn}")))
                body = {"text": f"hi {turn}", "stream": True}
                through.append(await timed_stream(client, f"{daemon.url}/v1/sessions/{key}/messages", body))
    added = [t - d for (_, t), (_, d) in zip(through, direct, strict=True)]
    first = [t - d for (t, _), (d, _) in zip(through, direct, strict=True)]
    p50, p99 = (quantile(added, q) for q in (0.5, 0.99))
    return [
        Row("1 added latency of a turn, p50", p50, "ms", 4 * sync_ms + 3),
        Row("1 added latency of a turn, p99", p99, "ms", 4 * sync_ms + 15),
        Row("3 added time to the first token, p50", quantile(first, 0.5), "ms", 2 * sync_ms + 2),
    ]


def completion(text: str) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "stream": True}


async def timed_stream(client: aiohttp.ClientSession, url: str, body: object) -> tuple[float, float]:
    """(until the first text, until the end) of one streamed answer, in ms."""
    started = time.perf_counter()
    first: float | None = None
    async with client.post(url, json=body) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            if first is None and (b'"content":"' in line or b"event: delta" in line) and b'"content":""' not in line:
                first = time.perf_counter()
    ended = time.perf_counter()
    return ((first or ended) - started) * 1000, (ended - started) * 1000


def quantile(values: Sequence[float], q: float) -> float:
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


# --- many turns -------------------------------------------------------------------------------------------------------


async def throughput(folder: Path, *, rounds: int, seconds: float) -> list[Row]:
    """Row 2: turns a second in 32 sessions, against a bare proxy in front of the same model."""
    async with (
        processes.standin(0, 20) as model,
        processes.proxy(model) as bare,
        processes.daemon(folder, model.url, name="throughput") as daemon,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client,
    ):

        async def by_proxy(number: int, turn: int) -> None:
            async with client.post(f"{bare.url}/v1/chat/completions", json=completion(f"hi {turn}")) as response:
                await response.read()

        async def by_daemon(number: int, turn: int) -> None:
            url = f"{daemon.url}/v1/sessions/agent:main:bench:group:{number}/messages"
            async with client.post(url, json={"text": f"hi {turn}"}) as response:
                assert response.status == 200, await response.text()
                await response.read()

        proxied: list[float] = []
        turned: list[float] = []
        await rate(by_daemon, 0.5)
        for _ in range(rounds):
            proxied.append(await rate(by_proxy, seconds))
            turned.append(await rate(by_daemon, seconds))
        ratios = [t / p for t, p in zip(turned, proxied, strict=True)]
    spread = f"{min(ratios):.2f}..{max(ratios):.2f}"
    return [
        Row("2 turns a second, 32 sessions", statistics.median(turned), "1/s"),
        Row("2 the same through a bare proxy", statistics.median(proxied), "1/s"),
        Row("2 share of the bare proxy", statistics.median(ratios), "", 0.6, below=False, spread=spread),
    ]


async def rate(call: Callable[[int, int], Awaitable[None]], seconds: float) -> float:
    """Calls a second with 32 callers, each waiting for its answer."""
    done = 0
    stop = time.perf_counter() + seconds

    async def caller(number: int) -> None:
        nonlocal done
        turn = 0
        while time.perf_counter() < stop:
            await call(number, turn)
            turn += 1
            done += 1

    started = time.perf_counter()
    await asyncio.gather(*(caller(number) for number in range(SESSIONS)))
    return done / (time.perf_counter() - started)


# --- many sessions ----------------------------------------------------------------------------------------------------


async def many_sessions(folder: Path, count: int) -> list[Row]:
    """Rows 6, 7 and 8 at `count` sessions."""
    data = folder / f"many-{count}"
    write_sessions(data, count)
    snapshot = data / "sessions.json"
    started = time.perf_counter()
    snapshot.read_bytes()
    read_s = time.perf_counter() - started
    rows: list[Row] = []
    async with processes.daemon(folder, None, name=data.name) as daemon, aiohttp.ClientSession() as client:
        rows.append(Row(f"6 start until ready, {count} sessions", daemon.ready_s, "s", 2.0))
        rows.append(Row(f"6 reading the snapshot's bytes, {count} sessions", read_s, "s"))
        rows.append(Row(f"8 memory, {count} sessions", daemon.rss_mib(), "MiB"))
        many = await page_ms(client, daemon)
    small = folder / f"few-{count}"
    write_sessions(small, 100)
    async with processes.daemon(folder, None, name=small.name) as daemon, aiohttp.ClientSession() as client:
        few = await page_ms(client, daemon)
    rows.append(Row(f"7 page of {count} sessions against one of 100", many / few, "", 10.0))
    return rows


async def page_ms(client: aiohttp.ClientSession, daemon: Running) -> float:
    taken: list[float] = []
    for _ in range(50):
        started = time.perf_counter()
        async with client.get(f"{daemon.url}/v1/sessions") as response:
            assert response.status == 200
            await response.read()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1000


def write_sessions(data: Path, count: int) -> None:
    """A data directory as a clean stop leaves it."""
    at = datetime(2026, 11, 1, tzinfo=UTC)
    folder = data / "transcripts" / "main"
    folder.mkdir(parents=True)
    index, _ = Index.load(OsFiles(), data, stamp="bench")
    body = encode_entry(user("hello", 1)) + encode_entry(assistant("hi", 2))
    for n in range(count):
        session, key = f"01BENCH{n:019d}", f"agent:main:web:direct:user-{n}"
        header = encode_header(Header(session=session, generation=1, key=key, agent="main", at=at))
        (folder / f"{session}.1.jsonl").write_bytes(header + body)
        index.put(
            SessionRecord(
                session=session,
                key=key,
                agent="main",
                type="direct",
                channel="web",
                created_at=at,
                active_at=at,
                title="hello",
                entries=2,
                messages=2,
                last_seq=2,
                size=len(header) + len(body),
            )
        )
    index.commit_snapshot(index.prepare_snapshot(clean=True))


async def start_and_memory(folder: Path, *, active: int) -> list[Row]:
    """Rows 15 and 8: an empty daemon, and one with `active` sessions."""
    starts: list[float] = []
    for n in range(3):
        async with processes.daemon(folder, None, name=f"empty-{n}") as daemon:
            starts.append(daemon.ready_s)
    async with processes.daemon(folder, None, name="active") as daemon, aiohttp.ClientSession() as client:
        async with client.post(f"{daemon.url}/v1/sessions/agent:main:main/messages", json={"text": "hi"}) as response:
            await response.read()
        idle = daemon.rss_mib()
        for n in range(active):
            url = f"{daemon.url}/v1/sessions/agent:main:web:direct:u{n}/messages"
            async with client.post(url, json={"text": "hello there"}) as response:
                await response.read()
        grown = (daemon.rss_mib() - idle) * 1024 / active
    return [
        Row("15 start of the process until ready", statistics.median(starts), "s", 1.0),
        Row("8 memory idle, offline model", idle, "MiB", 150),
        Row(f"8 memory of each of {active} active sessions", grown, "KiB", 50),
    ]


def help_s() -> float:
    taken: list[float] = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "gateway", "--help"], stdout=subprocess.DEVNULL, check=True)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)
