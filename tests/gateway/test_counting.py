"""Counting tokens while the tokenizer is still being loaded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

from gateway.counting import LazyCounter
from gateway.models import tokens

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from gateway.models.tokens import TokenCounter


async def test_who_asks_while_it_is_loaded_waits_and_it_is_loaded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Path] = []
    real = tokens.load

    def load(cache_dir: Path) -> TokenCounter:
        loads.append(cache_dir)
        return real(cache_dir)

    monkeypatch.setattr(tokens, "load", load)
    counter = LazyCounter(tmp_path / "cache")
    everybody = Barrier(4)

    def ask() -> int:
        everybody.wait(10)
        return counter.count("three little words")

    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(ask) for _ in range(4)]
        await counter.load()
        await counter.ready()
        assert [one.result(30) for one in asked] == [3] * 4
    assert len(loads) == 1
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [""]
