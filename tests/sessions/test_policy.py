"""Settings of sessions: what cannot be meant is refused, with the reason."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from pydantic import ValidationError

from sessions.policy import QueuePolicy, ResetOverride, ResetPolicy, SessionsPolicy, TurnPolicy


@pytest.mark.parametrize("text", ["00:00", "04:00", "23:59", None])
def test_a_time_of_day_or_null_is_taken(text: str | None) -> None:
    assert ResetPolicy(daily_at=text).daily_at == text


@pytest.mark.parametrize("text", ["4:00", "24:00", "04:60", "04:00:00", " 04:00", "04:00 ", "4am", "", "٠٤:٠٠"])
def test_what_is_no_time_of_day_is_refused(text: str) -> None:
    for policy in (ResetPolicy, ResetOverride):
        with pytest.raises(ValidationError, match="no time of day"):
            policy(daily_at=text)


@pytest.mark.parametrize("name", ["Europe/Praha", "CET+1", "../etc/localtime", "/etc/localtime", ""])
def test_a_zone_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="no IANA time zone"):
        ResetPolicy(timezone=name)


@pytest.mark.parametrize(
    ("policy", "settings", "place"),
    [
        (SessionsPolicy, {"direct_scope": "per-peer"}, "direct_scope"),
        (SessionsPolicy, {"durability": "none"}, "durability"),
        (SessionsPolicy, {"reset": {"by_type": {"groups": {}}}}, "reset.by_type.groups.[key]"),
        (SessionsPolicy, {"reset": {"by_type": {"group": {"idle": 5}}}}, "reset.by_type.group.idle"),
        (ResetPolicy, {"idle_minutes": 0}, "idle_minutes"),
        (ResetPolicy, {"quiet_minutes": -1}, "quiet_minutes"),
        (QueuePolicy, {"cap": 0}, "cap"),
        (QueuePolicy, {"by_channel": {"web": "later"}}, "by_channel.web"),
        (TurnPolicy, {"max_attempts": 0}, "max_attempts"),
        (TurnPolicy, {"max_round": 3}, "max_round"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_at_its_place(policy: Any, settings: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError) as caught:
        policy.model_validate(settings)
    assert [".".join(map(str, error["loc"])) for error in caught.value.errors()] == [place]


def test_null_in_an_override_is_kept_apart_from_what_is_left_out() -> None:
    override = ResetOverride.model_validate({"daily_at": None})
    assert ResetOverride.model_validate(override.model_dump(exclude_unset=True)).model_fields_set == {"daily_at"}


def test_identities_are_kept_in_the_form_keys_have() -> None:
    decomposed = unicodedata.normalize("NFD", "žofie")
    policy = SessionsPolicy(identities={decomposed: (f"web:{decomposed}",)})
    assert policy.identities == {"žofie": ("web:žofie",)}


@pytest.mark.parametrize(
    ("identities", "message"),
    [
        ({"ana": ["telegram"]}, "'telegram' of 'ana' is no channel and id"),
        ({"ana": ["telegram:1:2"]}, "holds ':'"),
        ({"ana:x": []}, "holds ':'"),
        ({"": []}, "is empty"),
        ({"ana": ["web:1"], "eva": ["web:1"]}, "'web:1' is listed for 'ana' and for 'eva'"),
    ],
)
def test_an_identity_that_would_join_two_people_or_nobody_is_refused(
    identities: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        SessionsPolicy.model_validate({"identities": identities})


def test_policies_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        SessionsPolicy().durability = "flush"  # pyright: ignore[reportAttributeAccessIssue]
