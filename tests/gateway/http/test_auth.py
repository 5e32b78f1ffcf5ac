from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.http.auth import (
    OWNER,
    Caller,
    MissingSecret,
    Tokens,
    UnsafeBinding,
    check_binding,
    may_post,
    may_see,
    owner_of,
    speaker_of,
)
from gateway.http.policy import AuthPolicy
from sessions.keys import parse_key

IDENTITIES = {"ana": ("telegram:123", "slack:U9"), "bob": ("telegram:456",)}
ONE_TOKEN = {"name": "a", "token": "s", "role": "admin"}

admin = Caller("root", "admin")
frontend = Caller("bridge", "frontend")
telegram = Caller("tg", "frontend", key_prefixes=("agent:main:telegram", "cron:news"))
helper = Caller("hl", "frontend", agents=("helper",))
ana = Caller("ana's", "user", user="ana")
bob = Caller("bob's", "user", user="bob")
ana_web = Caller("ana's web", "user", user="ana", key_prefixes=("agent:main:web:group:",))
ana_helper = Caller("ana's helper", "user", user="ana", agents=("helper",))


def test_the_secret_comes_from_the_config_the_environment_or_as_a_hash() -> None:
    policy = AuthPolicy.model_validate(
        {
            "tokens": [
                {"name": "plain", "token": "one", "role": "admin"},
                {"name": "env", "token_env": "SECRET", "role": "frontend"},
                {"name": "hash", "token_hash": hashlib.sha256(b"three").hexdigest(), "role": "user", "user": "ana"},
            ]
        }
    )
    tokens = Tokens(policy, {"SECRET": "two"})
    names = [caller and caller.name for caller in map(tokens.caller, ("one", "two", "three", "four", "", "ON\ud83dE"))]
    assert names == ["plain", "env", "hash", None, None, None]
    assert not tokens.open
    assert Tokens(AuthPolicy(), {}).open
    with pytest.raises(MissingSecret, match="SECRET is not set"):
        Tokens(policy, {})


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        ([{"name": "a", "role": "admin"}], "exactly one of token"),
        ([{"name": "a", "token": "s", "token_env": "S", "role": "admin"}], "exactly one of token"),
        ([{"name": "a", "token": "", "role": "admin"}], "is empty"),
        ([{"name": "a", "token": "s", "role": "user"}], "needs a user"),
        ([{"name": "a", "token": "s", "role": "admin", "agents": ["main"]}], "sees everything"),
        ([{"name": "a", "token": "s", "role": "root"}], "role"),
        ([{"name": "a", "token_hash": "abc", "role": "admin"}], "token_hash"),
        ([{"name": "a", "token": "s", "role": "frontend", "key_prefixes": [""]}], "key_prefixes"),
        ([ONE_TOKEN, ONE_TOKEN], "two tokens are called 'a'"),
        ([ONE_TOKEN | {"scope": "all"}], "scope"),
    ],
)
def test_a_token_that_would_not_do_what_it_says_is_refused(tokens: list[dict[str, object]], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        AuthPolicy.model_validate({"tokens": tokens})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.5.5.5", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    check_binding(host, AuthPolicy())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.2", "box.example", "127.0.0.1.example"])
def test_an_address_others_can_reach_needs_a_token(host: str) -> None:
    with pytest.raises(UnsafeBinding, match="no token is configured"):
        check_binding(host, AuthPolicy())
    check_binding(host, AuthPolicy.model_validate({"tokens": [ONE_TOKEN]}))


@pytest.mark.parametrize(
    ("key", "owner", "seen_by"),
    [
        ("agent:main:main", None, {admin, frontend}),
        ("agent:main:main", "ana", {admin, frontend, ana, ana_web}),
        ("agent:helper:main", "ana", {admin, frontend, ana, ana_web, helper, ana_helper}),
        ("agent:main:telegram:direct:123", "ana", {admin, frontend, telegram, ana, ana_web}),
        ("agent:main:telegram:direct:456:thread:7", "bob", {admin, frontend, telegram, bob}),
        ("agent:main:telegram2:direct:123", "ana", {admin, frontend, ana, ana_web}),
        ("agent:main:telegram:group:1", None, {admin, frontend, telegram}),
        ("agent:main:web:group:1", None, {admin, frontend, ana_web}),
        ("agent:main:web:group:1", "bob", {admin, frontend, bob}),
        ("agent:main:web:group1:1", "zoe", {admin, frontend}),
        ("agent:main:sub:01J", None, {admin}),
        ("agent:main:sub:01J", "ana", {admin, ana, ana_web}),
        ("cron:news", None, {admin, telegram}),
        ("cron:newsletter", None, {admin}),
        ("hook:1", None, {admin}),
    ],
)
def test_who_sees_a_session(key: str, owner: str | None, seen_by: set[Caller]) -> None:
    everyone = {admin, OWNER, frontend, telegram, helper, ana, bob, ana_web, ana_helper}
    assert {caller for caller in everyone if may_see(caller, key, owner)} == seen_by | {OWNER}


@pytest.mark.parametrize(
    ("caller", "key", "allowed"),
    [
        (admin, "cron:news", True),
        (frontend, "agent:main:telegram:direct:9", True),
        (frontend, "agent:main:main", True),
        (frontend, "cron:news", False),
        (frontend, "hook:1", False),
        (frontend, "agent:main:sub:01J", False),
        (telegram, "agent:main:telegram:group:5", True),
        (telegram, "agent:main:slack:group:5", False),
        (telegram, "cron:news", True),
        (helper, "agent:main:main", False),
        (helper, "agent:helper:main", True),
        (ana, "agent:main:web:direct:ana", True),
        (ana, "agent:main:web:direct:ana:thread:t1", True),
        (ana, "agent:main:telegram:direct:123", True),
        (ana, "agent:main:slack:direct:U9", True),
        (ana, "agent:main:slack:direct:123", False),
        (ana, "agent:main:telegram:direct:456", False),
        (ana, "agent:main:web:direct:bob", False),
        (ana, "agent:main:web:group:ana", False),
        (ana, "agent:main:main", False),
        (ana, "cron:ana", False),
        (ana_web, "agent:main:web:group:1", True),
        (ana_web, "agent:main:web:channel:1", False),
        (ana_helper, "agent:main:web:direct:ana", False),
        (ana_helper, "agent:helper:web:direct:ana", True),
    ],
)
def test_who_may_open_a_session(caller: Caller, key: str, allowed: bool) -> None:
    assert may_post(caller, parse_key(key), None, IDENTITIES, exists=False) is allowed


def test_what_exists_may_be_written_to_by_those_who_see_it() -> None:
    key = parse_key("agent:main:web:direct:ana")
    assert not may_post(ana, key, "bob", IDENTITIES, exists=True)
    assert may_post(ana, parse_key("agent:main:web:group:1"), "ana", IDENTITIES, exists=True)


@pytest.mark.parametrize(
    ("key", "sender", "caller", "owner"),
    [
        ("agent:main:telegram:direct:123", None, frontend, "ana"),
        ("agent:main:telegram:direct:9", None, frontend, "9"),
        ("agent:main:any:direct:ana", None, frontend, "ana"),
        ("agent:main:telegram:group:9", "123", frontend, None),
        ("agent:main:main", "123", frontend, None),
        ("agent:main:web:direct:x", None, ana, "ana"),
        ("agent:main:web:group:1", None, ana_web, None),
        ("cron:news", None, admin, None),
    ],
)
def test_whom_a_new_session_belongs_to(key: str, sender: str | None, caller: Caller, owner: str | None) -> None:
    assert owner_of(parse_key(key), sender, caller, IDENTITIES) == owner


people = st.sampled_from(["ana", "bob", "123", "456", "U9"])
channels = st.sampled_from(["web", "telegram", "slack"])
keys = st.builds("agent:main:{}:{}:{}".format, channels, st.sampled_from(["direct", "group", "channel"]), people)


@given(keys)
def test_no_two_people_can_open_the_same_chat_or_see_what_the_other_opened(key: str) -> None:
    parsed = parse_key(key)
    openers = [who for who in (ana, bob) if may_post(who, parsed, None, IDENTITIES, exists=False)]
    assert len(openers) <= 1
    for who in openers:
        owner = owner_of(parsed, None, who, IDENTITIES)
        assert may_see(who, key, owner)
        assert not any(may_see(other, key, owner) for other in (ana, bob) if other is not who)


BANK = Caller("bank", "frontend", project="bank", projects=frozenset({"bank", "Kiosk"}))
BRIDGE = Caller("bridge", "frontend", projects=frozenset({"bank", "Kiosk"}))


@pytest.mark.parametrize(
    ("user", "of_bank", "of_bridge"),
    [
        ("bank:alice", True, False),
        ("Kiosk:alice", False, False),
        ("\u212aiosk:alice", False, False),
        ("alice", False, True),
        ("bank", False, True),
        ("telegram:42", False, True),
    ],
)
def test_users_of_an_engram_project_are_for_its_token_which_names_no_others(
    user: str, of_bank: bool, of_bridge: bool
) -> None:
    assert (BANK.may_speak_for(user), BRIDGE.may_speak_for(user)) == (of_bank, of_bridge)
    assert admin.may_speak_for(user)
    assert not ana.may_speak_for(user)


def test_a_chat_on_a_channel_named_like_a_project_is_with_a_user_of_the_project_for_its_token_only() -> None:
    key = parse_key("agent:main:bank:direct:alice")
    assert speaker_of(key, None, BANK, {}) == "bank:alice"
    assert speaker_of(key, None, BRIDGE, {}) is None
    assert speaker_of(parse_key("agent:main:telegram:group:g"), "123", BRIDGE, IDENTITIES) == "ana"
    assert speaker_of(parse_key("agent:main:telegram:group:g"), "123", BANK, IDENTITIES) is None
