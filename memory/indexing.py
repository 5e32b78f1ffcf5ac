"""Keeps the vector index equal to the texts it stands for, beside the replies, whatever happens to either."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from memory.embed import EmbeddingFailed
from memory.index import IndexAway, IndexBroken, IndexNotOpen, parse_point, point_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from memory.embed import Embedder
    from memory.index import Near, Point, VectorIndex
    from memory.policy import IndexPolicy

BATCH = 256
RETRY_S = 5.0
HOPELESS = 3
"""After more texts than this that fail in a row the model is asked for one that every model takes."""
RETRY_ROUNDS = 6
ENDED_TWICE = 100
"""Within so few answers, who has the index open ends because of what is in it."""

Serving = Literal["starting", "building", "serving", "waiting"]


@dataclass(frozen=True, slots=True)
class Indexable:
    """A text that wants a vector. `id` is unique among all sources."""

    id: str
    pool: str
    text: str


@dataclass(frozen=True, slots=True)
class IndexChange:
    """One row of a source's feed; `item` None: the text is gone."""

    number: int
    id: str
    item: Indexable | None


class SourceFailed(Exception):
    """A source cannot be read at present; it is asked again."""


class IndexSource(Protocol):
    """Where texts come from: memories, files, transcripts. Every method raises SourceFailed."""

    def everything(self) -> AsyncIterator[Sequence[Indexable]]:
        """All texts that want a vector now, in pages."""
        ...

    async def latest(self) -> int:
        """The number of the newest change."""
        ...

    async def changes(self, after: int, limit: int) -> Sequence[IndexChange]:
        """What changed since, oldest first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStatus:
    """How far the index is. `failed`: texts the model refused; they are found by keywords only. `builds`: how often it
    was compared with its sources and found, or made, whole."""

    state: Serving
    fingerprint: str | None
    done: int
    total: int
    failed: int
    problem: str | None
    builds: int


class Indexer:
    """The loop of the index. `near` answers only while the index is known to be whole."""

    def __init__(
        self,
        *,
        embedder: Embedder,
        index: VectorIndex,
        sources: Sequence[IndexSource],
        policy: IndexPolicy,
        sleep: Callable[[float], Awaitable[None]],
        on_problem: Callable[[str | None], None] = lambda _: None,
        on_new: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_new`: every text there is gets its vector anew, for a new model or since the index was damaged."""
        self._embedder = embedder
        self._index = index
        self._sources = sources
        self._policy = policy
        self._sleep = sleep
        self._on_problem = on_problem
        self._on_new = on_new
        self._builds = 0
        self._state: Serving = "starting"
        self._fingerprint: str | None = None
        self._held: dict[str, Point] = {}
        self._read = [0] * len(sources)
        self._failed: dict[str, Indexable] = {}
        self._done = self._total = 0
        self._problem: str | None = None
        self._wake = asyncio.Event()
        self._rebuild = False
        self._suspect: IndexBroken | None = None
        self._answers = ENDED_TWICE
        self._to_wipe: set[str] = set()
        self._caught_up: list[asyncio.Future[None]] = []

    @property
    def status(self) -> IndexStatus:
        return IndexStatus(
            state=self._state,
            fingerprint=self._fingerprint,
            done=self._done,
            total=self._total,
            failed=len(self._failed),
            problem=self._problem,
            builds=self._builds,
        )

    def wake(self) -> None:
        """Something changed in a source, or it is time to count the points again."""
        self._wake.set()

    def rebuild(self) -> None:
        """Makes the index anew; keywords serve meanwhile."""
        self._rebuild = True
        self._wake.set()

    async def caught_up(self) -> None:
        """Returns when everything that had changed by now is in the index."""
        future = asyncio.get_running_loop().create_future()
        self._caught_up.append(future)
        self._wake.set()
        await future

    async def wipe(self, pools: Iterable[str]) -> None:
        """Returns when no byte of what was removed from these pools is in a file of the index."""
        self._to_wipe.update(pools)
        await self.caught_up()

    def wipe_soon(self, pools: Iterable[str]) -> None:
        """The same, without waiting; for sources, which tell of what is gone."""
        self._to_wipe.update(pools)

    async def near(self, pools: Sequence[str] | None, text: str, limit: int) -> list[Near]:
        """Proposals for a query. Raises EmbeddingFailed and IndexBroken; then keywords have to do."""
        if self._state != "serving":
            raise IndexBroken(self._problem or "The vector index is being built.")
        (vector,) = await self._embedder.embed_queries([text])
        try:
            found = await self._index.near(pools, vector, limit)
        except IndexBroken as error:
            self._state = "waiting"
            self._suspect = error
            self._wake.set()
            raise
        self._answers += 1
        return found

    async def run(self) -> None:
        """Builds, follows the changes, and mends what breaks. Never raises for a model or an index that is down."""
        broken = False
        while True:
            try:
                if broken or self._rebuild:
                    self._rebuild = False
                    await self._index.reset()
                    broken = False
                await self._build()
                await self._follow()
            except EmbeddingFailed as error:
                await self._pause(str(error))
            except IndexBroken as error:
                broken = broken or self._is_damage(error)
                await self._pause(str(error))
            except SourceFailed as error:
                await self._pause(str(error))

    async def close(self) -> None:
        """Closes the index. Call it when `run` has ended."""
        await self._index.close()

    def _is_damage(self, error: IndexBroken) -> bool:
        if isinstance(error, IndexNotOpen):
            ended_twice, self._answers = self._answers < ENDED_TWICE, 0
            return ended_twice
        return not isinstance(error, IndexAway)

    async def _pause(self, problem: str) -> None:
        self._state = "waiting"
        self._tell(problem)
        await self._sleep(RETRY_S)

    def _tell(self, problem: str | None) -> None:
        if problem != self._problem:
            self._problem = problem
            self._on_problem(problem)

    # --- building ---------------------------------------------------------------------------------------------------

    async def _build(self) -> None:
        """Compares the index with the sources point by point, and makes it equal. Serves when it has been counted."""
        fingerprint = await self._embedder.prepare()
        self._state = "building"
        self._fingerprint = fingerprint.name
        await self._index.open(fingerprint)
        self._suspect = None  # searches that came while it was not open
        self._read = [await source.latest() for source in self._sources]
        there = await self._index.points()
        self._held = {}
        self._failed = {}
        self._done, self._total = 0, 0
        for source in self._sources:
            async for page in source.everything():
                self._match(page, there)
        await self._index.remove([parse_point(key, pool) for key, pool in there.items()])
        await self._wipe()  # no purge waits for a model that is down
        if self._total and not self._done:
            self._on_new()
        if self._done < self._total:
            for source in self._sources:
                async for page in source.everything():
                    await self._fill(page)
                    await self._take_changes()  # a first build takes long, and what is deleted goes at once
                    await self._wipe()
        await self._verify()
        await self._index.drop_others()
        self._done, self._total = len(self._held), len(self._held) + len(self._failed)
        self._state = "serving"
        self._builds += 1
        self._tell(None)
        await self._index.wipe(None)

    def _match(self, page: Sequence[Indexable], there: dict[str, str]) -> None:
        """Takes what the index has already out of `there`; so what is deleted goes before anything is computed."""
        self._total += len(page)
        for item in page:
            point = point_of(item.id, item.pool, item.text)
            if there.get(point.key) == point.pool:
                del there[point.key]
                self._held[item.id] = point
                self._done += 1

    async def _fill(self, page: Sequence[Indexable]) -> None:
        """Puts in what is missing."""
        missing = [(point_of(item.id, item.pool, item.text), item) for item in page if item.id not in self._held]
        for at in range(0, len(missing), BATCH):
            await self._put(missing[at : at + BATCH])

    async def _put(self, part: Sequence[tuple[Point, Indexable]]) -> None:
        try:
            vectors = await self._embedder.embed_passages([item.text for _, item in part])
        except EmbeddingFailed:
            await self._put_one_by_one(part)
            return
        await self._index.put([point for point, _ in part], vectors)
        self._answers += 1
        for point, item in part:
            self._held[item.id] = point
            self._failed.pop(item.id, None)
        self._done += len(part)

    async def _put_one_by_one(self, part: Sequence[tuple[Point, Indexable]]) -> None:
        """A text that a model refuses does not keep the others out. Raises EmbeddingFailed when it is down."""
        in_row = 0
        for point, item in part:
            try:
                vectors = await self._embedder.embed_passages([item.text])
            except EmbeddingFailed:
                in_row += 1
                if in_row > HOPELESS or (self._done == 0 and in_row == len(part)):
                    await self._ask_for_any()
                    in_row = 0
                self._failed[item.id] = item
                continue
            in_row = 0
            await self._index.put([point], vectors)
            self._answers += 1
            self._held[item.id] = point
            self._failed.pop(item.id, None)
            self._done += 1

    async def _ask_for_any(self) -> None:
        """Raises EmbeddingFailed when the model is down. The number is for caches, which know no such text."""
        await self._embedder.embed_passages([f"page {secrets.randbelow(10**6)}"])

    async def _verify(self) -> None:
        """A build that left something out is none. Raises IndexBroken."""
        there = await self._index.points()
        held = {point.key: point.pool for point in self._held.values()}
        if there != held:
            missing, extra = len(held.keys() - there.keys()), len(there.keys() - held.keys())
            raise IndexBroken(f"The vector index lacks {missing} and has {extra} too many after it was built.")

    # --- following --------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Takes over changes as they come, and counts; each time it is woken. Returns when a rebuild was asked for."""
        rounds = 0
        while not self._rebuild:
            self._wake.clear()
            waiting, self._caught_up = self._caught_up, []
            try:
                await self._take_changes()
                await self._wipe()
                if rounds % RETRY_ROUNDS == 0:
                    await self._retry_failed()
                await self._check()
            except BaseException:
                self._caught_up += waiting
                raise
            for future in waiting:
                if not future.done():
                    future.set_result(None)
            rounds += 1
            await self._wake.wait()

    async def _take_changes(self) -> None:
        for number, source in enumerate(self._sources):
            while changes := await source.changes(self._read[number], BATCH):
                await self._apply(changes)
                self._read[number] = changes[-1].number

    async def _wipe(self) -> None:
        pools, self._to_wipe = self._to_wipe, set()
        if pools:
            await self._index.wipe(sorted(pools))

    async def _retry_failed(self) -> None:
        """What is refused again comes last the next time; after some of those the others wait for their turn."""
        refused = 0
        for item in list(self._failed.values()):
            await self._put_one_by_one([(point_of(item.id, item.pool, item.text), item)])
            if item.id in self._failed:
                self._failed[item.id] = self._failed.pop(item.id)
                refused += 1
            if refused == HOPELESS:
                return

    async def _check(self) -> None:
        if self._suspect is not None:
            suspect, self._suspect = self._suspect, None
            raise suspect
        if await self._index.count() != len(self._held):
            raise IndexBroken("The vector index has lost or gained points; it is rebuilt.")
        self._tell(None)

    async def _apply(self, changes: Sequence[IndexChange]) -> None:
        newest = {change.id: change for change in changes}
        stale: list[Point] = []
        fresh: list[tuple[Point, Indexable]] = []
        for change in newest.values():
            held = self._held.get(change.id)
            point = None if change.item is None else point_of(change.id, change.item.pool, change.item.text)
            if held is not None and held != point:
                stale.append(held)
                del self._held[change.id]
            if point is not None and change.item is not None and held != point:
                fresh.append((point, change.item))
            if point is None:
                self._failed.pop(change.id, None)
        await self._index.remove(stale)
        if fresh:
            await self._put(fresh)
        self._done = len(self._held)
        if self._state != "building":
            self._total = len(self._held) + len(self._failed)
