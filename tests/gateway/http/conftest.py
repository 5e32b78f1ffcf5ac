from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from gateway.clock import ManualClock
from gateway.http.metrics import Metrics
from gateway.http.pipeline import build_pipeline
from gateway.http.policy import AuthPolicy, ServerPolicy
from tests.gateway.http.demo import demo_routes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web
    from aiohttp.test_utils import TestClient
    from pytest_aiohttp.plugin import AiohttpClient

    from gateway.http.routes import Route

    Client = TestClient[web.Request, web.Application]
    Serve = Callable[..., Awaitable[Client]]

TOKENS: dict[str, Any] = {
    "tokens": [
        {"name": "root", "token": "admin-secret", "role": "admin"},
        {"name": "bridge", "token": "frontend-secret", "role": "frontend"},
        {"name": "ana", "token": "user-secret", "role": "user", "user": "ana"},
    ]
}


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def serve(aiohttp_client: AiohttpClient, clock: ManualClock) -> Serve:
    """Serves routes (the demo's when none are given) and makes a client for them."""

    async def start(routes: list[Route] | None = None, *, auth: dict[str, Any] | None = None, **server: Any) -> Client:
        app = build_pipeline(
            demo_routes() if routes is None else routes,
            server=ServerPolicy.model_validate(server),
            auth=AuthPolicy.model_validate(auth or {}),
            environ={},
            clock=clock,
            metrics=Metrics(),
        )
        return await aiohttp_client(app)

    return start
