from __future__ import annotations

import subprocess
import sys
from decimal import Decimal

import pytest

from gateway.models.discovery import DEFAULT_MODELS
from gateway.models.policy import ModelPolicy, PricePolicy
from gateway.models.prices import price, window_of
from sessions.usage import Usage

USAGE = Usage(input_total=1_000_000, cached_read=400_000, cache_write=100_000, output=10_000)
PRICES = PricePolicy(input=Decimal(2), cached_read=Decimal("0.5"), output=Decimal(8))


def test_configured_prices_count_cached_input_at_its_own_price() -> None:
    policy = ModelPolicy(provider="openai", model="m", prices=PRICES)
    assert price(policy, "m", USAGE) == Decimal("0.5") * 2 + Decimal("0.4") * Decimal("0.5") + Decimal(
        "0.1"
    ) * 2 + Decimal("0.08")


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_the_model_chosen_without_configuration_has_a_price_and_a_window(provider: str) -> None:
    policy = ModelPolicy(provider=provider, model=DEFAULT_MODELS[provider])  # type: ignore[arg-type,index]
    cost = price(policy, policy.model, USAGE)
    assert cost is not None
    assert cost > 0
    assert (window_of(policy) or 0) >= 100_000


def test_an_unknown_price_is_unknown_and_not_nothing() -> None:
    assert price(ModelPolicy(provider="openai", model="nonesuch"), "nonesuch", USAGE) is None
    assert price(None, "gpt-5", USAGE) is None
    assert window_of(ModelPolicy(provider="openai", model="nonesuch")) is None


def test_a_model_of_that_name_on_another_server_has_not_that_price() -> None:
    local = ModelPolicy(provider="openai", model="gpt-5", base_url="http://192.168.1.5:8000/v1")
    assert price(local, "gpt-5", USAGE) is None
    assert window_of(local) is None


def test_the_provider_is_known_by_its_address() -> None:
    policy = ModelPolicy(provider="openai", model="deepseek-chat", base_url="https://api.deepseek.com/v1")
    assert price(policy, "deepseek-chat", USAGE) is not None


def test_the_name_in_the_configuration_counts_where_the_reported_one_is_unknown() -> None:
    policy = ModelPolicy(provider="openai", model="gpt-5")
    assert price(policy, "some-deployment", USAGE) == price(policy, "gpt-5", USAGE)


def test_the_offline_model_costs_nothing() -> None:
    assert price(ModelPolicy(provider="offline"), "offline", USAGE) == 0


def test_the_list_is_not_loaded_for_a_server_of_ones_own() -> None:
    code = (
        "import sys; from gateway.models.policy import ModelPolicy; from gateway.models.prices import window_of;"
        "window_of(ModelPolicy(provider='openai', model='m', base_url='http://localhost:1/v1'));"
        "print('genai_prices' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
