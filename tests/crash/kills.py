"""Kills a daemon under load, again and again, and counts what was lost or doubled.

`python -m tests.crash.kills --kills 200 --sessions 32` prints the figures as JSON; the exit code is 1 when anything is
lost, doubled, out of order or unanswered. With `--commits` each kill waits until a compaction writes its new file, and
falls within a few milliseconds of that; `between` then counts those that found a file no index knew of.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml

from sessions.context import answered_turns
from sessions.entries import AssistantEntry, CarriedEntry, CompactionEntry, Entry, UserEntry
from sessions.lines import scan
from tests.bench.standin import Pace, StandIn
from tests.crash.forked import Forked

START_S = 30
COMMIT_S = 0.012
"""A commit takes about so long: kills fall into the time from before its first write to after its last."""
SETTLE_S = 60
FILLER = " and goes on" * 80
"""So that a summary is worth it after a few messages."""


@dataclass
class Load:
    """What the frontends know: messages that were acknowledged, by key and in order."""

    acknowledged: dict[str, list[str]] = field(default_factory=dict)
    retried: int = 0
    refused: int = 0


@dataclass
class Victim:
    """The daemon as a process of its own. `cold`: as a person starts it, with everything to import."""

    data_dir: Path
    config: Path
    port: int
    cold: bool = False
    process: asyncio.subprocess.Process | Forked | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        command = ["serve", "--config", str(self.config), "--data-dir", str(self.data_dir), "--port", str(self.port)]
        if self.cold:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gateway", *command, stderr=asyncio.subprocess.DEVNULL
            )
        else:
            self.process = Forked(command)
            await self.process.start()
        deadline = time.monotonic() + START_S
        async with aiohttp.ClientSession() as client:
            while time.monotonic() < deadline:
                with contextlib.suppress(aiohttp.ClientError, OSError):
                    async with client.get(f"{self.url}/healthz") as response:
                        if response.status == 200:
                            return
                if self.process.returncode is not None:
                    raise RuntimeError(f"the daemon ended with {self.process.returncode} at its start")
                await asyncio.sleep(0.02)
        raise RuntimeError("the daemon did not get ready")

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    async def commits(self, limit_s: float) -> None:
        """Waits until a further generation begins to appear in the transcripts, at most `limit_s`."""
        known = generations(self.data_dir)
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and generations(self.data_dir) <= known:
            await asyncio.sleep(0.0005)

    async def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        await self.process.wait()


async def talk(victim: Victim, key: str, load: Load, rng: random.Random, stop: asyncio.Event) -> None:
    """One chat: sends the next message until it is acknowledged, then the one after it."""
    acknowledged = load.acknowledged.setdefault(key, [])
    number = 0
    async with aiohttp.ClientSession() as client:
        while not stop.is_set():
            number += 1
            text = f"{key} says {number}{FILLER}"
            body = {"text": text, "request_id": f"{key} {number}"}
            wait = rng.random() < 0.3
            while not stop.is_set():
                outcome = await send(client, f"{victim.url}/v1/sessions/{key}/messages?wait={int(wait)}", body)
                if outcome == "taken":
                    acknowledged.append(text)
                    break
                load.refused += outcome == "refused"
                load.retried += outcome == "lost"
                await asyncio.sleep(0.05)
            if rng.random() < 0.05:
                await send(client, f"{victim.url}/v1/sessions/{key}/messages?wait=0", {"text": "/new"})


async def send(client: aiohttp.ClientSession, url: str, body: dict[str, str]) -> str:
    try:
        async with client.post(url, json=body, timeout=aiohttp.ClientTimeout(total=20)) as response:
            answer = await response.json(content_type=None)
            # a turn that failed after too many kills was accepted all the same: its answer names it
            return "taken" if response.status in (200, 202) or answer.get("turn") else "refused"
    except (aiohttp.ClientError, OSError, TimeoutError):
        return "lost"


async def settle(victim: Victim) -> bool:
    """Waits until no turn is open any more."""
    deadline = time.monotonic() + SETTLE_S
    async with aiohttp.ClientSession() as client:
        while time.monotonic() < deadline:
            async with client.get(f"{victim.url}/metrics") as response:
                text = await response.text()
            if "sessiond_turns_running 0.0" in text:
                return True
            await asyncio.sleep(0.2)
    return False


def judge(data_dir: Path, load: Load) -> dict[str, int]:
    """Compares what the files hold with what was acknowledged."""
    said: Counter[str] = Counter()
    answered: set[str] = set()
    order: dict[str, list[tuple[str, int, str]]] = {}
    problems = compactions = leftovers = 0
    for session, paths in by_session(data_dir).items():
        entries: list[Entry] = []
        for path in paths:
            content = scan(path.read_bytes())
            problems += len(content.problems)
            for problem in content.problems:
                print(f"{path.name}: {problem}", file=sys.stderr)
            entries += [e for e in content.entries if not isinstance(e, CarriedEntry)]
        moved = sum(isinstance(e, CompactionEntry) for e in entries)
        compactions += moved
        leftovers += len(paths) - 1 - moved
        done = answered_turns(entries)
        replies = Counter(e.turn for e in entries if isinstance(e, AssistantEntry) and e.finish != "tool_calls")
        for turn, count in replies.items():
            if count > 1:
                problems += 1
                print(f"{session}: {turn} has {count} replies", file=sys.stderr)
        for entry in entries:
            if isinstance(entry, UserEntry):
                said[entry.text] += 1
                key = entry.text.split(" says ")[0]
                order.setdefault(key, []).append((session, entry.seq, entry.text))
                if entry.turn in done:
                    answered.add(entry.text)
    sent = [text for texts in load.acknowledged.values() for text in texts]
    disordered = 0
    for key, texts in load.acknowledged.items():
        stored = [text for _, _, text in sorted(order.get(key, []))]
        positions = [stored.index(text) for text in texts if text in stored]
        disordered += positions != sorted(positions)
    return {
        "acknowledged": len(sent),
        "lost": sum(1 for text in sent if said[text] == 0),
        "doubled": sum(1 for count in said.values() if count > 1),
        "unanswered": sum(1 for text in sent if text not in answered),
        "out_of_order": disordered,
        "damaged_or_answered_twice": problems,
        "compactions": compactions,
        "leftovers": leftovers,
    }


def generations(data_dir: Path) -> set[str]:
    """Names of the files that hold, or will hold, a later generation of a session."""
    folder = data_dir / "transcripts" / "main"
    return {entry.name for entry in os.scandir(folder) if ".1.jsonl" not in entry.name} if folder.exists() else set()


def unpointed(data_dir: Path) -> int:
    """New generations on disk whose old file does not say that the session goes on there: a kill fell between."""
    found = 0
    for paths in by_session(data_dir).values():
        moved = sum(isinstance(e, CompactionEntry) for path in paths for e in scan(path.read_bytes()).entries)
        found += len(paths) - 1 > moved
    return found


def by_session(data_dir: Path) -> dict[str, list[Path]]:
    """The transcripts of each session, oldest generation first."""
    found: dict[str, list[Path]] = {}
    for path in (data_dir / "transcripts").rglob("*.jsonl"):
        found.setdefault(path.name.split(".")[0], []).append(path)
    return {name: sorted(found[name], key=lambda path: int(path.name.split(".")[1])) for name in sorted(found)}


async def run(
    kills: int, sessions: int, seed: int, *, commits: bool = False, cold: bool = False
) -> dict[str, int | float]:
    """The figures of one run. `commits`: the kills fall into the commits of compactions."""
    rng = random.Random(seed)
    between = 0
    with tempfile.TemporaryDirectory() as folder:
        async with StandIn(Pace(first_token_ms=5, token_ms=1, tokens=10)) as model:
            config = Path(folder) / "config.yaml"
            chat = {"provider": "openai", "base_url": model.base_url, "model": "chat-model", "api_key": "x"}
            settings = {
                "models": {"chat": {**chat, "window": 2000, "max_output": 100}},
                "roles": {"chat": "chat", "summary": "offline"},
                "compaction": {"every_messages": 4, "min_messages": 2, "overlap_messages": 2},
                "server": {"rate_limit_per_minute": None},
            }
            config.write_text(yaml.safe_dump(settings))
            victim = Victim(Path(folder) / "data", config, free_port(), cold)
            await victim.start()
            load, stop = Load(), asyncio.Event()
            started = time.monotonic()
            keys = [f"agent:main:load:group:{n}" for n in range(sessions)]
            talks = [asyncio.create_task(talk(victim, key, load, random.Random(rng.random()), stop)) for key in keys]
            for number in range(kills):
                if commits:
                    await victim.commits(limit_s=10)
                    await asyncio.sleep(rng.uniform(0, COMMIT_S))
                else:
                    await asyncio.sleep(rng.uniform(0.1, 3.0))
                await victim.kill()
                between += unpointed(victim.data_dir) if commits else 0
                await victim.start()
                print(f"\rkilled {number + 1} of {kills}", end="", file=sys.stderr)
            stop.set()
            await asyncio.gather(*talks)
            settled = await settle(victim)
            await victim.stop()
            figures = judge(victim.data_dir, load)
            print(file=sys.stderr)
            return {
                "kills": kills,
                "sessions": sessions,
                "seconds": round(time.monotonic() - started, 1),
                **figures,
                "between": between,
                "retried": load.retried,
                "refused": load.refused,
                "unsettled": int(not settled),
            }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def failed(figures: dict[str, int | float]) -> bool:
    """Whether anything went wrong that must not."""
    wrong = ("lost", "doubled", "unanswered", "out_of_order", "damaged_or_answered_twice", "unsettled", "leftovers")
    return any(figures[name] for name in wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--sessions", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commits", action="store_true", help="kill while compactions are being committed")
    given = parser.parse_args()
    figures = asyncio.run(run(given.kills, given.sessions, given.seed, commits=given.commits, cold=True))
    print(json.dumps(figures, indent=1))
    sys.exit(failed(figures))


if __name__ == "__main__":
    main()
