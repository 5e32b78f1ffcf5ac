from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
import structlog
from structlog.testing import capture_logs

from gateway.http import health
from gateway.http.metrics import Metrics
from tests.gateway.http.conftest import TOKENS, bearer
from tests.gateway.http.demo import demo_routes
from tests.gateway.http.test_routes import problem

if TYPE_CHECKING:
    from gateway.clock import ManualClock
    from tests.gateway.http.conftest import Serve

SECRETS = {"admin": "admin-secret", "frontend": "frontend-secret", "user": "user-secret"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer admin-secret2"},
        {"Authorization": "Basic admin-secret"},
        {"Authorization": "admin-secret"},
        {"x-api-key": "wrong"},
        {"Authorization": "Bearer wröng"},
    ],
)
async def test_without_a_known_token_nothing_is_answered(serve: Serve, headers: dict[str, str]) -> None:
    response = await (await serve(auth=TOKENS)).get("/v1/things/abc", headers=headers)
    content = await problem(response)
    assert content["status"] == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert "auth.tokens" in content["detail"]


@pytest.mark.parametrize(
    "headers", [bearer("admin-secret"), {"Authorization": "bearer   admin-secret"}, {"x-api-key": "admin-secret"}]
)
async def test_a_known_token_is_taken(serve: Serve, headers: dict[str, str]) -> None:
    assert (await (await serve(auth=TOKENS)).get("/v1/things/abc", headers=headers)).status == 200


async def test_without_tokens_everybody_on_this_machine_is_the_owner(serve: Serve) -> None:
    response = await (await serve()).post("/v1/notes/agent:main:main", json={"text": "a"})
    assert (await response.json())["caller"] == "owner"
    assert (await (await serve()).get("/v1/secret")).status == 200


@pytest.mark.parametrize("role", ["admin", "frontend", "user", None])
async def test_every_route_answers_to_its_roles_and_is_not_there_for_others(serve: Serve, role: str | None) -> None:
    client = await serve(auth=TOKENS)
    headers = bearer(SECRETS[role]) if role else {}
    for route in demo_routes():
        path = route.path.replace("{key}", "agent:main:main").replace("{id}", "abc")
        response = await client.request(route.method, path, json={} if route.body else None, headers=headers)
        if route.public:
            assert response.status == 200
        elif role is None:
            assert response.status == 401
        elif role not in route.roles:
            assert (await problem(response))["type"].endswith(":not-found")
        else:
            assert response.status in (200, 422), path


async def test_a_token_that_asks_too_often_is_told_when_to_come_back(serve: Serve, clock: ManualClock) -> None:
    client = await serve(auth=TOKENS, rate_limit_per_minute=60)
    headers = bearer("frontend-secret")
    answers = [(await client.get("/v1/things/a", headers=headers)).status for _ in range(11)]
    assert answers == [200] * 10 + [429]
    response = await client.get("/v1/things/a", headers=headers)
    assert response.headers["Retry-After"] == "1"
    assert (await problem(response))["type"].endswith(":too-many-requests")
    assert (await client.get("/v1/things/a", headers=bearer("user-secret"))).status == 200
    await clock.advance(1)
    assert (await client.get("/v1/things/a", headers=headers)).status == 200
    assert (await client.get("/v1/things/a", headers=headers)).status == 429


async def test_an_unknown_address_or_method_is_a_problem_too(serve: Serve) -> None:
    client = await serve(auth=TOKENS)
    assert (await problem(await client.get("/nowhere")))["status"] == 404
    response = await client.delete("/v1/notes/agent:main:main")
    assert (await problem(response))["status"] == 405
    assert response.headers["Allow"] == "POST"


async def test_a_fault_of_ours_is_told_by_number_and_logged_with_it(serve: Serve) -> None:
    def boom() -> None:
        raise ZeroDivisionError("the text of a message")

    client = await serve(demo_routes(boom))
    with capture_logs() as logs:
        response = await client.get("/v1/things/a")
    content = await problem(response)
    assert content["status"] == 500
    assert response.headers["X-Request-Id"] in content["detail"]
    assert "message" not in content["detail"]
    (failed,) = [entry for entry in logs if entry["event"] == "request.failed"]
    assert failed["route"] == "/v1/things/{id}"
    assert isinstance(failed["exc_info"], ZeroDivisionError)


async def test_the_log_names_neither_keys_nor_secrets_nor_texts(serve: Serve) -> None:
    written = io.StringIO()
    saved = structlog.get_config()
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.JSONRenderer()],
        logger_factory=structlog.PrintLoggerFactory(written),
        wrapper_class=structlog.make_filtering_bound_logger(0),
        cache_logger_on_first_use=False,
    )
    try:
        client = await serve(auth=TOKENS)
        for secret in ("admin-secret", "wrong-secret"):
            await client.post(
                "/v1/notes/agent:main:web:direct:zoe?loud=true", json={"text": "hush"}, headers=bearer(secret)
            )
            await client.post("/v1/notes/agent:main:web:room:zoe", json={"hush": 1}, headers=bearer(secret))
    finally:
        structlog.configure(**saved)
    lines = written.getvalue()
    assert lines.count('"event": "request"') == 4
    assert '"caller": "root"' in lines
    for private in ("zoe", "hush", "secret", "loud"):
        assert private not in lines


async def test_requests_are_counted_by_template(serve: Serve) -> None:
    metrics = Metrics()
    client = await serve([*demo_routes(), *health.routes({}, metrics)])
    for _ in range(3):
        metrics.requests.note("GET", "/v1/things/{id}", 200, 0.02)
    metrics.requests.note("BREW", "unknown", 405, 99)
    text = await (await client.get("/metrics")).text()
    assert 'sessiond_requests_total{method="GET",route="/v1/things/{id}",status="200"} 3.0' in text
    assert 'sessiond_requests_total{method="other",route="unknown",status="405"} 1.0' in text
    assert 'sessiond_request_seconds_bucket{le="0.01",route="/v1/things/{id}"} 0.0' in text
    assert 'sessiond_request_seconds_bucket{le="0.025",route="/v1/things/{id}"} 3.0' in text
    assert 'sessiond_request_seconds_bucket{le="+Inf",route="unknown"} 1.0' in text
    assert 'sessiond_request_seconds_count{route="/v1/things/{id}"} 3.0' in text


@pytest.mark.parametrize(
    ("checks", "status"),
    [
        ({"store": "ok", "ledger": "ok"}, 200),
        ({"store": "ok", "ledger": "degraded"}, 200),
        ({"store": "down", "ledger": "ok"}, 503),
    ],
)
async def test_readiness_tells_part_by_part(serve: Serve, checks: dict[str, str], status: int) -> None:
    states = {name: health.PartState.model_validate({"state": state}) for name, state in checks.items()}
    client = await serve(
        health.routes({name: (lambda state=state: state) for name, state in states.items()}, Metrics()), auth=TOKENS
    )
    response = await client.get("/readyz")
    assert response.status == status
    content = await response.json()
    assert content["ready"] is (status == 200)
    assert {name: part["state"] for name, part in content["parts"].items()} == checks
    assert (await client.get("/healthz")).status == 200
