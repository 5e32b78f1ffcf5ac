"""Counts tokens, once the tokenizer has been loaded behind the start of the daemon."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.models.tokens import TokenCounter


class LazyCounter:
    """Loading takes half a second, so it runs beside the start; the first message waits for it."""

    def __init__(self, cache_dir: Path) -> None:
        self._cache_dir = cache_dir
        self._counter: TokenCounter | None = None
        self._loaded = asyncio.Event()

    async def load(self) -> None:
        """Loads the tokenizer. Raises OSError when its files cannot be read or cached."""
        self._counter = await asyncio.to_thread(_load, self._cache_dir)
        self._loaded.set()

    async def ready(self) -> None:
        if self._counter is None:
            await self._loaded.wait()

    def count(self, text: str) -> int:
        """Tokens of a text. Who has not waited for `ready` waits here, and everybody with them."""
        if self._counter is None:
            self._counter = _load(self._cache_dir)
        return self._counter.count(text)


def _load(cache_dir: Path) -> TokenCounter:
    from gateway.models.tokens import load

    return load(cache_dir)
