"""What holds for all tests."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from aiohttp import web_app
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

# An example that is slow on a busy machine is no failure; the time of a whole test has a limit of its own.
settings.register_profile("sessiond", deadline=None)
settings.load_profile("sessiond")


def pytest_collection_finish() -> None:
    """What was imported stays: looking through it for garbage again and again took a tenth of the processor's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture(autouse=True)
def forget_applications() -> Iterator[None]:
    """aiohttp remembers the last thousand applications of a process, here with all that their daemons held."""
    yield
    web_app._cached_build_middleware.cache_clear()
