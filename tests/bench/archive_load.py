"""What the archive costs: taking entries in, and a search in one chat, of one person and everywhere.

python -m tests.bench.archive_load [entries]
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.clock import SystemClock
from gateway.search import ArchiveSearch, ByWords
from memory.text import cut
from sessions.archive import DATABASE, Archive
from sessions.entries import AssistantEntry, UserEntry
from sessions.files import OsFiles
from sessions.follow import follow
from sessions.found import Scope
from sessions.keys import parse_key
from sessions.policy import SessionsPolicy
from sessions.search import SearchIndex
from sessions.store import SessionStore
from tests.bench.figures import Figure, figure, quantile, render_table

if TYPE_CHECKING:
    from sessions.entries import Entry

PER_SESSION = 100
PER_PERSON = 10
VOCABULARY = 20_000
WORDS = 20
SEARCHES = 60
ROUNDS = 5
BATCH = 20


def said(chance: random.Random) -> str:
    """Words as unevenly used as in speech."""
    return " ".join(f"word{int(VOCABULARY ** chance.random())}" for _ in range(chance.randint(4, 2 * WORDS)))


async def sow(store: SessionStore, entries: int, chance: random.Random) -> None:
    """Sessions of PER_SESSION entries; each person has PER_PERSON of them."""
    for number in range(entries // PER_SESSION):
        key = parse_key(f"agent:main:web:direct:{number}")
        session = await store.active(key, owner=f"person{number // PER_PERSON}")
        drafts: list[Entry] = [
            kind(text=said(chance)) for _ in range(PER_SESSION // 2) for kind in (UserEntry, AssistantEntry)
        ]
        await store.append(session, *drafts)


def taken_in(store: SessionStore, data_dir: Path) -> float:
    """Entries a second into a new index, by the archive's own steps, without its rests."""
    index, _ = SearchIndex.open(data_dir / DATABASE, cut)
    sessions = store.index.sessions()
    started = time.perf_counter()
    for start in range(0, len(sessions), BATCH):
        left = sessions[start : start + BATCH]
        while left:
            left = list(follow(index, OsFiles(), data_dir, [(one, store.index.find(one)) for one in left]).unfinished)
    took = time.perf_counter() - started
    index.close()
    return len(sessions) * PER_SESSION / took


async def searches(search: ArchiveSearch, scopes: list[Scope | None], chance: random.Random) -> list[float]:
    """Milliseconds of searches for three words, with what stands around the hits."""
    taken: list[float] = []
    for number in range(SEARCHES):
        words = " ".join(said(chance).split()[:3])
        started = time.perf_counter()
        await search.search(words, scopes[number % len(scopes)], allowed=lambda record, message: True, limit=10)
        taken.append((time.perf_counter() - started) * 1e3)
    return taken


async def measure(folder: Path, entries: int) -> list[Figure]:
    """All figures for `entries` entries; everything is written under `folder`."""
    chance, clock, files = random.Random(1), SystemClock(), OsFiles()
    store = SessionStore(folder, SessionsPolicy(durability="flush"), files, clock)
    await store.start()
    loops = [asyncio.create_task(store.run())]
    await sow(store, entries, chance)
    rates = [taken_in(store, folder)]
    archive = Archive(folder, files, store, clock, cut)
    loops.append(asyncio.create_task(archive.run()))
    search = ArchiveSearch(archive, store, [ByWords(archive, clock)])
    await archive.look(lambda index: None)
    while not archive.complete:
        await asyncio.sleep(0.05)
    people = entries // PER_SESSION // PER_PERSON
    scopes: dict[str, list[Scope | None]] = {
        "in one chat": [Scope(keys=(f"agent:main:web:direct:{n}",)) for n in range(SEARCHES)],
        "of one person": [Scope(owners=(f"person{n % people}",)) for n in range(SEARCHES)],
        "everywhere": [None],
    }
    figures = [figure(0, f"archive: entries taken in a second, {entries:,}", rates, "/s", more_is_better=True)]
    for name, where in scopes.items():
        rounds = [await searches(search, where, chance) for _ in range(ROUNDS)]
        for share in (0.5, 0.95):
            title = f"archive: search {name}, p{share * 100:.0f}, {entries:,} entries"
            figures.append(figure(0, title, [quantile(taken, share) for taken in rounds], "ms"))
    size = (folder / DATABASE).stat().st_size / entries
    figures.append(figure(0, f"archive: bytes an entry, {entries:,}", [size], "B"))
    for loop in loops:
        loop.cancel()
    await asyncio.gather(*loops, return_exceptions=True)
    await archive.stop()
    await store.stop()
    return figures


async def by_size(folder: Path, entries: int) -> list[Figure]:
    """With all entries, and with a tenth of them."""
    found: list[Figure] = []
    for size in (entries // 10, entries):
        found += await measure(folder / f"archive-{size}", size)
        shutil.rmtree(folder / f"archive-{size}")
    return found


def main() -> None:
    entries = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        print(render_table(asyncio.run(by_size(Path(folder), entries))))


if __name__ == "__main__":
    main()
