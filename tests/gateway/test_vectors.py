"""Vectors inside the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.clock import SystemClock
from gateway.vectors import VectorPart
from memory.embed import EmbeddingFailed
from memory.policy import MemoryPolicy

if TYPE_CHECKING:
    from pathlib import Path

    from memory.memory import Memories


class Unopened:
    """Memory nobody asks for here."""

    async def open(self) -> Memories:
        raise AssertionError


@pytest.mark.parametrize(("name", "told"), [("hash", "is being loaded"), (None, "set roles.embedding")])
async def test_a_model_that_is_not_loaded_yet_is_told_apart_from_none(
    tmp_path: Path, name: str | None, told: str
) -> None:
    clock = SystemClock()
    part = VectorPart(
        name=name, models={}, policy=MemoryPolicy(), environ={}, data_dir=tmp_path, memory=Unopened(), clock=clock
    )
    with pytest.raises(EmbeddingFailed, match=told):
        await part.near(None, "bees", 3)
