"""Which model there is when none is configured: one with a key in the environment, or Ollama on this machine."""

from __future__ import annotations

import base64
import http.client
import json
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from gateway.models.partial import fields_of, string
from gateway.models.policy import ModelPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.models.policy import Provider

DEFAULT_MODELS: dict[Provider, str] = {"anthropic": "claude-sonnet-5-5", "openai": "gpt-5.4-mini"}
OWN_HOSTS: dict[Provider, str] = {"anthropic": "api.anthropic.com", "openai": "api.openai.com"}
KEY_VARIABLES: dict[Provider, str] = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
OLLAMA_PORT = 11434
OLLAMA_WAIT_S = 0.3


def key_of(policy: ModelPolicy, environ: Mapping[str, str]) -> str | None:
    """The API key: the configured one, the named variable's, or that of the provider's usual variable.

    The usual variable holds a key of the provider's own service, so it is not sent to any other `base_url`.
    """
    if policy.api_key is not None:
        return policy.api_key.get_secret_value()
    if policy.api_key_env is not None:
        return environ.get(policy.api_key_env) or None
    if policy.base_url is not None and urlsplit(policy.base_url).hostname != OWN_HOSTS.get(policy.provider):
        return None
    return environ.get(KEY_VARIABLES.get(policy.provider, "")) or None


def signed_in(url: str) -> tuple[str, dict[str, str]]:
    """An address without the user and password in it, and the header that says them instead of a key."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    signed = base64.b64encode(unquote(user if ":" in user else f"{user}:").encode()).decode()
    return parts._replace(netloc=host).geturl(), {"Authorization": f"Basic {signed}"}


def found_in(environ: Mapping[str, str], probe: Callable[[], str | None] = lambda: None) -> dict[str, ModelPolicy]:
    """The model to use without configuration, under the name `chat`; empty when only the offline model is left.

    `probe` tells the name of a model Ollama serves here, if any; it is asked last.
    """
    for provider, variable in KEY_VARIABLES.items():
        if environ.get(variable):
            return {"chat": ModelPolicy(provider=provider, model=DEFAULT_MODELS[provider])}
    served = probe()
    if served is None:
        return {}
    return {"chat": ModelPolicy(provider="openai", model=served, base_url=f"http://127.0.0.1:{OLLAMA_PORT}/v1")}


def probe_ollama(port: int = OLLAMA_PORT) -> str | None:
    """The model used last of an Ollama on this machine; None when there is none. Blocks for 0.3 s at most."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=OLLAMA_WAIT_S)
    try:
        connection.request("GET", "/api/tags")
        answer: Any = json.loads(connection.getresponse().read(1_000_000))
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return _first_chat_model(answer)


def _first_chat_model(answer: Any) -> str | None:
    """Ollama lists the newest first; embedding models cannot chat."""
    models = cast("list[Any]", fields_of(answer).get("models") or [])
    names = [string(fields_of(model).get("name")) for model in models]
    return next((name for name in names if name and "embed" not in name), None)
