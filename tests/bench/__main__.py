"""Runs every measure and prints a table; `--quick` runs them small. Results go to .bench/latest.json."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path

from tests.bench.measures import Row, measure_all

RESULTS = Path(".bench")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, fewer rounds")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measure_all(Path(folder), quick=given.quick))
    accepted = RESULTS / "accepted.json"
    before: dict[str, float] = json.loads(accepted.read_text()) if accepted.exists() else {}
    for row in rows:
        print(_line(row, before.get(row.name)))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "latest.json").write_text(json.dumps({row.name: row.value for row in rows}, indent=1))


def _line(row: Row, before: float | None) -> str:
    goal = "" if row.goal is None else f"goal {row.goal:g}"
    verdict = "" if row.met is None else ("met" if row.met else "MISSED")
    change = "" if not before else f"{100 * (row.value / before - 1):+.0f} % of last accepted"
    return f"{row.name:<58} {row.value:>10.3f} {row.unit:<10} {goal:<12} {verdict:<7} {row.spread} {change}".rstrip()


if __name__ == "__main__":
    main()
