from __future__ import annotations

from typing import Any

import pytest

from compaction.explainer import CacheTerms
from gateway.models.cache_terms import cache_terms, has_breakpoints
from gateway.models.policy import ModelPolicy


def policy(provider: str, model: str, **more: Any) -> ModelPolicy:
    return ModelPolicy.model_validate({"provider": provider, "model": model, **more})


@pytest.mark.parametrize(
    ("given_policy", "terms"),
    [
        (policy("anthropic", "claude-sonnet-5"), CacheTerms(lifetime_s=300, minimum=1024, reports=True)),
        (
            policy("anthropic", "claude-haiku-4-5", cache_ttl="1h"),
            CacheTerms(lifetime_s=3600, minimum=4096, reports=True),
        ),
        (policy("anthropic", "claude-opus-5"), CacheTerms(lifetime_s=300, minimum=512, reports=True)),
        (policy("openai", "gpt-5.6-mini"), CacheTerms(lifetime_s=1800, minimum=1024, reports=True)),
        (policy("openai", "gpt-4.1"), CacheTerms(lifetime_s=300, minimum=1024, reports=True)),
        (
            policy("openai", "llama", base_url="http://127.0.0.1:11434/v1"),
            CacheTerms(lifetime_s=300, minimum=64, reports=False),
        ),
    ],
)
def test_what_providers_publish(given_policy: ModelPolicy, terms: CacheTerms) -> None:
    assert cache_terms(given_policy, seen=False) == terms
    assert cache_terms(given_policy, seen=True).reports


@pytest.mark.parametrize(
    ("model", "base_url", "known"),
    [
        ("gpt-5.6", None, True),
        ("gpt-6", None, True),
        ("gpt-5.5-pro", None, False),
        ("gpt-4o", None, False),
        ("gpt-5.6", "http://127.0.0.1:8000/v1", False),
        ("llama", None, False),
    ],
)
def test_which_models_take_breakpoints(model: str, base_url: str | None, known: bool) -> None:
    assert has_breakpoints(policy("openai", model, base_url=base_url)) == known
