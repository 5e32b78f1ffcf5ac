"""What is kept for Engram's clients beside the memories, in `state.db`: runs, and topics that were taken over."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import orjson

from gateway.opening import told_by
from gateway.surfaces.engram_runs import run_from_row, run_to_row, work_from_json
from gateway.surfaces.engram_scope import ScopedTopic
from memory.errors import MemoryUnavailable
from memory.records import folded_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from datetime import datetime
    from pathlib import Path

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from gateway.surfaces.engram_runs import Run, Work


RUNS_KEPT = timedelta(days=90)


class EngramBook:
    """Opened by the first who needs it. Everything raises MemoryUnavailable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._engine: AsyncEngine | None = None
        self._opening = asyncio.Lock()
        self._topics: dict[str, tuple[ScopedTopic, ...]] = {}

    async def stop(self) -> None:
        if self._engine is not None:
            await self._engine.dispose()

    # --- runs -----------------------------------------------------------------------------------------------------

    async def save(self, run: Run, work: Work | None = None) -> None:
        """Keeps a run as it is now. What it was to learn from goes when it ends."""
        from gateway.surfaces.engram_tables import runs_table

        async with self._connection() as connection:
            await connection.execute(runs_table.delete().where(runs_table.c.id == run.id))
            await connection.execute(runs_table.insert().values(run_to_row(run, work)))

    async def load(self, project: str, run_id: str) -> Run | None:
        """A run of this project."""
        from gateway.surfaces.engram_tables import runs_table

        query = runs_table.select().where(runs_table.c.id == run_id, runs_table.c.project == project)
        async with self._connection() as connection:
            row = (await connection.execute(query)).mappings().first()
        return None if row is None else run_from_row(dict(row))

    async def unfinished(self) -> list[tuple[Run, Work]]:
        """The runs that were cut short, the oldest first."""
        from gateway.surfaces.engram_tables import runs_table

        query = runs_table.select().where(runs_table.c.status == "running").order_by(runs_table.c.at, runs_table.c.id)
        async with self._connection() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [(run_from_row(dict(row)), work_from_json(row["work"])) for row in rows]

    async def forget_old(self, now: datetime) -> None:
        """Runs that ended long ago; they hold ids only, but grow without end."""
        from gateway.surfaces.engram_tables import runs_table

        async with self._connection() as connection:
            old = runs_table.c.ended_at < (now - RUNS_KEPT).isoformat()
            await connection.execute(runs_table.delete().where(old))

    # --- topics ---------------------------------------------------------------------------------------------------

    async def topics(self, project: str) -> tuple[ScopedTopic, ...]:
        """What was taken over from Engram."""
        from gateway.surfaces.engram_tables import topics_table

        if project not in self._topics:
            async with self._connection() as connection:
                query = topics_table.select().where(topics_table.c.project == project)
                rows = (await connection.execute(query)).mappings().all()
            names = ("name", "group", "description", "bounded", "user_scoped")
            self._topics[project] = tuple(
                ScopedTopic(
                    **{name: row[name] for name in names}, scope_properties=tuple(orjson.loads(row["scope_properties"]))
                )
                for row in rows
            )
        return self._topics[project]

    async def put_topics(self, project: str, topics: Sequence[ScopedTopic]) -> None:
        """Keeps them in the place of those with the same names."""
        from gateway.surfaces.engram_tables import topics_table

        async with self._connection() as connection:
            for topic in topics:
                key = folded_name(topic.own_name)
                same = (topics_table.c.project == project, topics_table.c.own_name == key)
                await connection.execute(topics_table.delete().where(*same))
                row = {
                    "project": project,
                    "own_name": key,
                    "name": topic.name,
                    "group": topic.group,
                    "description": topic.description,
                    "bounded": topic.bounded,
                    "user_scoped": topic.user_scoped,
                    "scope_properties": orjson.dumps(topic.scope_properties).decode(),
                }
                await connection.execute(topics_table.insert().values(row))
        self._topics.pop(project, None)

    # --- how far taking over has come ------------------------------------------------------------------------------

    async def slices(self, project: str) -> list[str]:
        """Those that are here already, of a taking over that has not ended."""
        from gateway.surfaces.engram_tables import imports_table

        query = imports_table.select().where(imports_table.c.project == project)
        async with self._connection() as connection:
            return [row["slice"] for row in (await connection.execute(query)).mappings()]

    async def note_slices(self, project: str, slices: Sequence[str], *, ended: bool) -> None:
        """Notes slices; when it has ended all are forgotten, so that the next time begins anew."""
        from gateway.surfaces.engram_tables import imports_table

        async with self._connection() as connection:
            mine = imports_table.c.project == project
            gone = mine if ended else mine & imports_table.c.slice.in_(slices)
            await connection.execute(imports_table.delete().where(gone))
            if slices and not ended:
                rows = [{"project": project, "slice": one} for one in dict.fromkeys(slices)]
                await connection.execute(imports_table.insert(), rows)

    # --- the database ---------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[AsyncConnection]:
        """One transaction."""
        from sqlalchemy.exc import DBAPIError

        from gateway.database import open_database
        from gateway.surfaces.engram_tables import metadata

        try:
            async with self._opening:
                if self._engine is None:
                    self._engine = await open_database(self._path, metadata, synchronous="FULL")
            async with self._engine.begin() as connection:
                yield connection
        except (DBAPIError, OSError) as error:
            why = told_by(error)
            raise MemoryUnavailable(f"state.db cannot be used now ({why}). Try again soon.") from error
