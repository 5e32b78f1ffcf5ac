"""Kills a daemon while jobs run, webhooks call and replies are delivered, and counts what was lost or doubled.

`python -m tests.crash.job_kills --kills 100` prints the figures as JSON; the exit code is 1 when anything is lost or
doubled.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import yaml
from aiohttp import web

from gateway.jobs.signatures import sign_standard
from tests.bench.standin import Pace, StandIn
from tests.crash.kills import Victim, free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SECRET = "whsec_" + base64.b64encode(b"killed between").decode()
EVERY_S = 2
SETTLE_S = 120
FAILS_EVERY = 7
ENDED = ("ok", "error")
"""A turn that three kills have cut is given up, and told as an error (spec sessions.md, "Turns and queues")."""
WRONG = (
    "lost_calls",
    "doubled_calls",
    "doubled_due",
    "untold_due",
    "again_though_skip",
    "undelivered",
    "two_ids",
    "open",
)


@dataclass
class Receiver:
    """Takes deliveries, slowly, and now and then says that it cannot."""

    asked: int = 0
    got: Counter[str] = field(default_factory=Counter[str])
    run_of: dict[str, str] = field(default_factory=dict[str, str])
    url: str = ""

    async def take(self, request: web.Request) -> web.Response:
        self.asked += 1
        body = await request.json()
        if self.asked % FAILS_EVERY == 0:
            return web.Response(status=503)
        await asyncio.sleep(0.02)
        name = request.headers["webhook-id"]
        self.got[name] += 1
        self.run_of[name] = body["data"]["run"]
        return web.Response()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver, app = Receiver(), web.Application()
    app.router.add_post("/", receiver.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        yield receiver
    finally:
        await runner.cleanup()


def settings(model: str, receiver: str) -> dict[str, Any]:
    chat = {"provider": "openai", "base_url": model, "model": "chat-model", "api_key": "x", "window": 100_000}
    target = {"url": receiver}
    jobs = [
        {"name": rule, "every": f"{EVERY_S}s", "message": rule, "missed": rule, "overlap": "queue", "deliver": target}
        for rule in ("skip", "once", "all")
    ]
    return {
        "models": {"chat": chat},
        "roles": {"chat": "chat"},
        "hooks": [{"name": "build", "secret": SECRET, "template": "{{ body.id }}", "deliver": target}],
        "jobs": {"scheduled": jobs},
        "deliver": {"allow": ["127.0.0.1"]},
        "server": {"rate_limit_per_minute": None},
    }


async def call(client: aiohttp.ClientSession, url: str, number: int) -> str | None:
    """The run of a call; None when nobody answered."""
    body, at, name = f'{{"id": {number}}}'.encode(), int(time.time()), f"call-{number}"
    headers = {
        "webhook-id": name,
        "webhook-timestamp": str(at),
        "webhook-signature": sign_standard(SECRET, name, at, body),
    }
    with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
        async with client.post(f"{url}/hooks/build", data=body, headers=headers) as response:
            if response.status == 202:
                return (await response.json())["run"]
    return None


async def calling(victim: Victim, taken: dict[int, str], stop: asyncio.Event) -> None:
    """Calls again until it is acknowledged, then the next one."""
    number = 0
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(timeout=timeout) as client:
        while not stop.is_set():
            run = await call(client, victim.url, number)
            if run is not None:
                taken[number] = run
                number += 1
            await asyncio.sleep(0.1)


async def get(client: aiohttp.ClientSession, url: str) -> Any:
    async with client.get(url) as response:
        return await response.json()


async def listed(client: aiohttp.ClientSession, url: str, what: str) -> list[dict[str, Any]]:
    """All pages of a list."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = await get(client, f"{url}{'&' if '?' in url else '?'}limit=100{cursor}")
        found += page[what]
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"


async def settled(client: aiohttp.ClientSession, url: str) -> bool:
    """Waits until no run is open and nothing is to be delivered."""
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        detail = (await get(client, f"{url}/readyz"))["parts"]["jobs"].get("detail")
        pending = (await get(client, f"{url}/v1/deliveries?status=pending"))["deliveries"]
        if detail == "0 runs go on, 0 wait" and not pending:
            return True
        await asyncio.sleep(0.5)
    return False


def judge_jobs(runs: dict[str, list[dict[str, Any]]]) -> dict[str, int]:
    """What became of every due time of the three jobs."""
    doubled = untold = again = 0
    for rule, found in runs.items():
        done = Counter(run["due_at"] for run in found if run["status"] not in ("skipped", "interrupted"))
        doubled += sum(count > 1 for count in done.values())
        again += sum(run["trigger"] in ("again", "missed") for run in found) if rule == "skip" else 0
        if rule == "all" and all(run["status"] != "error" for run in found):  # a retry stands for what is due meanwhile
            times = {datetime.fromisoformat(run["due_at"]) for run in found if run["status"] != "skipped"}
            due = (max(times) - min(times)) // timedelta(seconds=EVERY_S) + 1
            left_out = sum(run["skipped"] for run in found)
            untold += max(0, due - len(times) - left_out)
            untold += sum(run["status"] == "interrupted" and not done[run["due_at"]] for run in found)
    return {"doubled_due": doubled, "untold_due": untold, "again_though_skip": again}


async def judge(client: aiohttp.ClientSession, url: str, taken: dict[int, str], receiver: Receiver) -> dict[str, int]:
    runs = {rule: await listed(client, f"{url}/v1/jobs/{rule}/runs", "runs") for rule in ("skip", "once", "all")}
    calls = await listed(client, f"{url}/v1/hooks/build/runs", "runs")
    by_id = {run["id"]: run for run in calls}
    ok = [run["id"] for found in (*runs.values(), calls) for run in found if run["status"] == "ok"]
    ids = Counter(receiver.run_of.values())
    doubled = 0
    for run in calls:
        said = (await get(client, f"{url}/v1/sessions/{run['key']}/transcript"))["entries"]
        kinds = Counter(entry["type"] for entry in said)
        doubled += kinds["user"] != 1 or kinds["assistant"] != (run["status"] == "ok")
    return {
        "calls": len(taken),
        "runs_of_jobs": sum(len(found) for found in runs.values()),
        "interrupted": sum(run["status"] == "interrupted" for found in runs.values() for run in found),
        "delivered": len(receiver.got),
        "delivered_again": sum(count > 1 for count in receiver.got.values()),
        "given_up": sum(run["status"] == "error" for found in (*runs.values(), calls) for run in found),
        "lost_calls": sum(by_id.get(run, {"status": "lost"})["status"] not in ENDED for run in taken.values()),
        "doubled_calls": doubled + max(0, len(by_id) - len(taken) - 1),  # the last caller may not have heard of it
        **judge_jobs(runs),
        "undelivered": sum(run not in ids for run in ok),
        "two_ids": sum(count > 1 for count in ids.values()),
    }


async def run(kills: int, seed: int, *, cold: bool = False) -> dict[str, int | float]:
    """The figures of one run."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        pace = Pace(first_token_ms=100, token_ms=5, tokens=20)
        async with StandIn(pace) as model, receiving() as receiver, aiohttp.ClientSession() as client:
            config = Path(folder) / "config.yaml"
            config.write_text(yaml.safe_dump(settings(model.base_url, receiver.url)))
            victim = Victim(Path(folder) / "data", config, free_port(), cold)
            await victim.start()
            taken: dict[int, str] = {}
            stop = asyncio.Event()
            caller = asyncio.create_task(calling(victim, taken, stop))
            for number in range(kills):
                await asyncio.sleep(chance.uniform(1, 5))
                await victim.kill()
                await victim.start()
                print(f"\rkilled {number + 1} of {kills}", end="", file=sys.stderr)
            await asyncio.sleep(EVERY_S + 1)
            stop.set()
            await caller
            for rule in ("skip", "once", "all"):
                async with client.post(f"{victim.url}/v1/jobs/{rule}/pause") as response:
                    assert response.status == 200, await response.text()
            still = not await settled(client, victim.url)
            figures = await judge(client, victim.url, taken, receiver)
            await victim.stop()
            print(file=sys.stderr)
            return {"kills": kills, **figures, "open": int(still)}


def failed(figures: dict[str, int | float]) -> bool:
    """Whether anything went wrong that must not."""
    return any(figures[name] for name in WRONG)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    figures = asyncio.run(run(given.kills, given.seed, cold=True))
    print(json.dumps(figures, indent=1))
    sys.exit(failed(figures))


if __name__ == "__main__":
    main()
