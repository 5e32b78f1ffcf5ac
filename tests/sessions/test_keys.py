"""Session keys: one chat has one key, and what is malformed is named."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sessions.keys import (
    CHAT_TYPES,
    MAX_KEY_BYTES,
    ChatContext,
    DirectScope,
    MalformedKey,
    SessionKey,
    clean_id,
    derive_key,
    parse_key,
)

FORMS = [
    "agent:main:main",
    "agent:main:main:thread:7",
    "agent:work:telegram:direct:123",
    "agent:work:telegram:group:-100",
    "agent:work:slack:channel:C9:thread:1700.5",
    "agent:main:sub:01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "cron:briefing",
    "hook:6f1c",
]
IDENTITIES = {"ana": ("telegram:123", "slack:U9")}


def acceptable(text: str) -> bool:
    try:
        return len(clean_id("id", text).encode()) <= 60
    except MalformedKey:
        return False


IDS = st.one_of(
    st.text(min_size=1, max_size=12),
    st.sampled_from(
        ["main", "thread", "direct", "sub", "..", ".", "~", "a.b", "CON", "žluť", "ไทย", "👩‍👩‍👧", "\u0958"]
    ),
).filter(acceptable)


@pytest.mark.parametrize("text", FORMS)
def test_every_form_reads_back(text: str) -> None:
    assert str(parse_key(text)) == text


@pytest.mark.parametrize("text", FORMS)
def test_the_casing_of_structural_words_makes_no_second_chat(text: str) -> None:
    words = {"agent", "main", "direct", "group", "channel", "thread", "sub", "cron", "hook"}
    parts = [part.upper() if part in words and n != 1 else part for n, part in enumerate(text.split(":"))]
    assert ":".join(parts) != text
    assert parse_key(":".join(parts)) == parse_key(text)


def test_ids_keep_their_casing() -> None:
    assert parse_key("agent:main:slack:channel:c9") != parse_key("agent:main:slack:channel:C9")


@given(IDS)
def test_the_unicode_form_of_an_id_makes_no_second_chat(text: str) -> None:
    keys = {f"agent:main:web:direct:{unicodedata.normalize(form, text)}" for form in ("NFC", "NFD")}
    assert len({str(parse_key(key)) for key in keys}) == 1


@given(st.sampled_from(["main", "sub", "cron", "hook", *CHAT_TYPES]), IDS, IDS, IDS, st.none() | IDS)
def test_any_key_reads_back_as_itself(kind: str, agent: str, channel: str, peer: str, thread: str | None) -> None:
    match kind:
        case "main":
            raw = f"agent:{agent}:main"
        case "sub":
            raw = f"agent:{agent}:sub:{peer}"
        case "cron" | "hook":
            raw = f"{kind}:{peer}"
        case _:
            raw = f"agent:{agent}:{channel}:{kind}:{peer}"
    if thread is not None and kind not in ("sub", "cron", "hook"):
        raw += f":thread:{thread}"
    key = parse_key(raw)
    assert (key.type, parse_key(str(key))) == (kind, key)
    assert str(key) == unicodedata.normalize("NFC", raw)


@given(st.lists(st.sampled_from(["agent", "main", "Thread", "direct", "sub", "cron", "x", "", " ", "\ud83d", "é"])))
def test_whatever_is_sent_is_a_key_that_reads_back_or_malformed(parts: list[str]) -> None:
    raw = ":".join(parts)
    try:
        key = parse_key(raw)
    except MalformedKey:
        return
    assert parse_key(str(key)) == key


@pytest.mark.parametrize(
    ("text", "part", "why"),
    [
        ("", "first word", "a key starts with"),
        ("agents:main:main", "first word", "'agents'"),
        ("agent", "whole key", "too short"),
        ("agent:main", "whole key", "too short"),
        ("agent::main", "agent", "is empty"),
        ("agent:main:telegram", "after the agent", "expected"),
        ("agent:main:telegram:chat:1", "chat type", "'chat'"),
        ("agent:main:telegram:direct:", "direct id", "is empty"),
        ("agent:main::direct:1", "channel", "is empty"),
        ("agent:main:telegram:group:1:thread:", "thread id", "is empty"),
        ("agent:main:telegram:group:1:2", "after the agent", "expected"),
        ("agent:main:telegram:group:1:topic:2", "after the agent", "expected"),
        ("agent:main:sub:1:thread:2", "thread", "no threads"),
        ("cron:", "cron id", "is empty"),
        ("cron:a:b", "cron", "exactly one id"),
        ("hook", "hook", "exactly one id"),
        ("agent:main:web:direct:../../etc/passwd", "direct id", "'/'"),
        ("agent:..%2f/:main", "agent", "'/'"),
        ("agent:main:web:direct:a\x00b", "direct id", "U+0000"),
        ("agent:main:web:direct:a\nb", "direct id", "U+000A"),
        ("agent:main:web:direct:a\u2028b", "direct id", "U+2028"),
        ("agent:main:web:direct:\ud83d", "direct id", "U+D83D"),
        ("agent:main:web:direct: a", "direct id", "white space"),
        ("agent:main:web:direct:a\u00a0", "direct id", "white space"),
    ],
)
def test_a_malformed_key_names_its_part(text: str, part: str, why: str) -> None:
    with pytest.raises(MalformedKey) as caught:
        parse_key(text)
    assert caught.value.part == part
    assert why in caught.value.why


def test_a_key_has_at_most_512_bytes_as_it_is_kept() -> None:
    start = "agent:main:web:direct:"
    room = MAX_KEY_BYTES - len(start)
    assert len(str(parse_key(start + "x" * room))) == MAX_KEY_BYTES
    combined = "e\u0301" * (room // 2)  # three bytes each as sent, two as kept
    assert parse_key(start + combined).peer == "é" * (room // 2)
    grows = "\u0958" * (room // 4)  # three bytes each as sent, six as kept
    for peer in ("x" * (room + 1), "é" * (room // 2 + 1), grows):
        with pytest.raises(MalformedKey, match="longer than 512 bytes"):
            parse_key(start + peer)


@pytest.mark.parametrize(
    ("scope", "context", "expected"),
    [
        ("main", ChatContext(channel="telegram", chat_type="direct", sender="5"), "agent:main:main"),
        ("main", ChatContext(channel="web", chat_type="direct", thread_id="t"), "agent:main:main:thread:t"),
        (
            "per_channel_peer",
            ChatContext(channel="telegram", chat_type="direct", sender="5", agent="work"),
            "agent:work:telegram:direct:5",
        ),
        (
            "per_channel_peer",
            ChatContext(channel="telegram", chat_type="direct", chat_id="5"),
            "agent:main:telegram:direct:5",
        ),
        ("per_peer", ChatContext(channel="slack", chat_type="direct", sender="U9"), "agent:main:any:direct:ana"),
        ("per_peer", ChatContext(channel="telegram", chat_type="direct", sender="123"), "agent:main:any:direct:ana"),
        (
            "per_peer",
            ChatContext(channel="telegram", chat_type="group", chat_id="-1", sender="123", thread_id="2"),
            "agent:main:telegram:group:-1:thread:2",
        ),
        ("main", ChatContext(channel="slack", chat_type="channel", chat_id="C1"), "agent:main:slack:channel:C1"),
    ],
)
def test_a_frontends_context_means_one_key(scope: DirectScope, context: ChatContext, expected: str) -> None:
    assert str(derive_key(context, scope, IDENTITIES)) == expected


@pytest.mark.parametrize("scope", ["per_peer", "per_channel_peer"])
@given(one=st.tuples(IDS, IDS), other=st.tuples(IDS, IDS))
def test_private_chats_of_two_people_never_share_a_session(
    scope: DirectScope, one: tuple[str, str], other: tuple[str, str]
) -> None:
    assume(
        [unicodedata.normalize("NFC", text) for text in one] != [unicodedata.normalize("NFC", text) for text in other]
    )
    keys = {
        derive_key(ChatContext(channel=channel, chat_type="direct", sender=sender), scope, {})
        for channel, sender in (one, other)
    }
    assert len(keys) == 2


def test_a_dot_in_a_channel_or_an_id_joins_no_two_people() -> None:
    keys = {
        derive_key(ChatContext(channel=channel, chat_type="direct", sender=sender), "per_peer", {})
        for channel, sender in (("a.b", "c"), ("a", "b.c"))
    }
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("context", "part"),
    [
        (ChatContext(channel="telegram", chat_type="group"), "chat_id"),
        (ChatContext(channel="telegram", chat_type="direct"), "sender"),
        (ChatContext(channel="telegram", chat_type="direct", sender=""), "sender"),
        (ChatContext(channel="tele:gram", chat_type="direct", sender="1"), "channel"),
        (ChatContext(channel="telegram", chat_type="direct", sender="1", thread_id="a/b"), "thread_id"),
        (ChatContext(channel="telegram", chat_type="direct", sender="1", agent="a:main:x"), "agent"),
        (ChatContext(channel="telegram", chat_type="group", chat_id="é" * 250), "whole key"),
    ],
)
def test_a_context_that_means_no_key_says_what_is_missing_or_wrong(context: ChatContext, part: str) -> None:
    with pytest.raises(MalformedKey) as caught:
        derive_key(context, "per_channel_peer", {})
    assert caught.value.part == part


def test_equal_chats_are_equal_values() -> None:
    assert {parse_key("AGENT:main:MAIN"), SessionKey("main")} == {SessionKey("main", "main")}
