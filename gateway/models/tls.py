"""The certificates that servers of models are checked against."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import httpx2

if TYPE_CHECKING:
    import ssl


@functools.lru_cache(maxsize=1)
def checked_by() -> ssl.SSLContext:
    """Read once a process, for the clients of all models: reading them takes longer than all else about a client."""
    return httpx2.create_ssl_context()
