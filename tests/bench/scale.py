"""Rows 6, 7, 8 and 15: start, a page of sessions and memory, by how many sessions there are."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from statistics import median
from typing import TYPE_CHECKING

import aiohttp

from sessions.index import SNAPSHOT
from tests.bench.figures import Figure, figure
from tests.bench.processes import DaemonProcess, daemon
from tests.bench.seed import sow
from tests.bench.turn_load import Addresses, Load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FEW = 100
PARALLEL = 32
MB = 1e6
IDLE_MB = 150
PER_SESSION = 1024
PER_ACTIVE = 50 * 1024


async def start_of_process(folder: Path, config: Path, rounds: int) -> list[Figure]:
    """Row 15, and of row 8 the memory of a daemon as it comes, with its embedded model."""
    starts: list[float] = []
    helps: list[float] = []
    for number in range(rounds):
        helps.append(await _help_s())
        process = DaemonProcess(folder / f"empty-{number}", config)
        starts.append(await process.start())
        await process.stop()
    empty = folder / "empty.yaml"
    empty.write_text("logging: {level: warning}\n", encoding="utf-8")
    async with daemon(folder / "as-it-comes", empty) as process:
        idle = await process.resident_bytes() / MB
    return [
        figure(8, "memory, idle, embedded model", [idle], "MB", goal=IDLE_MB, compared=idle),
        figure(15, "sessiond --help", helps, "s", goal=0.3),
        figure(15, "start of the process until ready, no sessions", starts, "s", goal=1.0),
    ]


async def _help_s() -> float:
    started = time.perf_counter()
    run = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "--help", stdout=asyncio.subprocess.DEVNULL
    )
    assert await run.wait() == 0
    return time.perf_counter() - started


async def by_sessions(folder: Path, config: Path, model: str, count: int, turns: int, rounds: int) -> list[Figure]:
    """Rows 6, 7 and 8 with `count` sessions of `turns` turns each, a tenth of them, and a hundred."""
    sizes = (FEW, count // 10, count)
    folders = {size: folder / f"of-{size}" for size in sizes}
    for size in sizes:
        await _one_turn(folders[size], config, model)
        await asyncio.to_thread(sow, folders[size], size, turns)
    figures = [f for size in sizes[1:] for f in await _starts(folders[size], config, size, rounds)]
    figures += await _pages_and_memory(folders, config, rounds)
    return figures


async def _one_turn(data_dir: Path, config: Path, model: str) -> None:
    """Leaves a usage ledger with a row, as every daemon in use has one."""
    async with daemon(data_dir, config) as process, aiohttp.ClientSession() as client:
        await Load(client, Addresses(model=model, proxy="", daemon=process.url)).turn("agent:main:bench:direct:first")


async def _starts(data_dir: Path, config: Path, count: int, rounds: int) -> list[Figure]:
    """Row 6: after a stop in order, and after a kill, which makes the start compare every transcript's size."""
    clean: list[float] = []
    killed: list[float] = []
    reads: list[float] = []
    for _ in range(rounds):
        started = time.perf_counter()
        (data_dir / SNAPSHOT).read_bytes()
        reads.append(time.perf_counter() - started)
        process = DaemonProcess(data_dir, config)
        clean.append(await process.start())
        await process.stop(signal.SIGKILL)
        killed.append(await process.start())
        await process.stop()
    goal = min(2.0, 1.2 * median(reads) + 1)
    return [
        figure(0, f"reading the snapshot's bytes, {count:,} sessions", reads, "s"),
        figure(6, f"start until ready, {count:,} sessions", clean, "s", goal=goal),
        figure(6, f"start after a kill, {count:,} sessions", killed, "s", goal=2.0),
    ]


async def _pages_and_memory(folders: dict[int, Path], config: Path, rounds: int) -> list[Figure]:
    few, _, all_of_them = folders
    small, large = DaemonProcess(folders[few], config), DaemonProcess(folders[all_of_them], config)
    try:
        await small.start()
        await large.start()
        idle, full = await small.resident_bytes(), await large.resident_bytes()
        per_session = (full - idle) / (all_of_them - few)
        small_ms, large_ms = await _pages([small, large], rounds)
    finally:
        await small.stop()
        await large.stop()
    ratios = [b / a for a, b in zip(small_ms, large_ms, strict=True)]
    return [
        figure(7, f"page of 50 at {few} sessions", small_ms, "ms"),
        figure(7, f"page of 50 at {all_of_them:,} sessions", large_ms, "ms"),
        figure(7, "page, many against few", ratios, "x", goal=10, compared=median(ratios)),
        figure(8, "memory, idle, a model over HTTP", [idle / MB], "MB", goal=IDLE_MB, compared=idle / MB),
        figure(8, f"memory with {all_of_them:,} sessions, per session", [per_session], "B", goal=PER_SESSION),
    ]


async def _pages(processes: Sequence[DaemonProcess], rounds: int) -> list[list[float]]:
    """Median milliseconds of a page per round, for each of the daemons in turn."""
    found: list[list[float]] = [[] for _ in processes]
    async with aiohttp.ClientSession() as client:
        for _ in range(rounds):
            times: list[list[float]] = [[] for _ in processes]
            for _ in range(40):
                for process, taken in zip(processes, times, strict=True):
                    started = time.perf_counter()
                    async with client.get(f"{process.url}/v1/sessions?limit=50") as response:
                        assert response.status == 200
                        await response.read()
                    taken.append((time.perf_counter() - started) * 1e3)
            for all_rounds, taken in zip(found, times, strict=True):
                all_rounds.append(median(taken))
    return found


async def active_sessions(data_dir: Path, config: Path, model: str, count: int, turns: int) -> list[Figure]:
    """Row 8: what `count` sessions in use add, each after `turns` turns."""
    async with daemon(data_dir, config) as process, aiohttp.ClientSession() as client:
        load = Load(client, Addresses(model=model, proxy="", daemon=process.url))
        free = asyncio.Semaphore(PARALLEL)

        async def talk(number: int) -> None:
            async with free:
                for _ in range(turns):
                    await load.turn(f"agent:main:bench:direct:active-{number}")

        await asyncio.gather(*(talk(number) for number in range(PARALLEL)))
        before = await process.resident_bytes()
        await asyncio.gather(*(talk(PARALLEL + number) for number in range(count)))
        grown = await process.resident_bytes() - before
    return [figure(8, f"memory of {count:,} active sessions, each", [grown / count], "B", goal=PER_ACTIVE)]
