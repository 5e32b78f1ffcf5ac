"""Why a provider read a prompt from its cache, or did not (spec compaction.md, "Prompt layout and cache")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from compaction.fingerprints import Section, Shared
    from sessions.usage import Usage

Cause = Literal[
    "first_call",
    "expired",
    "model_changed",
    "tools_changed",
    "system_changed",
    "history_edited",
    "compaction",
    "below_minimum",
    "provider_miss",
]
CAUSES: tuple[str, ...] = get_args(Cause)
ENOUGH = 0.5
"""Providers round down and count differently; less than this share of the common prefix is not a hit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTerms:
    """A provider's: how long it keeps a prefix that is not used, the shortest one it keeps (in its tokens), and
    whether it reports what it read from its cache."""

    lifetime_s: float
    minimum: int
    reports: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call beside the one before it. `shared_tokens`: their common prefix in the provider's tokens."""

    shared: Shared
    shared_tokens: int
    elapsed_s: float
    same_model: bool
    same_generation: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`cause` None: nothing is wrong, or the provider does not say. `section`: the first that differs."""

    cause: Cause | None
    section: Section | None = None


def explain(step: Step | None, usage: Usage, terms: CacheTerms) -> Verdict:
    """`step` None: the session's first call. What differs in the prompt comes first; only then is it the provider."""
    if step is None:
        return Verdict(cause="first_call")
    if not step.same_model:
        return Verdict(cause="model_changed", section=step.shared.section)
    section = step.shared.section
    if section is not None:
        return Verdict(cause=_of_section(section, same_generation=step.same_generation), section=section)
    if not usage.reported or not terms.reports or usage.cached_read >= ENOUGH * step.shared_tokens:
        return Verdict(cause=None)
    if step.shared_tokens < terms.minimum:
        return Verdict(cause="below_minimum")
    return Verdict(cause="expired" if step.elapsed_s > terms.lifetime_s else "provider_miss")


def _of_section(section: Section, *, same_generation: bool) -> Cause:
    if section == "tools":
        return "tools_changed"
    if section == "system":
        return "system_changed"
    return "history_edited" if same_generation else "compaction"
