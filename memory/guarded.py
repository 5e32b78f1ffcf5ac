"""An embedding model with manners: texts are filtered and cut, vectors kept and checked, silence has its limit."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from memory.embed import EmbeddingFailed, unit_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from memory.embed import Embedder, Fingerprint, Purpose, Vectors
    from memory.policy import EmbeddingPolicy
    from memory.vector_cache import VectorCache

T = TypeVar("T")

GIVEN_UP_S = 1.0
QUESTIONS = 256
"""Vectors of searches that are kept, in memory only: they are what people say to the model."""


class GuardedEmbedder:
    """What the rest of memory asks for vectors.

    `redact` takes secrets out of every text before anything else sees it. After a failure, or a query that was given
    up, queries fail at once for `rest_s`, so that replies do not wait for a model that is down or hangs; passages,
    which nobody waits for, try again. `cache` keeps vectors of passages; None: they are computed whenever they are
    asked for.
    """

    def __init__(
        self,
        inner: Embedder,
        cache: VectorCache | None,
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
        self._questions: OrderedDict[str, bytes] = OrderedDict()
        self._computing = 0
        self._gone: set[str] = set()
        """What was forgotten while passages are being computed."""
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
        """Removes what was computed from texts that are deleted for good. Raises EmbeddingFailed; then try again."""
        gone = [self._cleaned(text) for text in texts]
        for text in gone:
            self._questions.pop(text, None)
        if self._computing:
            self._gone.update(gone)
        await self._remove(lambda cache: cache.forget(gone))

    async def forget_all(self) -> None:
        """Removes what was computed from any text. Raises EmbeddingFailed; then try again."""
        self._questions.clear()
        await self._remove(lambda cache: cache.clear())

    async def _remove(self, work: Callable[[VectorCache], None]) -> None:
        cache = self._cache
        if cache is not None:
            try:
                await self._in_thread(lambda: work(cache))
            except (sqlite3.Error, OSError) as error:
                raise EmbeddingFailed(f"Kept vectors cannot be removed now ({error}).") from error

    async def close(self) -> None:
        await self._inner.close()
        if self._cache is not None:
            await self._in_thread(self._cache.close)
        self._thread.shutdown(wait=False)

    async def _embed(self, purpose: Purpose, texts: Sequence[str]) -> Vectors:
        import numpy as np

        fingerprint = await self.prepare()
        cleaned = [self._cleaned(text) for text in texts]
        found = self._asked_before(cleaned) if purpose == "query" else await self._load(fingerprint, cleaned)
        wanted = list(dict.fromkeys(text for text in cleaned if text not in found))
        if wanted and purpose == "query" and self._monotonic() < self._resting_until:
            raise EmbeddingFailed(self.problem or "The embedding model rests after a failure.")
        for at in range(0, len(wanted), self._policy.batch):
            part = wanted[at : at + self._policy.batch]
            if purpose == "query":
                fresh = await self._computed(purpose, part, fingerprint)
                self._keep_questions(fresh)
            else:
                fresh = await self._computed_and_kept(part, fingerprint)
            found |= fresh
        joined = np.frombuffer(b"".join(found[text] for text in cleaned), dtype="<f4")
        return joined.reshape(len(texts), fingerprint.dimension).astype(np.float32)

    async def _computed(self, purpose: Purpose, texts: list[str], fingerprint: Fingerprint) -> dict[str, bytes]:
        rows = await self._ask(purpose, texts, fingerprint.dimension)
        return {text: row.astype("<f4").tobytes() for text, row in zip(texts, rows, strict=True)}

    async def _computed_and_kept(self, texts: list[str], fingerprint: Fingerprint) -> dict[str, bytes]:
        """What is forgotten meanwhile is not kept."""
        self._computing += 1
        try:
            fresh = await self._computed("passage", texts, fingerprint)
            await self._save(fingerprint.name, {text: fresh[text] for text in fresh.keys() - self._gone})
        finally:
            self._computing -= 1
            if not self._computing:
                self._gone.clear()
        return fresh

    def _asked_before(self, questions: Sequence[str]) -> dict[str, bytes]:
        return {text: self._questions[text] for text in questions if text in self._questions}

    def _keep_questions(self, fresh: Mapping[str, bytes]) -> None:
        self._questions.update(fresh)
        while len(self._questions) > QUESTIONS:
            self._questions.popitem(last=False)

    async def _ask(self, purpose: Purpose, texts: list[str], dimension: int) -> Vectors:
        ask = self._inner.embed_queries if purpose == "query" else self._inner.embed_passages
        started = self._monotonic()
        try:
            async with asyncio.timeout(self._policy.timeout_s):
                vectors = await ask(texts)
        except asyncio.CancelledError:
            waited_s = self._monotonic() - started
            if purpose == "query" and waited_s >= GIVEN_UP_S:  # by somebody who waits no longer: nor need the next
                self._failed(f"did not answer for {waited_s:.1f} s")
            raise
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

    async def _load(self, fingerprint: Fingerprint, texts: Sequence[str]) -> dict[str, bytes]:
        cache = self._cache
        if cache is None:
            return {}
        try:
            found = await self._in_thread(lambda: cache.load(fingerprint.name, texts))
        except (sqlite3.Error, OSError):
            return {}
        return {text: vector for text, vector in found.items() if len(vector) == 4 * fingerprint.dimension}

    async def _save(self, fingerprint: str, fresh: Mapping[str, bytes]) -> None:
        cache = self._cache
        if cache is None:
            return
        try:
            await self._in_thread(lambda: cache.save(fingerprint, fresh))
        except (sqlite3.Error, OSError) as error:
            self.problem = f"Vectors cannot be kept ({error}); they are computed again when needed."

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
