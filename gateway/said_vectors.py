"""Vectors of what was said: the newest messages, indexed beside the replies, and searched by meaning."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import structlog

from gateway.said_source import SaidSource, confirmed, pools_in
from memory.chroma import ChromaIndex
from memory.embed import EmbeddingFailed
from memory.fusion import Scored
from memory.guarded import GuardedEmbedder
from memory.index import IndexBroken
from memory.indexing import Indexer
from memory.paced import PacedEmbedder
from memory.redact import redact

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gateway.clock import Clock
    from gateway.search import Question
    from gateway.vectors import VectorPart
    from memory.index import Near
    from memory.indexing import IndexStatus
    from memory.policy import MemoryPolicy
    from sessions.archive import Archive

log = structlog.get_logger()

PREFIX = "sessiond-said"
FOLDER = "said"
GATHER_S = 1.0
"""What is said within this time is taken in together."""
REST = 1.0


class NearMessages(Protocol):
    """Proposals of vectors; `pools` None: everywhere. Raises EmbeddingFailed and IndexBroken."""

    async def near(self, pools: Sequence[str] | None, text: str, limit: int) -> list[Near]: ...


class ByMeaning:
    """Vectors. Whatever the index says, the archive confirms; without an answer in time the words have to do."""

    def __init__(self, archive: Archive, vectors: NearMessages, wait_s: float) -> None:
        self._archive = archive
        self._vectors = vectors
        self._wait_s = wait_s

    async def score(self, question: Question) -> Scored[int]:
        """Raises SearchFailed."""
        try:
            async with asyncio.timeout(self._wait_s):
                pools = await self._archive.look(lambda index: pools_in(index, question.scope))
                if pools == []:
                    return Scored({}, floor=None)
                near = await self._vectors.near(pools, question.text, question.candidates)
        except (TimeoutError, EmbeddingFailed, IndexBroken) as error:
            log.debug("search.without_vectors", reason=str(error))
            return Scored({}, floor=None)
        return Scored(await self._archive.look(lambda index: confirmed(index, near, question.scope)), floor=None)


class SaidVectors:
    """The second index of a daemon. It has its own files and collections: what was said never meets memories."""

    def __init__(
        self, *, archive: Archive, vectors: VectorPart, policy: MemoryPolicy, data_dir: Path, clock: Clock
    ) -> None:
        self._archive = archive
        self._vectors = vectors
        self._policy = policy
        self._data_dir = data_dir
        self._clock = clock
        self._gathering: asyncio.Task[None] | None = None
        self._embedder: GuardedEmbedder | None = None
        self.indexer: Indexer | None = None
        self.problem: str | None = None
        archive.after_step.append(self.wake)

    @property
    def configured(self) -> bool:
        return self._vectors.configured and self._policy.index.messages > 0

    @property
    def status(self) -> IndexStatus | None:
        """How far the index is; None when there is none, and before it is opened."""
        return None if self.indexer is None else self.indexer.status

    async def near(self, pools: Sequence[str] | None, text: str, limit: int) -> list[Near]:
        """Raises EmbeddingFailed and IndexBroken."""
        if self.indexer is None:
            raise IndexBroken("There are no vectors of messages.")
        return await self.indexer.near(pools, text, limit)

    async def run(self) -> None:
        """Begins when the embedding model is there; follows the archive from then on."""
        if not self.configured:
            return
        if self.indexer is not None:
            await self.indexer.close()  # it failed, and begins again
        inner = await self._vectors.opened()
        paced = PacedEmbedder(inner, rest=REST, monotonic=self._clock.monotonic, sleep=self._clock.sleep)
        self._embedder = GuardedEmbedder(
            paced,
            None,
            self._policy.embedding,
            redact=lambda text: redact(text).text,
            monotonic=self._clock.monotonic,
        )
        source = SaidSource(self._archive, self._policy.index.messages, self._gone)
        self.indexer = Indexer(
            embedder=self._embedder,
            index=ChromaIndex(self._data_dir / "index" / FOLDER, self._policy.index.url, prefix=PREFIX),
            sources=[source],
            policy=self._policy.index,
            sleep=self._clock.sleep,
            on_problem=self._note,
        )
        await self.indexer.run()

    async def stop(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
        if self.indexer is not None:
            await self.indexer.close()
        if self._embedder is not None:
            await self._embedder.close()

    def wake(self) -> None:
        """Something was said, or is gone."""
        if self.indexer is not None and (self._gathering is None or self._gathering.done()):
            self._gathering = asyncio.get_running_loop().create_task(self._gather(), name="gather messages")

    def check(self) -> None:
        """Looks whether the index is as it should be: to be called now and then."""
        if self.indexer is not None:
            self.indexer.wake()

    async def cleared(self, wait_s: float) -> bool:
        """Waits until no vector of what was deleted is in a file; False when that takes longer: it is done all the
        same."""
        status = self.status
        if self.indexer is None or status is None or status.state != "serving":
            return self.indexer is None
        try:
            async with asyncio.timeout(wait_s):
                await self.indexer.caught_up()
        except TimeoutError:
            return False
        return True

    async def _gather(self) -> None:
        await self._clock.sleep(GATHER_S)
        self.check()

    def _gone(self, pools: set[str]) -> None:
        if self.indexer is not None:
            self.indexer.wipe_soon(pools)

    def _note(self, problem: str | None) -> None:
        self.problem = problem
        if problem is None:
            log.info("said_vectors.serving", texts=0 if self.status is None else self.status.total)
        else:
            log.info("said_vectors.not_served", problem=problem)
