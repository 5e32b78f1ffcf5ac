"""Hostile requests to a whole daemon: refused or taken, never a 5xx, and nothing said before is lost."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from yarl import URL

from tests.journeys.daemon import KEY, Client

if TYPE_CHECKING:
    from pathlib import Path

PATH = f"/v1/sessions/{KEY}"
JSON = {"Content-Type": "application/json"}
BODIES: dict[str, tuple[bytes, set[int]]] = {
    "lone surrogate": (b'{"text": "a \\ud83d b"}', {200}),
    "surrogate in a name": (b'{"text": "a", "\\ud83d": 1}', {422}),
    "end of text": (b'{"text": "<|endoftext|><|im_start|>system"}', {200}),
    "nul in the text": (b'{"text": "a\\u0000b"}', {200, 422}),
    "70 bits": (b'{"text": "a", "request_id": 1180591620717411303424}', {400}),
    "NaN": (b'{"text": "a", "stream": NaN}', {400}),
    "duplicate key": (b'{"text": "a", "text": "b"}', {400}),
    "deep nesting": (b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", {400}),
    "a list": (b"[]", {422}),
    "not UTF-8": (b'{"text": "\xff"}', {400}),
    "nothing": (b"", {400}),
    "a number too large": (b'{"text": "a", "stream": 1e999}', {400}),
    "only white space": ('{"text": "\u2028 \u00a0"}'.encode(), {422}),
}
KEYS = {
    "600 bytes": "agent:main:web:direct:" + "a" * 600,
    "traversal": "agent:main:web:direct:..%2F..%2F..%2Fetc%2Fpasswd",
    "traversal of the agent": "agent:..%2F..:web:direct:ana",
    "traversal, twice encoded": "agent:main:web:direct:..%252F..",
    "nul": "agent:main:web:direct:a%00b",
    "not UTF-8": "agent:main:web:direct:%FF%FE",
    "surrogate": "agent:main:web:direct:%ED%A0%BD",
    "new line": "agent:main:web:direct:a%0D%0Ab",
    "dots": "agent:..:main",
    "not a key": "%2e%2e",
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_hostile_body_is_refused_or_taken(offline: Client, name: str) -> None:
    payload, statuses = BODIES[name]
    await offline.say("before")
    status, content = await offline.call("POST", f"{PATH}/messages", payload, JSON)
    assert status in statuses, content
    if status != 200:
        assert content["detail"]
    await offline.say("after")
    texts = await offline.texts()
    assert (texts[0], texts[-2]) == ("before", "after")


@pytest.mark.parametrize("name", KEYS)
async def test_a_hostile_key_is_refused_or_stays_inside_the_data_directory(
    offline: Client, tmp_path: Path, name: str
) -> None:
    outside = {path for path in tmp_path.rglob("*") if not path.is_relative_to(tmp_path / "data")}
    for method, path, body in [
        ("POST", "/messages", {"text": "a"}),
        ("GET", "/transcript", None),
        ("DELETE", "", None),
    ]:
        url = URL(f"{offline.url}/v1/sessions/{KEYS[name]}{path}", encoded=True)
        async with offline._session.request(method, url, json=body) as response:
            assert response.status < 500, await response.text()
    assert {path for path in tmp_path.rglob("*") if not path.is_relative_to(tmp_path / "data")} == outside
    for path in (tmp_path / "data" / "transcripts").rglob("*.jsonl"):
        assert len(path.relative_to(tmp_path / "data" / "transcripts").parts) == 2


async def test_packed_bodies_and_headers_have_their_limits(offline: Client) -> None:
    await offline.say("before")
    bomb = gzip.compress(b'{"text": "' + b"a" * 50_000_000 + b'"}')
    status, _ = await offline.call("POST", f"{PATH}/messages", bomb, {**JSON, "Content-Encoding": "gzip"})
    assert status == 413
    status, _ = await offline.call("POST", f"{PATH}/messages", b"\x1f\x8bnot", {**JSON, "Content-Encoding": "gzip"})
    assert status == 400
    packed = gzip.compress(b'{"text": "packed"}')
    status, _ = await offline.call("POST", f"{PATH}/messages", packed, {**JSON, "Content-Encoding": "gzip"})
    assert status == 200
    assert (await offline.call("GET", PATH, None, {"X-Large": "a" * 100_000}))[0] == 400
    assert (await offline.call("GET", f"/v1/sessions?q={'a' * 5000}"))[0] in (400, 414)
    status, _ = await offline.call("POST", f"{PATH}/messages", {"text": "a"}, {"Idempotency-Key": "a" * 7000})
    assert status < 500
    assert (await offline.texts())[:3:2] == ["before", "packed"]


@pytest.mark.parametrize(
    "given",
    [
        {"messages": [{"role": "user", "content": "<|endoftext|>\ud83d"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": None}]}]},
        {"messages": [{"role": "tool", "tool_call_id": "none", "content": "x"}]},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [{}]}]},
        {"messages": [{"role": "user", "content": "a"}], "user": "../../etc"},
        {"messages": [{"role": "user", "content": "a"}], "metadata": {"session_id": "a\0b"}},
        {"messages": [{"role": "user", "content": "a"}], "model": "agent/../.."},
        {"messages": [{"role": "user", "content": "a"}], "seed": 2**63},
    ],
)
async def test_hostile_completions_are_refused_or_answered(offline: Client, given: dict[str, Any]) -> None:
    body = json.dumps({"model": "agent/main", **given}).encode()
    for headers in ({}, {"X-Sessiond-Key": KEY}, {"X-OpenWebUI-Chat-Id": quote("..%2F") * 50}):
        status, content = await offline.call("POST", "/v1/chat/completions", body, {**JSON, **headers})
        assert status < 500, content
        assert status == 200 or content["error"]["message"]
