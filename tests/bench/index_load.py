"""What the index costs: loading, a page, a change, a snapshot, memory; with 100 sessions, a tenth, and all.

python -m tests.bench.index_load [sessions]
"""

from __future__ import annotations

import dataclasses
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from sessions.files import OsFiles
from sessions.index import JOURNAL, SNAPSHOT, Index
from sessions.listing import PageQuery
from sessions.record import SessionRecord

if TYPE_CHECKING:
    from collections.abc import Callable

START = datetime(2026, 1, 1, tzinfo=UTC)
ROUNDS = 5


def record(number: int) -> SessionRecord:
    """Every tenth one is a former session of the key before it."""
    former = number % 10 == 9
    chat = number - 1 if former else number
    at = START + timedelta(seconds=number * 37 % 20_000_000)
    return SessionRecord(
        session=f"01J{number:023d}",
        key=f"agent:main:telegram:direct:{chat:010d}",
        agent="main",
        type="direct",
        channel="telegram",
        owner=f"user{chat % 1000}",
        state="former" if former else "active",
        created_at=at,
        active_at=at,
        title="Where is the best place to buy bread in Brno on a Sunday",
        entries=100,
        messages=80,
        last_seq=100,
        size=40_000,
        input_tokens=120_000,
        output_tokens=9_000,
        cache_read=80_000,
        context_tokens=3_000,
        window=128_000,
        cost="0.0123",
        compactions=1,
    )


def resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * resource.getpagesize()


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def built(files: OsFiles, data_dir: Path, count: int) -> Index:
    index, _ = Index.load(files, data_dir, stamp="bench")
    for number in range(count):
        index.put(record(number))
    return index


def loaded(files: OsFiles, data_dir: Path) -> Index:
    """The index after a stop in order."""
    (data_dir / JOURNAL).unlink(missing_ok=True)
    index, report = Index.load(files, data_dir, stamp="bench")
    assert report.clean
    return index


def memory_of_loading(data_dir: Path) -> int:
    """Bytes by which a fresh process grows when it loads the index."""
    run = [sys.executable, "-m", "tests.bench.index_load", "--grown", str(data_dir)]
    return int(subprocess.run(run, check=True, capture_output=True, text=True).stdout)


def print_growth(data_dir: Path) -> None:
    before = resident_bytes()
    index = loaded(OsFiles(), data_dir)
    gc.collect()
    print(resident_bytes() - before)
    assert index.count()


def measure(count: int) -> dict[str, float]:
    """Medians of ROUNDS, for an index of `count` sessions."""
    with tempfile.TemporaryDirectory() as folder:
        data_dir, files = Path(folder), OsFiles()
        index = built(files, data_dir, count)
        prepares: list[float] = []
        commits: list[float] = []
        reads: list[float] = []
        loads: list[float] = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            snapshot = index.prepare_snapshot(clean=True)
            prepares.append(time.perf_counter() - started)
            commits.append(timed(lambda snapshot=snapshot: index.commit_snapshot(snapshot)))
            reads.append(timed((data_dir / SNAPSHOT).read_bytes))
            loads.append(timed(lambda: loaded(files, data_dir)))
        (data_dir / JOURNAL).unlink()
        rare = PageQuery(allowed=lambda _, owner: owner == "nobody")
        soon = START + timedelta(days=400)
        changed = [dataclasses.replace(record(n), active_at=soon) for n in range(0, count, max(1, count // 1000))]
        return {
            "sessions": count,
            "snapshot_mb": (data_dir / SNAPSHOT).stat().st_size / 1e6,
            "read_bytes_s": median(reads),
            "load_s": median(loads),
            "prepare_snapshot_ms": median(prepares) * 1e3,
            "write_snapshot_s": median(commits),
            "page_ms": median(timed(lambda: index.page(PageQuery())) for _ in range(50)) * 1e3,
            "page_nothing_fits_ms": median(timed(lambda: index.page(rare)) for _ in range(ROUNDS)) * 1e3,
            "put_us": median(timed(lambda one=one: index.put(one)) for one in changed) * 1e6,
            "bytes_per_session": memory_of_loading(data_dir) / count,
        }


def main() -> None:
    """Prints a table, and the same as JSON."""
    if sys.argv[1:2] == ["--grown"]:
        print_growth(Path(sys.argv[2]))
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    rows = [measure(size) for size in (100, count // 10, count)]
    for name in rows[0]:
        print(f"{name:>22}", *(f"{row[name]:>14,.3f}" for row in rows))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
