"""An embedding model with manners: texts are filtered and cut, vectors kept and checked, silence has its limit."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from memory.embed import EmbeddingFailed, unit_rows
from memory.vector_cache import digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from memory.embed import Embedder, Fingerprint, Purpose, Vectors
    from memory.policy import EmbeddingPolicy
    from memory.vector_cache import VectorCache

T = TypeVar("T")


class GuardedEmbedder:
    """What the rest of memory asks for vectors.

    `redact` takes secrets out of every text before anything else sees it. After a failure queries fail at once for
    `rest_s`, so that replies do not wait for a model that is down; passages, which nobody waits for, try again.
    """

    def __init__(
        self,
        inner: Embedder,
        cache: VectorCache,
        policy: EmbeddingPolicy,
        *,
        redact: Callable[[str], str],
        monotonic: Callable[[], float],
    ) -> None:
        self._inner = inner
        self._cache = cache
        self._policy = policy
        self._redact = redact
        self._monotonic = monotonic
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vector-cache")
        self._fingerprint: Fingerprint | None = None
        self._resting_until = 0.0
        self.problem: str | None = None

    async def prepare(self) -> Fingerprint:
        if self._fingerprint is None:
            try:
                async with asyncio.timeout(self._policy.timeout_s):
                    self._fingerprint = await self._inner.prepare()
            except TimeoutError as error:
                raise self._failed(f"did not answer within {self._policy.timeout_s:g} s") from error
            except EmbeddingFailed as error:
                self.problem = str(error)
                raise
            self.problem = None
        return self._fingerprint

    async def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return await self._embed("query", texts)

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return await self._embed("passage", texts)

    async def forget(self, texts: Iterable[str]) -> None:
        """Removes what was computed from texts that are deleted for good."""
        await self._in_thread(lambda: self._cache.forget([self._cleaned(text) for text in texts]))

    async def close(self) -> None:
        await self._inner.close()
        await self._in_thread(self._cache.close)
        self._thread.shutdown(wait=False)

    async def _embed(self, purpose: Purpose, texts: Sequence[str]) -> Vectors:
        import numpy as np

        fingerprint = await self.prepare()
        cleaned = [self._cleaned(text) for text in texts]
        digests = [digest_of(purpose, text) for text in cleaned]
        found = await self._load(fingerprint, digests)
        missing = {digest: text for digest, text in zip(digests, cleaned, strict=True) if digest not in found}
        if missing and purpose == "query" and self._monotonic() < self._resting_until:
            raise EmbeddingFailed(self.problem or "The embedding model rests after a failure.")
        wanted = list(missing.items())
        for at in range(0, len(wanted), self._policy.batch):
            part = wanted[at : at + self._policy.batch]
            rows = await self._ask(purpose, [text for _, text in part], fingerprint.dimension)
            fresh = {digest: row.astype("<f4").tobytes() for (digest, _), row in zip(part, rows, strict=True)}
            found |= fresh
            await self._save(fingerprint.name, fresh)
        joined = np.frombuffer(b"".join(found[digest] for digest in digests), dtype="<f4")
        return joined.reshape(len(texts), fingerprint.dimension).astype(np.float32)

    async def _ask(self, purpose: Purpose, texts: list[str], dimension: int) -> Vectors:
        ask = self._inner.embed_queries if purpose == "query" else self._inner.embed_passages
        try:
            async with asyncio.timeout(self._policy.timeout_s):
                vectors = await ask(texts)
        except TimeoutError as error:
            raise self._failed(f"did not answer within {self._policy.timeout_s:g} s") from error
        except EmbeddingFailed as error:
            self._rest(str(error))
            raise
        self._check(vectors, len(texts), dimension)
        self.problem = None
        self._resting_until = 0.0
        return unit_rows(vectors)

    def _check(self, vectors: Vectors, count: int, dimension: int) -> None:
        import numpy as np

        if vectors.shape != (count, dimension):
            raise self._failed(f"gave vectors of shape {vectors.shape} instead of {(count, dimension)}")
        if not np.isfinite(vectors).all():
            raise self._failed("gave vectors with numbers that are none")

    def _failed(self, what: str) -> EmbeddingFailed:
        told = f"The embedding model {what}; keyword search goes on. Check roles.embedding."
        self._rest(told)
        return EmbeddingFailed(told)

    def _rest(self, problem: str) -> None:
        self.problem = problem
        self._resting_until = self._monotonic() + self._policy.rest_s

    def _cleaned(self, text: str) -> str:
        """What models accept: no secret, no NUL, no half character, something, and not too much."""
        plain = self._redact(text).encode("utf-8", "replace").decode().replace("\0", " ").strip()
        return plain[: self._policy.max_chars] or "-"

    async def _load(self, fingerprint: Fingerprint, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        try:
            found = await self._in_thread(lambda: self._cache.load(fingerprint.name, digests))
        except (sqlite3.Error, OSError):
            return {}
        return {digest: vector for digest, vector in found.items() if len(vector) == 4 * fingerprint.dimension}

    async def _save(self, fingerprint: str, fresh: dict[bytes, bytes]) -> None:
        try:
            await self._in_thread(lambda: self._cache.save(fingerprint, fresh))
        except (sqlite3.Error, OSError) as error:
            self.problem = f"Vectors cannot be kept ({error}); they are computed again when needed."

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
