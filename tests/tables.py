"""A `state.db` that has its tables, made once a process: making them is half of what a small test takes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import gateway.database
import gateway.jobs.tables
import gateway.surfaces.engram_tables
from gateway.database import open_database
from memory.database import Records

TABLES = (gateway.database.metadata, gateway.jobs.tables.metadata, gateway.surfaces.engram_tables.metadata)
EMPTY: list[bytes] = []


async def make_tables(path: Path) -> None:
    """Before a database is opened for the first time; who opens it then finds every table in its place."""
    if not EMPTY:
        with tempfile.TemporaryDirectory() as folder:
            for tables in TABLES:
                engine = await open_database(Path(folder) / "empty.db", tables)
                await Records(engine).migrate()
                await engine.dispose()
            EMPTY.append((Path(folder) / "empty.db").read_bytes())
    if not path.exists():
        path.write_bytes(EMPTY[0])
