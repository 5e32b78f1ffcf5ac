"""What a call costs, and how much a model can read, as far as that is known."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.models.policy import ModelPolicy, PricePolicy
    from sessions.usage import Usage

MILLION = Decimal(1_000_000)


def price(policy: ModelPolicy | None, model: str, usage: Usage) -> Decimal | None:
    """The cost of one call in US dollars; None when the price is unknown, which is not 0."""
    if policy is None:
        return None
    if policy.prices is not None:
        return _by_policy(policy.prices, usage)
    if policy.provider == "offline":
        return Decimal(0)
    if policy.base_url is not None:
        return None
    return _by_list(policy.provider, model, usage)


def _by_policy(prices: PricePolicy, usage: Usage) -> Decimal:
    read = prices.input if prices.cached_read is None else prices.cached_read
    write = prices.input if prices.cache_write is None else prices.cache_write
    plain = usage.input_total - usage.cached_read - usage.cache_write
    total = plain * prices.input + usage.cached_read * read + usage.cache_write * write + usage.output * prices.output
    return total / MILLION


def _by_list(provider: str, model: str, usage: Usage) -> Decimal | None:
    from genai_prices import Usage as ListedUsage
    from genai_prices import calc_price

    listed = ListedUsage(
        input_tokens=usage.input_total,
        cache_read_tokens=usage.cached_read,
        cache_write_tokens=usage.cache_write,
        output_tokens=usage.output,
    )
    try:
        return calc_price(listed, model_ref=model, provider_id=provider).total_price
    except LookupError:
        return None


def window_of(provider: str, model: str) -> int | None:
    """Tokens a model can read, by the built-in list; None when it does not know."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        _, found = get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return None
    return found.context_window
