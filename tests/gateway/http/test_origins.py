from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.http.origins import check_open_access, is_loopback_host
from gateway.http.problems import Problem
from tests.gateway.http.conftest import TOKENS, bearer

if TYPE_CHECKING:
    from tests.gateway.http.conftest import Serve

CHAT = "https://chat.example"


@pytest.mark.parametrize(
    ("method", "host", "origin", "allowed"),
    [
        ("POST", "127.0.0.1:8420", None, True),
        ("POST", None, None, True),
        ("POST", "localhost", None, True),
        ("POST", "[::1]:8420", None, True),
        ("POST", "sessiond.localhost:8420", None, True),
        ("GET", "evil.example:8420", None, False),
        ("POST", "evil.example", "http://evil.example", False),
        ("POST", "127.0.0.1.evil.example", None, False),
        ("POST", "[", None, False),
        ("POST", "", None, False),
        ("POST", "127.0.0.1:8420", "http://127.0.0.1:8420", True),
        ("POST", "127.0.0.1:8420", "http://127.0.0.1:9999", False),
        ("POST", "127.0.0.1:8420", "https://evil.example", False),
        ("DELETE", "127.0.0.1:8420", "null", False),
        ("POST", "127.0.0.1:8420", CHAT, True),
        ("GET", "127.0.0.1:8420", "https://evil.example", True),
    ],
)
def test_without_tokens_other_pages_cannot_act_as_the_owner(
    method: str, host: str | None, origin: str | None, allowed: bool
) -> None:
    if allowed:
        check_open_access(method, host, origin, (CHAT,))
        return
    with pytest.raises(Problem) as refusal:
        check_open_access(method, host, origin, (CHAT,))
    assert refusal.value.status == 403


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:99999999", "LOCALHOST"])
def test_names_of_this_machine(host: str) -> None:
    assert is_loopback_host(host)


async def test_a_page_of_a_foreign_origin_is_refused_before_anything_is_done(serve: Serve) -> None:
    client = await serve()
    refused = await client.post(
        "/v1/notes/agent:main:main", data='{"text": "a"}', headers={"Origin": "https://evil.example"}
    )
    assert refused.status == 403
    assert "Access-Control-Allow-Origin" not in refused.headers
    with_tokens = await serve(auth=TOKENS)
    headers = {"Origin": "https://evil.example", "Host": "sessiond.example", **bearer("admin-secret")}
    assert (await with_tokens.get("/v1/things/a", headers=headers)).status == 200


async def test_a_configured_origin_may_call_and_read_errors_too(serve: Serve) -> None:
    client = await serve(auth=TOKENS, cors_origins=[CHAT])
    origin = {"Origin": CHAT}
    for path, headers, status in [
        ("/v1/things/a", bearer("user-secret"), 200),
        ("/v1/things/a", {}, 401),
        ("/x", {}, 404),
    ]:
        response = await client.get(path, headers=origin | headers)
        assert response.status == status
        assert response.headers["Access-Control-Allow-Origin"] == CHAT
        assert response.headers["Vary"] == "Origin"
        assert "Retry-After" in response.headers["Access-Control-Expose-Headers"]


async def test_a_preflight_needs_no_token_and_tells_what_may_be_sent(serve: Serve) -> None:
    client = await serve(auth=TOKENS, cors_origins=[CHAT])
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    response = await client.options("/v1/notes/agent:main:main", headers={"Origin": CHAT, **asked})
    assert response.status == 204
    assert "Authorization" in response.headers["Access-Control-Allow-Headers"]
    assert "POST" in response.headers["Access-Control-Allow-Methods"]
    foreign = await client.options("/v1/notes/agent:main:main", headers={"Origin": "https://evil.example", **asked})
    assert not [name for name in foreign.headers if name.startswith("Access-Control")]


async def test_without_configured_origins_no_page_may_read_anything(serve: Serve) -> None:
    response = await (await serve(auth=TOKENS)).get("/hello", headers={"Origin": CHAT})
    assert not [name for name in response.headers if name.startswith("Access-Control")]
