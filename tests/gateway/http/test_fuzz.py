"""Everything a client can send to routes, made from their description: no 5xx, no answer outside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from gateway.clock import SystemClock
from gateway.http import health
from gateway.http.metrics import Metrics
from gateway.http.openapi import build_openapi
from gateway.http.pipeline import build_pipeline
from gateway.http.policy import AuthPolicy, ServerPolicy
from tests.gateway.http.conftest import TOKENS, bearer
from tests.gateway.http.demo import demo_routes
from tests.gateway.http.serving import served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web

    from gateway.http.routes import Route


def api(metrics: Metrics) -> list[Route]:
    return [*demo_routes(), *health.routes({}, metrics)]


def build() -> web.Application:
    metrics = Metrics()
    return build_pipeline(
        api(metrics),
        server=ServerPolicy(rate_limit_per_minute=None),
        auth=AuthPolicy.model_validate(TOKENS),
        environ={},
        clock=SystemClock(),
        metrics=metrics,
    )


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(build) as url:
        yield url


schema = schemathesis.openapi.from_dict(build_openapi(api(Metrics()), "1"))
operations = [result.ok() for result in schema.get_all_operations()]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", operations, ids=lambda operation: operation.label)
def test_no_request_gets_a_5xx_or_an_answer_outside_the_description(
    url: str, operation: schemathesis.APIOperation, mode: GenerationMode
) -> None:
    if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
        pytest.skip("nothing to get wrong")

    @given(operation.as_strategy(generation_mode=mode), st.sampled_from(["admin-secret", "user-secret", "wrong"]))
    @settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def send(case: schemathesis.Case, secret: str) -> None:
        case.call_and_validate(base_url=url, headers=bearer(secret))

    send()
