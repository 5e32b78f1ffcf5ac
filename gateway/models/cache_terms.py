"""How long providers keep a prompt's prefix, and how long it must be: what they publish, as a table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from compaction.explainer import CacheTerms

if TYPE_CHECKING:
    from gateway.models.policy import ModelPolicy

OPENAI_HOST = "api.openai.com"
ANTHROPIC_HOST = "api.anthropic.com"
MINIMUM_ELSEWHERE = 64
FIVE_MINUTES, HALF_AN_HOUR, AN_HOUR = 300.0, 1800.0, 3600.0
_MINIMUM = (
    (re.compile(r"haiku-4-5|opus-4-[56]"), 4096),
    (re.compile(r"opus-5|fable-5|mythos-5"), 512),
)
_GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?")


def is_original(policy: ModelPolicy) -> bool:
    """Whether a model is asked at its maker's own address."""
    host = urlsplit(policy.base_url or "").hostname
    return host is None or host in (OPENAI_HOST, ANTHROPIC_HOST)


def has_breakpoints(policy: ModelPolicy) -> bool:
    """Whether an OpenAI model takes explicit breakpoints: gpt-5.6 and later (API reference, `prompt_cache_options`)."""
    found = _GPT.search(policy.model)
    if policy.provider != "openai" or not is_original(policy) or found is None:
        return False
    return (int(found[1]), int(found[2] or 0)) >= (5, 6)


def cache_terms(policy: ModelPolicy, *, seen: bool) -> CacheTerms:
    """`seen`: the model has reported cached tokens before; servers of one's own may never do."""
    if policy.provider == "anthropic":
        minimum = next((minimum for pattern, minimum in _MINIMUM if pattern.search(policy.model)), 1024)
        return CacheTerms(
            lifetime_s=AN_HOUR if policy.cache_ttl == "1h" else FIVE_MINUTES, minimum=minimum, reports=True
        )
    if policy.provider == "openai" and is_original(policy):
        return CacheTerms(
            lifetime_s=HALF_AN_HOUR if has_breakpoints(policy) else FIVE_MINUTES, minimum=1024, reports=True
        )
    return CacheTerms(lifetime_s=FIVE_MINUTES, minimum=MINIMUM_ELSEWHERE, reports=seen)
