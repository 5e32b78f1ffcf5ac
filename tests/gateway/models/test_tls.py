"""All models check their servers against the same certificates."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from gateway.models.anthropic import AnthropicModel
from gateway.models.openai import OpenAIModel
from gateway.models.policy import ModelPolicy
from gateway.models.tls import checked_by

if TYPE_CHECKING:
    import pytest


def _load(_digest: str) -> bytes:
    return b""


async def test_certificates_are_read_once_and_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[ssl.SSLContext] = []
    make = ssl.SSLContext.load_verify_locations

    def load_verify_locations(self: ssl.SSLContext, *values: Any, **more: Any) -> None:
        read.append(self)
        make(self, *values, **more)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", load_verify_locations)
    checked_by.cache_clear()
    policy = ModelPolicy(provider="openai", model="m", base_url="https://models.lan/v1")
    for kind in (OpenAIModel, AnthropicModel, OpenAIModel):
        model = kind("m", policy, api_key="x", window=None, count=len, load_blob=_load)
        await model.close()
    assert read == [checked_by()]
    assert checked_by().verify_mode == ssl.CERT_REQUIRED
    assert checked_by().check_hostname
