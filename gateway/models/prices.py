"""What a call costs, and how much a model can read, as far as that is known."""

from __future__ import annotations

from decimal import Decimal
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

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
    found = _by_list(policy, model, usage)
    return _by_list(policy, policy.model, usage) if found is None else found


def _by_policy(prices: PricePolicy, usage: Usage) -> Decimal:
    read = prices.input if prices.cached_read is None else prices.cached_read
    write = prices.input if prices.cache_write is None else prices.cache_write
    plain = usage.input_total - usage.cached_read - usage.cache_write
    total = plain * prices.input + usage.cached_read * read + usage.cache_write * write + usage.output * prices.output
    return total / MILLION


def in_list(policy: ModelPolicy) -> bool:
    """Whether the built-in list can know it. The list takes 0.25 s and 30 MB to load: not for a server of one's own."""
    host = urlsplit(policy.base_url or "").hostname
    if policy.provider == "offline" or host == "localhost":
        return False
    try:
        return host is None or ip_address(host).is_global
    except ValueError:
        return True


def _by_list(policy: ModelPolicy, model: str, usage: Usage) -> Decimal | None:
    """By the provider behind `base_url`, where the list knows that address. The list comes with the package."""
    if not in_list(policy):
        return None
    from genai_prices import Usage as ListedUsage
    from genai_prices import calc_price

    listed = ListedUsage(
        input_tokens=usage.input_total,
        cache_read_tokens=usage.cached_read,
        cache_write_tokens=usage.cache_write,
        output_tokens=usage.output,
    )
    try:
        if policy.base_url is not None:
            return calc_price(listed, model, provider_api_url=policy.base_url).total_price
        return calc_price(listed, model, provider_id=policy.provider).total_price
    except LookupError:
        return None


def window_of(policy: ModelPolicy) -> int | None:
    """Tokens a model can read: as configured, else by the built-in list; None when it does not know."""
    if policy.window is not None or not in_list(policy):
        return policy.window
    from genai_prices.data_snapshot import get_snapshot

    provider = None if policy.base_url else policy.provider
    try:
        _, found = get_snapshot().find_provider_model(policy.model, None, provider, policy.base_url)
    except LookupError:
        return None
    return found.context_window
