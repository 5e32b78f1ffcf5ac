"""`python -m tests.bench`: measures speed and memory against a stand-in model, as ratios inside one run."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import archive_load, files_load, long_sessions, memory_load, prompt_cost, reach, scale, turn_load
from tests.bench.figures import Figure, changes, render_table, to_json
from tests.bench.processes import daemon, server, write_config
from tests.bench.turn_load import Addresses

RESULTS = Path(".bench")
TOKENS = "40"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    rounds: int
    starts: int
    turns: int
    each: int
    sessions: int
    memories: int
    turns_each: int
    active: int
    active_turns: int
    entries: int
    files: int
    shared_turns: int
    long_turns: int


FULL = Size(
    rounds=5,
    starts=5,
    turns=60,
    each=30,
    sessions=100_000,
    memories=100_000,
    turns_each=50,
    active=1_000,
    active_turns=5,
    entries=100_000,
    files=10_000,
    shared_turns=200,
    long_turns=500,
)
QUICK = Size(
    rounds=5,
    starts=2,
    turns=15,
    each=10,
    sessions=10_000,
    memories=10_000,
    turns_each=1,
    active=200,
    active_turns=2,
    entries=10_000,
    files=1_000,
    shared_turns=200,
    long_turns=100,
)


async def run(size: Size, folder: Path) -> list[Figure]:
    """All figures of one run; everything it writes is under `folder`."""
    async with server("tests.bench.standin", "--tokens", TOKENS) as model_url:
        model = model_url.removesuffix("/v1")
        config = write_config(folder / "config.yaml", model_url)
        async with server("tests.bench.proxy", model) as proxy, daemon(folder / "turns", config) as process:
            at = Addresses(model=model, proxy=proxy, daemon=process.url)
            figures = await turn_load.measure(at, folder, rounds=size.rounds, turns=size.turns, each=size.each)
        figures += await scale.start_of_process(folder, config, size.starts)
        figures += await archive_load.by_size(folder, size.sessions)
        figures += await scale.active_sessions(folder / "active", config, model, size.active, size.active_turns)
        figures += await long_sessions.by_age(
            folder / "aged", config, model, size.entries, rounds=size.rounds, turns=size.turns
        )
        figures += await long_sessions.beside_compaction(folder, config, model, rounds=size.rounds, turns=size.turns)
        figures += await files_load.measure(folder / "files", config, model, files=size.files, rounds=size.rounds)
        figures += await scale.by_sessions(folder, config, model, size.sessions, size.turns_each, size.starts)
    figures += await prompt_cost.measure(folder, shared_turns=size.shared_turns, long_turns=size.long_turns)
    figures += await reach.measure()
    figures += await memory_load.measure(
        folder / "memories", memories=size.memories, pools=size.memories // 100, searches=500, added=size.memories // 10
    )
    return sorted(figures, key=lambda one: one.row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run with 10,000 sessions, about a minute")
    parser.add_argument("--accept", action="store_true", help="keep this run as the one that later runs compare with")
    options = parser.parse_args()
    started = time.perf_counter()
    RESULTS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=RESULTS))
    try:
        figures = asyncio.run(run(QUICK if options.quick else FULL, folder.resolve()))
    finally:
        shutil.rmtree(folder)
    print(render_table(figures))
    print(f"measured in {time.perf_counter() - started:.0f} s")
    report(figures, quick=options.quick, accept=options.accept)


def report(figures: list[Figure], *, quick: bool, accept: bool) -> None:
    """Writes the run to .bench/latest.json and says what became worse since the accepted one of the same size."""
    text = json.dumps({"quick": quick, "figures": to_json(figures)}, indent=1, ensure_ascii=False) + "\n"
    (RESULTS / "latest.json").write_text(text, encoding="utf-8")
    accepted = RESULTS / "accepted.json"
    if accepted.exists():
        print(_compared(figures, json.loads(accepted.read_text(encoding="utf-8")), quick=quick))
    if accept:
        accepted.write_text(text, encoding="utf-8")


def _compared(figures: list[Figure], accepted: dict[str, Any], *, quick: bool) -> str:
    if accepted["quick"] != quick:
        return "the accepted run is of another size: nothing is compared"
    known = {one["name"]: one["compared"] for one in accepted["figures"] if one["compared"] is not None}
    worse = changes(figures, known)
    return "\n".join(worse) if worse else "nothing is over 10 % worse than the accepted run"


if __name__ == "__main__":
    main()
