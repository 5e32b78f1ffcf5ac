from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from pydantic import SecretStr, ValidationError

from gateway.models.discovery import key_of, probe_ollama, signed_in
from gateway.models.policy import ModelPolicy

if TYPE_CHECKING:
    from pytest_aiohttp.plugin import AiohttpServer

ENVIRON = {"OPENAI_API_KEY": "own", "MINE": "mine"}


@pytest.mark.parametrize(
    ("policy", "key"),
    [
        (ModelPolicy(provider="openai", model="m", api_key=SecretStr("given")), "given"),
        (ModelPolicy(provider="openai", model="m", api_key_env="MINE", base_url="http://elsewhere/v1"), "mine"),
        (ModelPolicy(provider="openai", model="m", api_key_env="UNSET"), None),
        (ModelPolicy(provider="openai", model="m"), "own"),
        (ModelPolicy(provider="openai", model="m", base_url="https://api.openai.com/v1"), "own"),
        (ModelPolicy(provider="openai", model="m", base_url="http://elsewhere/v1"), None),
        (ModelPolicy(provider="anthropic", model="m"), None),
        (ModelPolicy(provider="offline"), None),
    ],
)
def test_a_key_goes_only_where_it_belongs(policy: ModelPolicy, key: str | None) -> None:
    assert key_of(policy, ENVIRON) == key


@pytest.mark.parametrize(
    ("body", "model"),
    [
        ('{"models": [{"name": "nomic-embed-text"}, {"name": "llama4:8b"}]}', "llama4:8b"),
        ('{"models": []}', None),
        ('{"models": null}', None),
        ("[]", None),
        ("<html>", None),
    ],
)
async def test_ollama_is_asked_for_a_model_that_can_chat(
    aiohttp_server: AiohttpServer, body: str, model: str | None
) -> None:
    async def tags(_: web.Request) -> web.Response:
        return web.Response(text=body)

    app = web.Application()
    app.router.add_get("/api/tags", tags)
    server = await aiohttp_server(app)
    assert await asyncio.to_thread(probe_ollama, server.port) == model


def test_no_ollama_is_no_model() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert probe_ollama(unused.getsockname()[1]) is None


@pytest.mark.parametrize("url", ["127.0.0.1:11434", "ftp://host/v1", "http://", "http://host:port/v1"])
def test_an_address_that_is_none_is_refused_at_the_edge(url: str) -> None:
    with pytest.raises(ValidationError, match="no address of an API"):
        ModelPolicy(provider="openai", model="m", base_url=url)


@pytest.mark.parametrize("url", ["https://host/v1?version=2", "https://host/v1#a"])
def test_an_address_with_more_than_a_path_is_refused_since_that_would_not_reach_it(url: str) -> None:
    with pytest.raises(ValidationError, match="ends with its path"):
        ModelPolicy(provider="openai", model="m", base_url=url)


def test_a_model_without_a_name_is_refused() -> None:
    with pytest.raises(ValidationError, match="model is missing"):
        ModelPolicy(provider="anthropic")


def test_a_user_and_password_in_an_address_become_a_header() -> None:
    assert signed_in("http://ana:p%40ss@host:1/v1?a=b") == (
        "http://host:1/v1?a=b",
        {"Authorization": "Basic YW5hOnBAc3M="},
    )
    assert signed_in("http://ana@host") == ("http://host", {"Authorization": "Basic YW5hOg=="})
    assert signed_in("http://host/@x") == ("http://host/@x", {})
