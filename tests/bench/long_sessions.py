"""Rows 4 and 5: what the age of a session, and a compaction that runs in it, cost a turn."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from statistics import median
from typing import TYPE_CHECKING

import aiohttp
import yaml

from sessions.entries import AssistantEntry, Covers, Header, SummaryEntry, UserEntry, turn_id
from sessions.files import OsFiles
from sessions.index import Index
from sessions.transcript import Transcript, transcript_path
from tests.bench.figures import Figure, figure
from tests.bench.index_load import record
from tests.bench.processes import daemon, server
from tests.bench.seed import ANSWER, QUESTION
from tests.bench.turn_load import Addresses, Load

if TYPE_CHECKING:
    from pathlib import Path

    from sessions.record import SessionRecord

PER_GENERATION = 100
SUMMARY = {"topics": ["bread"], "facts": ["The bakery at the market opens at seven."], "language": "en"}
HANGS_MS = "30000"


def sow_old(data_dir: Path, sizes: list[int]) -> list[str]:
    """One session for each size in entries, a hundred of them in each generation. Returns their keys."""
    files = OsFiles()
    index, _ = Index.load(files, data_dir, stamp="seed")
    keys: list[str] = []
    for number, size in enumerate(sizes):
        written = _aged(files, data_dir, record(1_000_000 + number), size)
        index.put(written)
        keys.append(written.key)
    index.commit_snapshot(index.prepare_snapshot(clean=True))
    return keys


def _aged(files: OsFiles, data_dir: Path, one: SessionRecord, size: int) -> SessionRecord:
    generations = max(1, size // PER_GENERATION)
    seq, bytes_ = 0, 0
    for generation in range(1, generations + 1):
        header = Header(session=one.session, generation=generation, key=one.key, agent=one.agent, at=one.created_at)
        path = transcript_path(data_dir, one.agent, one.session, generation)
        transcript = Transcript.create(files, path, header, sync=False)
        entries: list[SummaryEntry | UserEntry | AssistantEntry] = []
        if generation > 1:
            seq += 1
            covers = Covers(from_seq=1, to_seq=seq - 1, sha256="0" * 64)
            entries.append(
                SummaryEntry(
                    summary=SUMMARY, covers=covers, replay_from=seq, seq=seq, id=f"s{seq}", at=one.active_at, tokens=30
                )
            )
        for _ in range(PER_GENERATION // 2):
            turn = turn_id(one.session, seq + 1)
            entries += [
                UserEntry(text=QUESTION, tokens=13, turn=turn, seq=seq + 1, id=f"u{seq + 1}", at=one.active_at),
                AssistantEntry(text=ANSWER, tokens=30, turn=turn, seq=seq + 2, id=f"a{seq + 2}", at=one.active_at),
            ]
            seq += 2
        transcript.append(entries)
        bytes_ = transcript.size
    return dataclasses.replace(
        one, entries=seq, messages=seq, last_seq=seq, size=bytes_, generation=generations, context_tokens=None
    )


async def by_age(folder: Path, config: Path, model: str, size: int, rounds: int, turns: int) -> list[Figure]:
    """Row 4: a turn in sessions of 100 entries, a tenth of `size`, and `size`."""
    sizes = [PER_GENERATION, size // 10, size]
    keys = await asyncio.to_thread(sow_old, folder, sizes)
    async with daemon(folder, config) as process, aiohttp.ClientSession() as client:
        load = Load(client, Addresses(model=model, proxy="", daemon=process.url))
        times = await _interleaved(load, keys, rounds, turns)
    young = times[0]
    found = [figure(4, f"a turn in a session of {PER_GENERATION} entries", young, "ms")]
    for entries, taken in zip(sizes[1:], times[1:], strict=True):
        ratios = [old / new for old, new in zip(taken, young, strict=True)]
        found.append(figure(4, f"of {entries:,} entries, against that", ratios, "x", goal=1.1, compared=median(ratios)))
    return found


async def _interleaved(load: Load, keys: list[str], rounds: int, turns: int) -> list[list[float]]:
    """Median milliseconds of a turn per round for each key; the first turns of each are left out."""
    found: list[list[float]] = [[] for _ in keys]
    for key in keys:
        for _ in range(3):
            await load.turn(key)
    for _ in range(rounds):
        taken: list[list[float]] = [[] for _ in keys]
        for _ in range(turns):
            for key, times in zip(keys, taken, strict=True):
                times.append(await load.turn(key))
        for all_rounds, times in zip(found, taken, strict=True):
            all_rounds.append(median(times))
    return found


async def beside_compaction(folder: Path, config: Path, model: str, rounds: int, turns: int) -> list[Figure]:
    """Row 5: a turn while a summary model hangs for 30 s in the same session, against a session without."""
    async with server("tests.bench.standin", "--first-token-ms", HANGS_MS) as writer:
        slow = _with_summary_model(config, folder / "slow.yaml", writer)
        async with daemon(folder / "slow", slow) as process, aiohttp.ClientSession() as client:
            load = Load(client, Addresses(model=model, proxy="", daemon=process.url))
            keys = [f"agent:main:bench:direct:{name}" for name in ("calm", "compacting")]
            for _ in range(10):
                for key in keys:
                    await load.turn(key)
            calm: list[float] = []
            busy: list[float] = []
            for _ in range(rounds):
                waiting = asyncio.create_task(_compact(client, f"{process.url}/v1/sessions/{keys[1]}/compact"))
                await _asked(client, writer)
                one, other = await _interleaved(load, keys, 1, turns)
                calm += one
                busy += other
                if waiting.done():
                    raise RuntimeError(f"the compaction ended before the turns did: {waiting.result()}")
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await waiting
    ratios = [b / a for a, b in zip(calm, busy, strict=True)]
    return [
        figure(5, "a turn with no compaction", calm, "ms"),
        figure(5, "while one runs, against that", ratios, "x", goal=1.1, compared=median(ratios)),
    ]


def _with_summary_model(config: Path, path: Path, writer: str) -> Path:
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    settings["models"]["writer"] = {**settings["models"]["chat"], "base_url": writer, "model": "writer"}
    settings["roles"] = {"chat": "chat", "summary": "writer"}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


async def _compact(client: aiohttp.ClientSession, url: str) -> str:
    async with client.post(url, json={}) as response:
        return await response.text()


async def _asked(client: aiohttp.ClientSession, writer: str) -> None:
    """Until the summary model has been asked: from then on it hangs."""
    for _ in range(500):
        async with client.get(f"{writer.removesuffix('/v1')}/requests") as response:
            if await response.json():
                return
        await asyncio.sleep(0.01)
    raise RuntimeError("the summary model was not asked")
