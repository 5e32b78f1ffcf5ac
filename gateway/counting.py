"""Counts tokens, once the tokenizer has been loaded behind the start of the daemon."""

from __future__ import annotations

import asyncio
from threading import Lock
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
        self._loading = Lock()

    async def load(self) -> None:
        """Loads the tokenizer. Raises OSError when its files cannot be read or cached."""
        await asyncio.to_thread(self._load)
        self._loaded.set()

    async def ready(self) -> None:
        if self._counter is None:
            await self._loaded.wait()

    def count(self, text: str) -> int:
        """Tokens of a text. Who has not waited for `ready` waits here, and everybody with them."""
        counter = self._counter or self._load()
        return counter.count(text)

    def _load(self) -> TokenCounter:
        """Once, whoever asks first: two who wrote the same cache file would be in each other's way."""
        with self._loading:
            if self._counter is None:
                from gateway.models.tokens import load

                self._counter = load(self._cache_dir)
            return self._counter
