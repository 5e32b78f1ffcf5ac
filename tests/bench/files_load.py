"""Row 16: what a turn costs while many workspace files are taken into the index, against a daemon without any."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import sqlite3
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import aiohttp

from tests.bench.figures import figure, quantile, render_table
from tests.bench.processes import daemon, server, write_config
from tests.bench.turn_load import Addresses, Load

if TYPE_CHECKING:
    from tests.bench.figures import Figure

KEY = "agent:main:bench:direct:files"
READER = "agent:library:bench:direct:files"
WARM = 20
PARAGRAPH = "The hive number {n} stands at the fence and was looked at on day {n}; the queen is marked {n}.\n\n"


def write_notes(folder: Path, first: int, count: int) -> None:
    """Files of about two pieces each, a hundred in a folder."""
    for number in range(first, first + count):
        path = folder / "memory" / f"part{number // 100}" / f"note{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Note {number}\n\n" + PARAGRAPH.format(n=number) * 20, "utf-8")


def indexed(data_dir: Path) -> int:
    """How many files are in the index by now."""
    with contextlib.suppress(sqlite3.Error), sqlite3.connect(data_dir / "cache" / "files.db") as database:
        return database.execute("SELECT count(*) FROM files").fetchone()[0]
    return 0


async def measure(folder: Path, config: Path, model: str, *, files: int, rounds: int) -> list[Figure]:
    """The files of another agent come in as many parts as there are rounds; turns are asked as long as a part is being
    indexed. Then that agent is asked, which searches them all."""
    busy_dir = folder / "busy"
    calm: list[float] = []
    busy: list[float] = []
    worst: list[float] = []
    rates: list[float] = []
    async with (
        daemon(folder / "calm", config) as one,
        daemon(busy_dir, config) as other,
        aiohttp.ClientSession() as client,
    ):
        loads = [Load(client, Addresses(model=model, proxy="", daemon=process.url)) for process in (one, other)]
        for _ in range(WARM):
            for load in loads:
                await load.turn(KEY)
        part = files // rounds
        for number in range(rounds):
            await asyncio.to_thread(write_notes, busy_dir / "workspaces" / "library", number * part, part)
            started, times = time.perf_counter(), (list[float](), list[float]())
            while indexed(busy_dir) < (number + 1) * part:
                for load, taken in zip(loads, times, strict=True):
                    taken.append(await load.turn(KEY))
            rates.append(part / (time.perf_counter() - started))
            calm.append(median(times[0]))
            busy.append(median(times[1]))
            worst.append(quantile(times[1], 0.99) - quantile(times[0], 0.99))
        searching = await _searching(loads[1], rounds)
    ratios = [b / a for a, b in zip(calm, busy, strict=True)]
    return [
        figure(16, "a turn with no files", calm, "ms"),
        figure(16, f"while {files:,} files are indexed, against that", ratios, "x", compared=median(ratios)),
        figure(16, "what that adds to the slowest in a hundred", worst, "ms"),
        figure(16, "files indexed beside turns", rates, "/s", more_is_better=True),
        figure(16, f"a turn that searches {files:,} files, against one that does not", searching, "x"),
    ]


async def _searching(load: Load, rounds: int) -> list[float]:
    for key in (KEY, READER):
        await load.turn(key)
    ratios: list[float] = []
    for _ in range(rounds):
        pairs = [(await load.turn(KEY), await load.turn(READER)) for _ in range(WARM)]
        ratios.append(median(b for _, b in pairs) / median(a for a, _ in pairs))
    return ratios


async def _alone(files: int, rounds: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="files-"))
    try:
        async with server("tests.bench.standin", "--tokens", "40") as model_url:
            config = write_config(folder / "config.yaml", model_url)
            model = model_url.removesuffix("/v1")
            print(render_table(await measure(folder, config, model, files=files, rounds=rounds)))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    asyncio.run(_alone(options.files, options.rounds))
