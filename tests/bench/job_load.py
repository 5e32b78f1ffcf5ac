"""What a thousand jobs that are due in the same second, one of them hanging, cost the replies beside them.

python -m tests.bench.job_load [--jobs 1000] prints the figures; the exit code is 1 when a goal is not met.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import yaml

from tests.bench.figures import Figure, figure, quantile, render_table
from tests.bench.processes import daemon, server, write_config
from tests.bench.turn_load import Addresses, Load

RESULTS = Path(".bench")
KEY = "agent:main:bench:direct:beside"
PARALLEL = 4
BEFORE = 20
START_S = 25.0


@dataclass(frozen=True, slots=True)
class Model:
    """`turn_s`: what to reckon with for a turn and a direct call. `goal`: of a turn beside the jobs, against before."""

    name: str
    pace: tuple[str, ...]
    turn_s: float
    goal: float | None = None


MODELS = (
    Model("a usual model", ("--first-token-ms", "300", "--token-ms", "15", "--tokens", "40"), 3.0, 1.1),
    Model("an instant one", ("--tokens", "40"), 0.3),
)


@dataclass
class Seen:
    """What was measured while the jobs ran."""

    turns_ms: list[float]
    direct_ms: list[float]
    pages_ms: list[float]
    most_going: int
    seconds: float
    open_at_end: int


async def measure(folder: Path, model: Model, *, jobs: int, limit_s: float) -> list[Figure]:
    """Turns one after the other in one session: before the jobs are due, and while they run."""
    name = model.name
    async with server("tests.bench.standin", *model.pace) as model_url:
        config = write_config(folder / "config.yaml", model_url)
        due = datetime.now(UTC) + timedelta(seconds=START_S + BEFORE * model.turn_s)
        _add_jobs(config, jobs, due)
        async with daemon(folder / "data", config) as process, aiohttp.ClientSession() as client:
            load = Load(client, Addresses(model=model_url.removesuffix("/v1"), proxy="", daemon=process.url))
            for _ in range(5):
                await load.turn(KEY)
            before, direct = [], []
            for _ in range(BEFORE):
                before.append(await load.turn(KEY))
                direct.append(await load.direct())
            await asyncio.sleep(max(0.0, (due - datetime.now(UTC)).total_seconds() + 0.2))
            seen = await _beside(client, load, process.url, jobs, limit_s)
    if not seen.most_going:
        raise RuntimeError("the daemon started too late for the jobs: nothing was measured")
    ratio = median(seen.turns_ms) / median(seen.direct_ms) / (median(before) / median(direct))
    tails = quantile(seen.turns_ms, 0.95) / quantile(before, 0.95)
    return [
        figure(0, f"{name}: a turn before", before, "ms"),
        figure(0, f"{name}: a turn beside {jobs} jobs", seen.turns_ms, "ms"),
        figure(0, f"{name}: the model called directly beside them", seen.direct_ms, "ms"),
        figure(0, f"{name}: against before, p50", [ratio], "x", goal=model.goal, compared=ratio),
        figure(0, f"{name}: against before, p95", [tails], "x"),
        figure(0, f"{name}: a page of 100 jobs", seen.pages_ms, "ms", goal=250),
        figure(0, f"{name}: runs at once", [seen.most_going], "", goal=PARALLEL),
        figure(0, f"{name}: seconds looked at", [seen.seconds], "s"),
        figure(0, f"{name}: runs open at the end", [seen.open_at_end], ""),
    ]


def _add_jobs(config: Path, jobs: int, due: datetime) -> None:
    """All due at the same moment; the model hangs for the first."""
    scheduled = [
        {
            "name": f"j{number:04}",
            "at": due.isoformat(),
            "message": "What is on today?" if number else "fault:hang",
            "timeout_s": 3600,
        }
        for number in range(jobs)
    ]
    settings = yaml.safe_load(config.read_text("utf-8"))
    config.write_text(yaml.safe_dump({**settings, "jobs": {"scheduled": scheduled}}), "utf-8")


async def _beside(client: aiohttp.ClientSession, load: Load, url: str, jobs: int, limit_s: float) -> Seen:
    """Until only the run that hangs is open, or `limit_s` are over."""
    seen = Seen(turns_ms=[], direct_ms=[], pages_ms=[], most_going=0, seconds=0, open_at_end=jobs)
    started = time.perf_counter()
    while (seen.open_at_end > 1 or not seen.most_going) and time.perf_counter() - started < limit_s:
        seen.turns_ms.append(await load.turn(KEY))
        seen.direct_ms.append(await load.direct())
        asked = time.perf_counter()
        page = await _json(client, f"{url}/v1/jobs")
        seen.pages_ms.append((time.perf_counter() - asked) * 1e3)
        assert page["jobs"]
        told = (await _json(client, f"{url}/readyz"))["parts"]["jobs"]["detail"].split()
        going, waiting = int(told[0]), int(told[4])
        seen.most_going, seen.open_at_end = max(seen.most_going, going), going + waiting
    seen.seconds = time.perf_counter() - started
    return seen


async def _json(client: aiohttp.ClientSession, url: str) -> Any:
    async with client.get(url) as response:
        return await response.json()


async def run(folder: Path, jobs: int, limit_s: float) -> list[Figure]:
    found: list[Figure] = []
    for number, model in enumerate(MODELS):
        part = folder / str(number)
        part.mkdir()
        found += await measure(part, model, jobs=jobs, limit_s=limit_s)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60, help="how long to look at most, for each model")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="jobs-", dir=RESULTS))
    try:
        figures = asyncio.run(run(folder.resolve(), options.jobs, options.seconds))
    finally:
        shutil.rmtree(folder)
    print(render_table(figures))
    sys.exit(any(one.met is False for one in figures))


if __name__ == "__main__":
    main()
