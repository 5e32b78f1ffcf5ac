from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bench.standin import StandIn
from tests.journeys.daemon import Client, config, model_settings, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def standin() -> AsyncIterator[StandIn]:
    async with StandIn() as model:
        yield model


@pytest.fixture
async def client(tmp_path: Path, standin: StandIn) -> AsyncIterator[Client]:
    """A daemon with the stand-in as its model."""
    async with running(tmp_path / "data", config(**model_settings(standin.base_url))) as client:
        yield client


@pytest.fixture
async def offline(tmp_path: Path) -> AsyncIterator[Client]:
    """A daemon as it comes."""
    async with running(tmp_path / "data", config()) as client:
        yield client
