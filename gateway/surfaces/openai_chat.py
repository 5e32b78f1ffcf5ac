"""OpenAI Chat Completions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.http.routes import Route
    from gateway.parts import Parts


def routes(parts: Parts) -> list[Route]:
    return []
