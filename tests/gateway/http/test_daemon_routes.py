"""The routes of a whole daemon, by every role: what each sees, and what they answer to anything."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from gateway.config import Config
from gateway.daemon import Daemon
from gateway.parts import Parts
from tests.gateway.http.conftest import TOKENS, bearer

if TYPE_CHECKING:
    from collections.abc import Iterator

BOB = {"name": "bob", "token": "bob-secret", "role": "user", "user": "bob"}
AUTH = {"tokens": [*TOKENS["tokens"], BOB]}
ANAS = "agent:main:web:direct:ana"
SECRETS = ("admin-secret", "frontend-secret", "user-secret")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A daemon as it comes, with four tokens, in a thread of its own."""
    settings = {"server": {"port": 0, "rate_limit_per_minute": None}, "shutdown": {"grace_s": 0.2}, "auth": AUTH}
    folder = tmp_path_factory.mktemp("daemon") / "data"
    daemon = Daemon(Parts(Config.model_validate(settings), folder, environ={}))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(daemon.run()), name="daemon", daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(daemon.ready.wait(), loop).result(30)
    yield daemon.url
    loop.call_soon_threadsafe(daemon.stop)
    thread.join(10)
    loop.close()


def query_of(path: str) -> dict[str, str]:
    """What some routes do not go without."""
    if path.endswith("/search"):
        return {"q": "hush"}
    if path.endswith("/file"):
        return {"path": "MEMORY.md"}
    return {"project": "anas"} if path.startswith("/v1/documents/") else {}


def test_nobody_else_sees_a_persons_session_by_any_route(url: str) -> None:
    described = httpx2.get(f"{url}/openapi.json").json()
    said = httpx2.post(
        f"{url}/v1/sessions/{ANAS}/messages", json={"text": "hush"}, headers=bearer("user-secret")
    ).json()
    routes = [
        (
            method.upper(),
            path.replace("{key}", ANAS).replace("{id}", said["turn"]).replace("{name}", "build"),
            operation,
        )
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
        # webhooks prove who they are by a signature; an agent's files are for all who may speak to it
        if "{" in path.replace("{agent}", "") and operation.get("security") != []
    ]
    assert len(routes) > 15
    for method, path, operation in routes:
        body = BODIES.get(path.rpartition("/")[2], {}) if "requestBody" in operation else None
        for headers, expected in [(bearer("bob-secret"), {404}), ({}, {401})]:
            answer = httpx2.request(method, url + path, params=query_of(path), json=body, headers=headers)
            assert answer.status_code in expected, (method, path, answer.text)
            assert "hush" not in answer.text
    for path in ("/v1/sessions", "/v1/usage"):
        answer = httpx2.get(url + path, headers=bearer("bob-secret"))
        assert answer.status_code == 200
        assert "ana" not in answer.text
    for secret in SECRETS:
        assert "hush" in httpx2.get(f"{url}/v1/sessions/{ANAS}/transcript", headers=bearer(secret)).text


BODIES: dict[str, dict[str, Any]] = {
    "messages": {"text": "a"},
    "entries": {"entries": [{"role": "user", "text": "a"}]},
    "resume": {"session": "0" * 26},
    "fork": {"to": "agent:main:web:direct:bob"},
    "pin": {"seq": 1},
}


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_no_request_gets_a_5xx_or_an_answer_outside_the_description(url: str, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    # a backup writes where it is told to
    endless = ["/v1/events", "/v1/sessions/{key}/events"]
    for operation in (result.ok() for result in schema.exclude(path=["/v1/backup", *endless]).get_all_operations()):
        if mode is GenerationMode.POSITIVE or operation.body or operation.query:
            send_all(url, operation, mode)


def send_all(url: str, operation: Any, mode: GenerationMode) -> None:
    @given(operation.as_strategy(generation_mode=mode))
    @settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def send(case: schemathesis.Case) -> None:
        for secret in SECRETS:
            # a well-formed cursor, model or message may still mean nothing
            case.call_and_validate(
                base_url=url, headers=bearer(secret), timeout=20, excluded_checks=[positive_data_acceptance]
            )

    send()
