"""What is no HTTP request is answered in words, by a daemon that goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import orjson
import pytest

if TYPE_CHECKING:
    from tests.journeys.daemon import Client

MALFORMED = {
    "long header": (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 20_000 + b"\r\n\r\n", "Header too long"),
    "long address": (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", "Header too long"),
    "no HTTP": (b"hello there\r\n\r\n", "Malformed request"),
    "no such version": (b"GET / HTTP/x\r\n\r\n", "Malformed request"),
    "two lengths": (
        b"POST /v1/inbound HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "Malformed request",
    ),
    "header without a colon": (b"GET / HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n", "Malformed request"),
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_what_is_no_request_is_told_in_words(offline: Client, name: str) -> None:
    sent, title = MALFORMED[name]
    address = urlsplit(offline.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(sent)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400")), head
    assert b"application/problem+json" in head
    problem = orjson.loads(body)
    assert (problem["title"], problem["status"]) == (title, 400)
    assert problem["detail"]
    assert (await offline.say("still there?"))["state"] == "done"


ASKED = {
    "/v1/inbound": {"channel": "web", "chat_type": "direct", "sender": "ana", "text": "hi"},
    "/v1/chat/completions": {"model": "agent/main", "messages": [{"role": "user", "content": "hi"}], "user": "ana"},
}


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("given", [b"x" * 257, b"\xff\xfe", b"a\xc2\x85b"])
async def test_an_idempotency_key_that_no_body_could_hold_is_refused(offline: Client, path: str, given: bytes) -> None:
    address = urlsplit(offline.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    body = orjson.dumps(ASKED[path])
    head = b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    head += b"Idempotency-Key: %b\r\nContent-Length: %d\r\n\r\n"
    writer.write(head % (path.encode(), given, len(body)) + body)
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400"), answer
    assert b"Idempotency-Key" in answer
    assert (await offline.get("/v1/sessions"))["sessions"] == []
