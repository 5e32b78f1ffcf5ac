"""What holds for all tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from aiohttp import web_app
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

# An example that is slow on a busy machine is no failure; the time of a whole test has a limit of its own.
settings.register_profile("sessiond", deadline=None)
settings.load_profile("sessiond")


@pytest.fixture(autouse=True)
def forget_applications() -> Iterator[None]:
    """aiohttp remembers the last thousand applications of a process, here with all that their daemons held."""
    yield
    web_app._cached_build_middleware.cache_clear()
