"""The vector index in Chroma, in a process beside the daemon; or on a Chroma server, whose client is in there."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from memory.chroma_process import STOP_S, ChromaProcess
from memory.chroma_store import COPIED, DROPPED
from memory.index import COLLECTIONS, IndexNotOpen, Near, collection_number, parse_point

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from memory.embed import Fingerprint, Vectors
    from memory.index import Point

PREFIX = "sessiond"
MAX_BATCH = 100
"""Chroma takes 5,461 at once; a search that comes meanwhile waits for one batch."""
OPERATION_S = 60.0


class ChromaIndex:
    """Asks one process, one thing at a time. `url` None: files under `folder`. `prefix` keeps several indexes apart on
    one server."""

    def __init__(
        self, folder: Path, url: str | None = None, *, prefix: str = PREFIX, operation_s: float = OPERATION_S
    ) -> None:
        self._url = url
        self._operation_s = operation_s
        self._process = ChromaProcess(folder, url, prefix)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chroma")

    @property
    def pid(self) -> int | None:
        """The process that has the index open."""
        return self._process.pid

    async def open(self, fingerprint: Fingerprint) -> None:
        await self._ask("open", fingerprint.name)

    async def put(self, points: Sequence[Point], vectors: Vectors) -> None:
        rows: dict[int, list[int]] = {}
        for row, point in enumerate(points):
            rows.setdefault(collection_number(point.pool), []).append(row)
        for number, mine in rows.items():
            for at in range(0, len(mine), MAX_BATCH):
                part = mine[at : at + MAX_BATCH]
                await self._ask("put", number, [points[row] for row in part], vectors[part])

    async def remove(self, points: Sequence[Point]) -> None:
        parts: dict[int, list[Point]] = {}
        for point in points:
            parts.setdefault(collection_number(point.pool), []).append(point)
        for number, mine in parts.items():
            for at in range(0, len(mine), MAX_BATCH):
                await self._ask("remove", number, mine[at : at + MAX_BATCH])

    async def near(self, pools: Sequence[str] | None, vector: Vectors, limit: int) -> list[Near]:
        told = await self._ask("near", pools, vector, limit)
        return [Near(parse_point(key, pool), score) for key, pool, score in told]

    async def points(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for number in range(COLLECTIONS):
            found.update(await self._ask("points", number))
        return found

    async def count(self) -> int:
        return await self._ask("count")

    async def wipe(self, pools: Sequence[str] | None) -> None:
        """A collection is copied without what was removed, beside searches; then the files are cleared.

        On a server its own command does that: `chroma vacuum`.
        """
        if self._url is not None:
            return
        mine = None if pools is None else {collection_number(pool) for pool in pools} | {DROPPED}
        due: list[int] = [number for number in await self._ask("lossy") if mine is None or number in mine]
        for number in due:
            if number != DROPPED:
                await self._copy(number)
        if due:
            await self._ask("clear", due)

    async def _copy(self, number: int) -> None:
        if not await self._ask("begin_copy", number):
            return
        at = 0
        while await self._ask("copy_some", number, at):
            at += COPIED
        await self._ask("end_copy", number)

    async def reset(self) -> None:
        await self._ask("reset")

    async def drop_others(self) -> None:
        await self._ask("drop_others")

    async def close(self) -> None:
        stopping = asyncio.get_running_loop().run_in_executor(self._thread, self._process.stop)
        while not (await asyncio.wait([stopping], timeout=STOP_S))[0]:  # it waits for answers nobody else waits for
            self._process.kill()
        await stopping
        self._thread.shutdown(wait=False)

    async def _ask(self, name: str, *values: Any) -> Any:
        """What a method of ChromaStore answers. Raises IndexBroken; IndexNotOpen without an answer in time, after
        the process was ended: the next question begins another."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._operation_s):
                return await loop.run_in_executor(self._thread, self._process.ask, name, values)
        except TimeoutError as error:
            self._process.kill()
            raise IndexNotOpen(
                f"The vector index did not answer within {self._operation_s:g} s; it is opened again."
            ) from error
