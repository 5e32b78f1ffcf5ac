"""What thousands of sessions that end at the same moment cost the replies beside them.

python -m tests.bench.ending_load [--sessions 10000] prints the figures; the exit code is 1 when the goal is not met.
The sessions are old, so their daily reset is due as soon as the daemon is there.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import aiohttp
import yaml

from tests.bench.figures import Figure, figure, quantile, render_table
from tests.bench.processes import daemon, server, write_config
from tests.bench.seed import sow
from tests.bench.turn_load import Addresses, Load

RESULTS = Path(".bench")
KEY = "agent:main:main"
AFTER = 40
USUAL = ("--first-token-ms", "300", "--token-ms", "15", "--tokens", "40")
INSTANT = ("--tokens", "40")


async def measure(folder: Path, name: str, pace: tuple[str, ...], sessions: int, goal: float | None) -> list[Figure]:
    """Turns one after the other in one session: while the others end, and when they have."""
    await asyncio.to_thread(sow, folder / "data", sessions)
    async with server("tests.bench.standin", *pace) as model_url:
        config = write_config(folder / "config.yaml", model_url)
        rules = {"sessions": {"reset": {"by_type": {"main": {"daily_at": None}}}}}
        config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text("utf-8")), **rules}), "utf-8")
        beside: list[float] = []
        async with daemon(folder / "data", config) as process, aiohttp.ClientSession() as client:
            load = Load(client, Addresses(model=model_url.removesuffix("/v1"), proxy="", daemon=process.url))
            started = time.perf_counter()
            await load.turn(KEY)
            while await _going_on(client, process.url):
                beside.append(await load.turn(KEY))
            took_s = time.perf_counter() - started
            after = [await load.turn(KEY) for _ in range(AFTER)]
    ratio = median(beside) / median(after)
    return [
        figure(0, f"{name}: a turn while {sessions} sessions end", beside, "ms"),
        figure(0, f"{name}: a turn after", after, "ms"),
        figure(0, f"{name}: against after, p50", [ratio], "x", goal=goal, compared=ratio),
        figure(0, f"{name}: against after, p95", [quantile(beside, 0.95) / quantile(after, 0.95)], "x"),
        figure(0, f"{name}: until all have ended", [took_s], "s"),
    ]


async def _going_on(client: aiohttp.ClientSession, url: str) -> bool:
    """Whether the session that was used last, which ends last, has not ended yet."""
    async with client.get(f"{url}/v1/sessions?limit=2") as response:
        listed = (await response.json())["sessions"]
    return any(one["ended"] is None for one in listed if one["key"] != KEY)


async def run(folder: Path, sessions: int) -> list[Figure]:
    found: list[Figure] = []
    for name, pace, goal in (("a usual model", USUAL, 1.1), ("an instant one", INSTANT, None)):
        part = folder / name.replace(" ", "-")
        found += await measure(part, name, pace, sessions, goal)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000)
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="ending-", dir=RESULTS))
    try:
        figures = asyncio.run(run(folder.resolve(), options.sessions))
    finally:
        shutil.rmtree(folder)
    print(render_table(figures))
    sys.exit(any(one.met is False for one in figures))


if __name__ == "__main__":
    main()
