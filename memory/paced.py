"""An embedding model that rests after work which nobody waits for, so that replies and searches hardly notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from memory.embed import Embedder, Fingerprint, Vectors


class PacedEmbedder:
    """After some passages nothing is asked for `rest` times as long as these took. Queries do not wait."""

    def __init__(
        self,
        inner: Embedder,
        *,
        rest: float,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._inner = inner
        self._rest = rest
        self._monotonic = monotonic
        self._sleep = sleep

    async def prepare(self) -> Fingerprint:
        return await self._inner.prepare()

    async def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return await self._inner.embed_queries(texts)

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        started = self._monotonic()
        vectors = await self._inner.embed_passages(texts)
        await self._sleep(self._rest * (self._monotonic() - started))
        return vectors

    async def close(self) -> None:
        """The model belongs to somebody else."""
