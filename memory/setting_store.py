"""What people have set for themselves, by name; what nobody has set is as configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select, update

from memory.access import writable_pool
from memory.records import parse_pool
from memory.tables import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy.ext.asyncio import AsyncConnection

    from memory.database import Records
    from memory.records import Pool, Viewer


class SettingStore:
    """Settings of pools: JSON values by name."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def of(self, viewer: Viewer, pool: Pool | None = None) -> dict[str, Any]:
        """Everything a pool has set; `pool` None: the viewer's own. Raises NotThere."""
        async with self._records.reading() as connection:
            chosen = await writable_pool(connection, viewer, pool)
            return await _all_of(connection, chosen)

    async def put(self, viewer: Viewer, pool: Pool | None, name: str, value: Any) -> None:
        """Sets one; None: as configured again. Raises NotThere."""
        await self.change(viewer, pool, lambda _: {name: value})

    async def change(
        self, viewer: Viewer, pool: Pool | None, decide: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    ) -> None:
        """Sets what is decided when all that is set is known, as one write. Raises NotThere."""
        async with self._records.writing() as connection:
            chosen = await writable_pool(connection, viewer, pool)
            for name, value in decide(await _all_of(connection, chosen)).items():
                same = settings.c.pool == str(chosen), settings.c.name == name
                written = await connection.execute(update(settings).where(*same).values(value=value))
                if not written.rowcount:
                    await connection.execute(insert(settings).values(pool=str(chosen), name=name, value=value))

    async def one(self, pool: Pool, name: str) -> Any:
        """None: nothing was set. For upkeep only."""
        query = select(settings.c.value).where(settings.c.pool == str(pool), settings.c.name == name)
        async with self._records.reading() as connection:
            return (await connection.execute(query)).scalar()

    async def everybody(self, name: str) -> dict[Pool, Any]:
        """All who have set something. For upkeep only."""
        query = select(settings.c.pool, settings.c.value).where(settings.c.name == name, settings.c.value.is_not(None))
        async with self._records.reading() as connection:
            return {parse_pool(row[0]): row[1] for row in await connection.execute(query)}


async def _all_of(connection: AsyncConnection, pool: Pool) -> dict[str, Any]:
    query = select(settings.c.name, settings.c.value).where(settings.c.pool == str(pool))
    return {row[0]: row[1] for row in await connection.execute(query)}
