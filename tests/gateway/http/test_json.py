from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.json import MAX_DEPTH, BadJson, clean, dump, parse_json

REFUSED = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"{'a': 1}", "not JSON"),
    (b"{} {}", "not JSON"),
    (b"[1,]", "not JSON"),
    (b'"a\nb"', "not JSON"),
    (b"NaN", "NaN is not a JSON number"),
    (b'{"a": [-Infinity]}', "-Infinity is not a JSON number"),
    (b"1e999", "too large"),
    (b'{"a": -1e400}', "too large"),
    (b"9223372036854775808", "64 bits"),
    (b"-9223372036854775809", "64 bits"),
    (str(2**70).encode(), "64 bits"),
    (b"1" * 5000, "64 bits"),
    (b'{"a": 1, "a": 1}', "'a' stands twice"),
    (b'{"x": {"a": 1, "\\u0061": 2}}', "'a' stands twice"),
    (b'{"\\ud83d": 1, "\\ufffd": 2}', "stands twice"),
    (b'{"a\\u0000b": 1}', "U\\+0000"),
    (b'{"a": "\xff"}', "not UTF-8 \\(byte 7\\)"),
    ('{"a": "é"}'.encode("utf-16"), "not UTF-8"),
    (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "nested deeper"),
    (b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1), "nested deeper"),
    (b"[" * 1_000_000, "nested deeper"),
]


@pytest.mark.parametrize(("payload", "why"), REFUSED)
def test_what_cannot_be_taken_is_refused_and_the_reason_is_named(payload: bytes, why: str) -> None:
    with pytest.raises(BadJson, match=why) as refusal:
        parse_json(payload)
    assert len(str(refusal.value).encode()) < 300


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (b'{"text": "hi", "n": [1, 2.5, true, null]}', {"text": "hi", "n": [1, 2.5, True, None]}),
        (b"\xef\xbb\xbf{}", {}),
        (b'"\\ud83d"', "\ufffd"),
        (b'"\\udC00x\\ud83d"', "\ufffdx\ufffd"),
        (b'{"\\ud83d": ["\\ud83d"]}', {"\ufffd": ["\ufffd"]}),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"a\\u0000b"', "a\0b"),
        (b'"<|endoftext|>"', "<|endoftext|>"),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b"[3.0, 1e2, -0.0]", [3, 100, 0]),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, None),
        (b"[" + b",".join([b'{"a": {}}'] * 500) + b"]", None),
        (b'"' + b"[" * 500 + b'"', "[" * 500),
    ],
)
def test_what_can_be_taken_becomes_clean_values(payload: bytes, value: Any) -> None:
    parsed = parse_json(payload)
    assert value is None or parsed == value
    assert orjson.loads(dump(parsed)) == parsed


texts = st.text(st.characters())  # with lone surrogates
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(values, st.booleans())
def test_any_json_a_client_can_write_is_stored_or_refused(value: Any, escaped: bool) -> None:
    payload = json.dumps(value, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    try:
        parsed = parse_json(payload)
    except BadJson as refusal:
        str(refusal).encode()
        return
    assert parsed == clean(value)
    assert parse_json(dump(parsed)) == parsed


@given(st.binary(max_size=60) | st.text('[]{}",:\\ud8019.eE-+naN \0', max_size=40).map(str.encode))
def test_any_bytes_are_stored_or_refused(payload: bytes) -> None:
    try:
        parsed = parse_json(payload)
    except BadJson as refusal:
        str(refusal).encode()
        return
    dump(parsed)
    # what orjson reads, it reads in the same way
    assert parsed == orjson.loads(payload.removeprefix(b"\xef\xbb\xbf")) or b"\\u" in payload
