from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.explainer import CAUSES, CacheTerms, Step, Verdict, explain
from compaction.fingerprints import Section, Shared
from sessions.usage import Usage

TERMS = CacheTerms(lifetime_s=300, minimum=1024, reports=True)
HIT = Usage(input_total=5000, cached_read=4900)
MISS = Usage(input_total=5000)
sections = st.none() | st.sampled_from(get_args(Section))


def step(section: Section | None = None, **more: Any) -> Step:
    known: dict[str, Any] = {"elapsed_s": 10, "same_model": True, "same_generation": True, "shared_tokens": 4900}
    return Step(shared=Shared(tokens=4900, section=section), **{**known, **more})


@pytest.mark.parametrize(
    ("given_step", "usage", "terms", "cause"),
    [
        (None, MISS, TERMS, "first_call"),
        (step(), HIT, TERMS, None),
        (step(), MISS, TERMS, "provider_miss"),
        (step(elapsed_s=301), MISS, TERMS, "expired"),
        (step(elapsed_s=301), HIT, TERMS, None),
        (step(shared_tokens=1000), MISS, TERMS, "below_minimum"),
        (step(same_model=False), HIT, TERMS, "model_changed"),
        (step("tools"), HIT, TERMS, "tools_changed"),
        (step("system"), MISS, TERMS, "system_changed"),
        (step("summary", same_generation=False), MISS, TERMS, "compaction"),
        (step("history", same_generation=False), MISS, TERMS, "compaction"),
        (step("history"), MISS, TERMS, "history_edited"),
        (step("tools", same_generation=False), MISS, TERMS, "tools_changed"),
        (step(), MISS, CacheTerms(lifetime_s=300, minimum=64, reports=False), None),
        (step(), Usage(input_total=5000, reported=False), TERMS, None),
        (step(), Usage(input_total=5000, cached_read=2500), TERMS, None),
        (step(), Usage(input_total=5000, cached_read=2400), TERMS, "provider_miss"),
    ],
)
def test_each_cause(given_step: Step | None, usage: Usage, terms: CacheTerms, cause: str | None) -> None:
    assert explain(given_step, usage, terms).cause == cause


@given(
    st.builds(
        Step,
        shared=st.builds(Shared, tokens=st.integers(0, 9000), section=sections),
        shared_tokens=st.integers(0, 9000),
        elapsed_s=st.floats(0, 10_000),
        same_model=st.booleans(),
        same_generation=st.booleans(),
    ),
    st.integers(0, 9000),
    st.booleans(),
)
def test_what_differs_always_has_a_cause_of_ours_and_a_hit_none_of_the_provider(
    given_step: Step, cached: int, reports: bool
) -> None:
    terms = CacheTerms(lifetime_s=300, minimum=1024, reports=reports)
    verdict = explain(given_step, Usage(input_total=9000, cached_read=cached), terms)
    ours = not given_step.same_model or given_step.shared.section is not None
    assert verdict.cause is None or verdict.cause in CAUSES
    assert ours == (verdict.cause in CAUSES and verdict.cause not in ("expired", "below_minimum", "provider_miss"))
    if not ours and cached >= given_step.shared_tokens:
        assert verdict == Verdict(cause=None)
