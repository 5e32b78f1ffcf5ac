"""How large the pages are, and how soon something is seen: `python -m tests.browser.figures [sessions] [memories]`."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import yaml

from gateway.clock import SystemClock
from memory.records import Draft, Viewer, user_pool
from tests.bench.index_load import record
from tests.bench.processes import daemon
from tests.bench.seed import sow
from tests.browser.watched import Watch, chromium, visitor
from tests.memory.opened import opened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playwright.async_api import BrowserContext

    from gateway.clock import Clock

MAX_BYTES = 300_000
MAX_PAINT_MS = 500
MAX_FIRST_BYTES = 120_000
"""What must be here before anything is seen: the page and its stylesheet."""
MAX_NODES = 2_500
MAX_REQUESTS = 16
ROUNDS = 5
INDEXED_S = 300
LOOK_S = 0.2
PAGES = (
    "",
    "/sessions",
    "/sessions?sort=cost",
    "/sessions?sort=idle",
    "/sessions?q=12345",
    f"/sessions/{record(7).key}",
    f"/sessions/{record(7).key}?q=bread",
    "/memory",
    "/memory?q=bread+mills",
    "/memory?sort=importance&min_importance=5",
    "/memory/map",
    "/memory/topics",
    "/memory/runs",
    "/memory/settings",
    "/jobs",
    "/usage",
    "/settings",
)
PAINTED = """() => new Promise((done) => {
  const told = (entries) => entries.length && done(entries[0].startTime);
  told(performance.getEntriesByName("first-contentful-paint"));
  new PerformanceObserver((list) => told(list.getEntriesByName("first-contentful-paint")))
    .observe({ type: "paint", buffered: true });
})"""
BLOCKING = """() => performance.getEntriesByType("resource")
  .filter((one) => one.renderBlockingStatus !== "non-blocking").map((one) => [one.name, one.decodedBodySize])"""
REQUESTS = """() => performance.getEntriesByType("resource").length"""
NODES = """() => document.getElementsByTagName("*").length"""
LOADED = """() => performance.getEntriesByType("resource").reduce((sum, one) => sum + one.decodedBodySize, 0)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One page: bytes of its HTML and of what it loads, and when something was first seen, for each look at it.

    `new_ms`: at the very first look, which makes the daemon load what it loads once.
    `blocking`: what the browser waits for before it draws anything, with its bytes.
    """

    path: str
    html_bytes: int
    loaded_bytes: int
    new_ms: float
    paints_ms: Sequence[float]
    blocking: Sequence[tuple[str, int]]
    requests: int
    nodes: int

    @property
    def paint_ms(self) -> float:
        return statistics.median(self.paints_ms)

    @property
    def burdens(self) -> Sequence[str]:
        """What would make it late on any machine, however quick this one is."""
        names = [name.rpartition("/")[2] for name, _ in self.blocking]
        first = self.html_bytes + sum(size for _, size in self.blocking)
        told = {
            f"waits for {', '.join(names)} before it draws": names != ["console.css"],
            f"needs {first} bytes before it draws": first > MAX_FIRST_BYTES,
            f"has {self.nodes} elements": self.nodes > MAX_NODES,
            f"makes {self.requests} requests": self.requests > MAX_REQUESTS,
        }
        return [f"{self.path}: {words}" for words, holds in told.items() if holds]

    @property
    def is_fine(self) -> bool:
        in_all = self.html_bytes + self.loaded_bytes
        return in_all <= MAX_BYTES and self.paint_ms <= MAX_PAINT_MS and not self.burdens


async def look(context: BrowserContext, path: str, rounds: int = ROUNDS) -> Seen:
    """Opens a page in a new tab each time, once more than `rounds`."""
    html = loaded = requests = nodes = 0
    paints, blocking = list[float](), list[tuple[str, int]]()
    for _ in range(rounds + 1):
        page = await context.new_page()
        answer = await page.goto(f"/console{path}")
        assert answer is not None
        assert answer.ok, f"{path}: {answer.status}"
        html = len(await answer.body())
        paints.append(await page.evaluate(PAINTED))
        nodes = max(nodes, await page.evaluate(NODES))
        await page.locator("#drawn[aria-busy]").wait_for(state="detached")
        loaded = max(loaded, await page.evaluate(LOADED))
        requests = max(requests, await page.evaluate(REQUESTS))
        blocking = [(name, size) for name, size in await page.evaluate(BLOCKING)]
        await page.close()
    return Seen(
        path=path,
        html_bytes=html,
        loaded_bytes=loaded,
        new_ms=paints[0],
        paints_ms=paints[1:],
        blocking=blocking,
        requests=requests,
        nodes=nodes,
    )


async def remember(data_dir: Path, clock: Clock, count: int) -> None:
    """`count` memories of the owner, written by the store's own code."""
    owner = Viewer(user="owner", author="owner", admin=True)
    async with opened(data_dir / "state.db", clock) as memories:
        for at in range(0, count, 500):
            drafts = [
                Draft(
                    text=f"Mill number {number} stands by the river and bakes bread of kind {number % 97}.",
                    importance=number % 10 + 1,
                    pool=user_pool("owner"),
                )
                for number in range(at, min(at + 500, count))
            ]
            await memories.add_many(owner, drafts)


async def measure(folder: Path, sessions: int, memories: int, rounds: int = ROUNDS) -> list[Seen]:
    data_dir, settings = folder / "data", folder / "sessiond.yaml"
    data_dir.mkdir()
    settings.write_text(
        yaml.safe_dump(
            {
                "models": {"chat": {"provider": "offline"}},
                "roles": {"chat": "chat", "embedding": "offline"},
                "server": {"rate_limit_per_minute": None},
                "sessions": {"reset": {"daily_at": None}},
                "logging": {"level": "warning"},
            }
        ),
        encoding="utf-8",
    )
    sow(data_dir, sessions)
    await remember(data_dir, SystemClock(), memories)
    async with daemon(data_dir, settings) as process, chromium() as browser:
        await _indexed(process.url)
        watch = Watch(process.url)
        context = await visitor(browser, watch)
        context.set_default_timeout(60_000)
        seen = [await look(context, path, rounds) for path in PAGES]
        assert watch.complaints == []
        return seen


async def _indexed(url: str) -> None:
    """Waits until everything that was said can be searched, for until then the daemon has work of its own; says so when
    that takes too long."""
    async with aiohttp.ClientSession() as client:
        for _ in range(round(INDEXED_S / LOOK_S)):
            async with client.get(f"{url}/v1/search", params={"q": "bakery", "limit": 1}) as answer:
                if answer.status == 200 and (await answer.json())["complete"]:
                    return
            await asyncio.sleep(LOOK_S)
    print(f"after {INDEXED_S} s the archive is still being filled; pages share the machine with that")


def table(seen: Sequence[Seen]) -> str:
    rows = [f"{'page':<48} {'html':>9} {'in all':>9} {'first paint, median (worst) of ' + str(ROUNDS):>32}"]
    rows += [
        f"{one.path or '/':<48} {one.html_bytes / 1000:>6.1f} KB {(one.html_bytes + one.loaded_bytes) / 1000:>6.1f} KB "
        f"{one.paint_ms:>20.0f} ({max(one.paints_ms):.0f}) ms "
        f"{one.nodes:>6} elements {one.requests:>3} requests{'' if one.is_fine else '  TOO MUCH'}"
        for one in seen
    ]
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sessions", type=int, nargs="?", default=100_000)
    parser.add_argument("memories", type=int, nargs="?", default=10_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        seen = asyncio.run(measure(Path(name), asked.sessions, asked.memories))
    print(f"{asked.sessions:,} sessions, {asked.memories:,} memories, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    print(table(seen))
    return 0 if all(one.is_fine for one in seen) else 1


if __name__ == "__main__":
    sys.exit(main())
