"""Vectors inside the daemon: the embedding model and its index, opened behind the start, kept right beside replies."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from typing import TYPE_CHECKING, Protocol

import structlog

from gateway.models.embedding import choose_embedder
from memory.cache_file import remove_cache
from memory.chroma import ChromaIndex
from memory.embed import EmbeddingFailed
from memory.errors import MemoryUnavailable
from memory.guarded import GuardedEmbedder
from memory.indexing import Indexer
from memory.redact import redact
from memory.small_talk import SmallTalk
from memory.source import MemorySource
from memory.vector_cache import VectorCache

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from gateway.clock import Clock
    from gateway.models.policy import ModelPolicy
    from memory.embed import Embedder, Vectors
    from memory.index import Near
    from memory.indexing import IndexSource, IndexStatus
    from memory.memory import Memories
    from memory.policy import MemoryPolicy
    from memory.removal import Purged

log = structlog.get_logger()

RETRY_S = 5.0
CLEAR_WAIT_S = 5.0
NONE = "There is no embedding model; set roles.embedding."


class Opener(Protocol):
    """The memories, once they are open. Raises MemoryUnavailable."""

    async def open(self) -> Memories: ...


class Forgetting(Protocol):
    """Where it stands which purges something may be left of. Both raise MemoryUnavailable."""

    async def to_forget(self) -> list[int]: ...

    async def forgotten(self, purges: Collection[int]) -> None: ...


class VectorPart:
    """The vectors of a daemon; nothing of them is imported unless `roles.embedding` names a model."""

    def __init__(
        self,
        *,
        name: str | None,
        models: Mapping[str, ModelPolicy],
        policy: MemoryPolicy,
        environ: Mapping[str, str],
        data_dir: Path,
        memory: Opener,
        clock: Clock,
    ) -> None:
        self._name = name
        self._models = models
        self._policy = policy
        self._environ = environ
        self._data_dir = data_dir
        self._cache_path = data_dir / "cache" / "vectors.db"
        self._memory = memory
        self._clock = clock
        self._embedder: GuardedEmbedder | None = None
        self._chosen: Embedder | None = None
        self._opened = asyncio.Event()
        self._to_forget: dict[int, frozenset[str] | None] = {}
        """What purges have deleted, by their number; None: a former daemon knew."""
        self._forgetting: asyncio.Task[None] | None = None
        self._small_talk: SmallTalk | None = None
        self._sampling: asyncio.Task[None] | None = None
        self.indexer: Indexer | None = None
        self.sources: list[IndexSource] = []
        self.problem: str | None = None
        self.on_new: Callable[[], None] = lambda: None
        """Every text gets its vector anew."""

    @property
    def configured(self) -> bool:
        return self._name is not None

    @property
    def model(self) -> str | None:
        """The provider's name of the embedding model."""
        described = None if self._name is None else self._models.get(self._name)
        return self._name if described is None else described.model or self._name

    @property
    def status(self) -> IndexStatus | None:
        """How far the index is; None without an embedding model, and before it is opened."""
        return None if self.indexer is None else self.indexer.status

    async def near(self, pools: Sequence[str] | None, text: str, limit: int) -> list[Near]:
        """Raises EmbeddingFailed and IndexBroken."""
        if self.indexer is None:
            none = "The embedding model is being loaded." if self.configured else NONE
            raise EmbeddingFailed(self.problem or none)
        return await self.indexer.near(pools, text, limit)

    async def of(self, texts: Sequence[str]) -> Vectors:
        """The vectors of texts that are in the index, as rows; mostly out of the cache. Raises EmbeddingFailed."""
        status = self.status
        if self._embedder is None or status is None or status.state != "serving":
            raise EmbeddingFailed(self.problem or "The vectors are being made. Try again in a moment.")
        return await self._embedder.embed_passages(texts)

    async def is_small_talk(self, text: str) -> bool:
        """Whether a message wants nothing looked up; False while nobody can tell."""
        if self._small_talk is None:
            return False
        try:
            async with asyncio.timeout(self._policy.search.vectors_wait_s):
                return await self._small_talk.is_it(text)
        except (EmbeddingFailed, TimeoutError):
            return False

    async def opened(self) -> Embedder:
        """The embedding model itself, once the vectors of memories are opened, for others who need it."""
        await self._opened.wait()
        assert self._chosen is not None  # noqa: S101
        return self._chosen

    async def run(self) -> None:
        """Opens everything and follows the records. Replies go on by keywords whatever happens here."""
        if self._name is None:
            await asyncio.to_thread(self._remove_unused)
            return
        while True:
            try:
                indexer = await self._open()
                await indexer.run()
            except (EmbeddingFailed, MemoryUnavailable, OSError) as error:
                self._note(str(error))
                await self._clock.sleep(RETRY_S)

    async def stop(self) -> None:
        """Closes the index and the model; what was not indexed yet is found missing at the next start."""
        for task in (self._forgetting, self._sampling):
            if task is not None:
                task.cancel()
        if self.indexer is not None:
            await self.indexer.close()
        if self._embedder is not None:
            await self._embedder.close()

    def wake(self) -> None:
        """Something changed in a source."""
        if self.indexer is not None:
            self.indexer.wake()

    def removed(self, pools: set[str]) -> None:
        """Texts of these pools are gone: soon no vector of them is in a file."""
        if self.indexer is not None:
            self.indexer.wipe_soon(pools)

    def rebuild(self) -> bool:
        """Makes the index anew; False: it is not open yet."""
        if self.indexer is not None:
            self.indexer.rebuild()
        return self.indexer is not None

    def follow(self, memories: Memories) -> None:
        """Hears of all that is written or deleted, also before the vectors are opened."""
        memories.after_write.append(lambda _: self.wake())
        memories.store.after_purge.append(lambda gone: self.purged(gone, memories.store))

    async def purged(self, gone: Purged, store: Forgetting) -> bool:
        """No vector of what was deleted for good stays in a file. False: that goes on by itself, after
        `CLEAR_WAIT_S`."""
        if not self.configured:
            with contextlib.suppress(MemoryUnavailable):  # it matters to a daemon with a model only
                await store.forgotten([gone.number])
            return True
        self._to_forget[gone.number] = gone.texts
        if self.indexer is None or self._embedder is None:
            return False
        self.indexer.wipe_soon(gone.pools)
        wiping = asyncio.get_running_loop().create_task(self.indexer.wipe(gone.pools), name="wipe vectors")
        try:
            forgetting = self._forget_soon(self._embedder, store)
            _, later = await asyncio.wait([wiping, forgetting], timeout=CLEAR_WAIT_S)
        finally:
            wiping.cancel()
        if later:
            log.warning("vectors.cleared_later")
        return not later

    def _forget_soon(self, embedder: GuardedEmbedder, store: Forgetting) -> asyncio.Task[None]:
        if self._forgetting is None or self._forgetting.done():
            work = self._forget(embedder, store)
            self._forgetting = asyncio.get_running_loop().create_task(work, name="forget vectors")
        return self._forgetting

    async def _forget(self, embedder: GuardedEmbedder, store: Forgetting) -> None:
        """Until it has worked for all of them."""
        while self._to_forget:
            gone = dict(self._to_forget)
            try:
                await embedder.forget({text for texts in gone.values() for text in texts or ()})
                if None in gone.values():
                    await embedder.forget_all()
                await store.forgotten(gone.keys())
            except (EmbeddingFailed, MemoryUnavailable) as error:
                log.warning("vectors.not_forgotten", problem=str(error))
                await self._clock.sleep(RETRY_S)
            else:
                for number in gone:
                    del self._to_forget[number]

    async def _open(self) -> Indexer:
        if self.indexer is not None:
            return self.indexer
        memories = await self._memory.open()
        for number in await memories.store.to_forget():
            self._to_forget.setdefault(number, None)
        memories.searcher.vectors = self  # a search meanwhile is told that they are being loaded
        await asyncio.to_thread(_import_numpy)
        inner = choose_embedder(self._name, self._models, self._policy.embedding, self._environ)
        assert inner is not None  # noqa: S101  (a name was given)
        cache = VectorCache(self._cache_path, entries=self._policy.embedding.cache_entries)
        self._embedder = GuardedEmbedder(
            inner,
            cache,
            self._policy.embedding,
            redact=lambda text: redact(text).text,
            monotonic=self._clock.monotonic,
        )
        self.indexer = Indexer(
            embedder=self._embedder,
            index=ChromaIndex(self._data_dir / "index", self._policy.index.url),
            sources=[MemorySource(memories.store), *self.sources],
            policy=self._policy.index,
            sleep=self._clock.sleep,
            on_problem=self._note,
            on_new=lambda: self.on_new(),
        )
        self._forget_soon(self._embedder, memories.store)
        self._small_talk = SmallTalk(self._embedder)
        self._sampling = asyncio.get_running_loop().create_task(self._sample(self._small_talk), name="small talk")
        self._chosen = inner
        self._opened.set()
        return self.indexer

    async def _sample(self, small_talk: SmallTalk) -> None:
        """Until the model has answered."""
        while True:
            try:
                return await small_talk.prepare()
            except EmbeddingFailed:
                await self._clock.sleep(RETRY_S)

    def _remove_unused(self) -> None:
        """Without an embedding model nobody would take what is deleted out of what is kept; it can be made anew."""
        folder = self._data_dir / "index"
        if folder.is_dir():
            log.info("vectors.removed", reason="there is no roles.embedding")
            shutil.rmtree(folder, ignore_errors=True)
        try:
            remove_cache(self._cache_path)
        except OSError as error:
            log.warning("vectors.not_removed", error=str(error))

    def _note(self, problem: str | None) -> None:
        self.problem = problem
        if problem is None:
            log.info("vectors.serving", texts=0 if self.status is None else self.status.total)
        else:
            log.warning("vectors.not_served", problem=problem)


def _import_numpy() -> None:
    import numpy  # noqa: F401  # pyright: ignore[reportUnusedImport]
