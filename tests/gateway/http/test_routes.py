from __future__ import annotations

import gzip
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from yarl import URL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import ClientResponse

    from tests.gateway.http.conftest import Client, Serve

NOTES = "/v1/notes/agent:main:main"


async def problem(response: ClientResponse) -> dict[str, Any]:
    assert response.content_type == "application/problem+json"
    content = await response.json(content_type=None)
    assert content["status"] == response.status
    assert content["type"].startswith("urn:sessiond:problem:")
    return content


async def note(client: Client, key: str = "agent:main:main", **fields: Any) -> ClientResponse:
    return await client.post(URL(f"/v1/notes/{key}", encoded=True), json={"text": "hi", **fields})


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ("agent:main:main", "agent:main:main"),
        ("agent%3Amain%3Amain", "agent:main:main"),
        ("AGENT:main:MAIN", "agent:main:main"),
        ("agent:main:web:direct:caf%C3%A9", "agent:main:web:direct:café"),
        ("agent:main:web:direct:cafe%CC%81", "agent:main:web:direct:café"),
        ("agent:main:web:direct:%F0%9F%98%80", "agent:main:web:direct:😀"),
        ("agent:main:web:direct:a+b%20c", "agent:main:web:direct:a+b c"),
        ("agent:main:web:direct:%2541", "agent:main:web:direct:%41"),
        ("agent:main:web:direct:100%25", "agent:main:web:direct:100%"),
        ("agent:main:web:direct:%252F..", "agent:main:web:direct:%2F.."),
        ("agent:main:web:direct:..", "agent:main:web:direct:.."),
        ("agent:main:web:direct:%E0%B8%81", "agent:main:web:direct:ก"),
    ],
)
async def test_a_key_in_the_path_is_percent_decoded_once(serve: Serve, sent: str, meant: str) -> None:
    response = await note(await serve(), sent)
    assert response.status == 201, await response.text()
    assert (await response.json())["key"] == meant


@pytest.mark.parametrize(
    ("sent", "part"),
    [
        ("main", "first word"),
        ("agent:main", "whole key"),
        ("agent:main:web:direct:a%2Fb", "direct id"),
        ("agent:..%2f..%2fetc:main", "agent"),
        ("agent:main:web:direct:a%00b", "direct id"),
        ("agent:main:web:direct:%0A", "direct id"),
        ("agent:main:web:room:1", "chat type"),
        ("agent:main:web:direct:" + "x" * 600, "whole key"),
        ("agent:main:web:direct:" + "%E0%B8%81" * 200, "whole key"),
    ],
)
async def test_a_malformed_key_is_refused_with_the_part_that_is_wrong(serve: Serve, sent: str, part: str) -> None:
    content = await problem(await note(await serve(), sent))
    assert content["status"] == 400
    assert content["type"].endswith(":malformed-session-key")
    assert content["errors"][0]["detail"].startswith(part)


@pytest.mark.parametrize(
    ("fields", "place", "words"),
    [
        ({"txt": "a"}, "txt", "did you mean 'text'?"),
        ({"zzzzzz": 1}, "zzzzzz", "not a known field; remove it"),
        ({"colours": [{"name": "red", "shre": 1}]}, "colours.0.shre", "did you mean 'share'?"),
        ({"stars": "3"}, "stars", "valid integer"),
        ({"stars": 6}, "stars", "less than or equal to 5"),
        ({"done": "yes"}, "done", "valid boolean"),
        ({"done": 1}, "done", "valid boolean"),
        ({"text": 5}, "text", "valid string"),
        ({"text": None}, "text", "valid string"),
        ({"kind": "tree"}, "kind", "'plain' or 'list'"),
        ({"x\ud83dy": 1}, "x\ufffdy", "not a known field"),
    ],
)
async def test_a_wrong_field_is_refused_with_its_place(
    serve: Serve, fields: dict[str, Any], place: str, words: str
) -> None:
    content = await problem(await note(await serve(), **fields))
    assert content["status"] == 422
    (error,) = content["errors"]
    assert error["place"] == place
    assert words in error["detail"]
    assert place in content["detail"]


async def test_a_whole_number_may_be_written_with_a_point(serve: Serve) -> None:
    assert (await (await note(await serve(), stars=3.0)).json())["stars"] == 3


async def test_a_secret_in_a_wrong_field_is_not_repeated(serve: Serve) -> None:
    response = await note(await serve(), stars="my password")
    assert "my password" not in await response.text()


@pytest.mark.parametrize(
    ("payload", "status", "words"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b'{"text": NaN}', 400, "NaN"),
        (b'{"text": "\xff"}', 400, "UTF-8"),
        (b'{"text": "a", "text": "b"}', 400, "stands twice"),
        (b'{"text": "a", "stars": 1180591620717411303424}', 400, "64 bits"),
        (b"[" * 100_000, 400, "nested deeper"),
        (b"[]", 422, "must be a JSON object"),
        (b'"text"', 422, "must be a JSON object"),
        (b"null", 422, "must be a JSON object"),
    ],
)
async def test_a_malformed_body_is_refused(serve: Serve, payload: bytes, status: int, words: str) -> None:
    content = await problem(await (await serve()).post(NOTES, data=payload))
    assert content["status"] == status
    assert words in content["detail"]


async def test_half_a_character_becomes_a_replacement_character(serve: Serve) -> None:
    response = await (await serve()).post(NOTES, data=b'{"text": "a\\ud83d"}')
    assert (await response.json())["text"] == "a\ufffd"


async def test_a_body_may_be_left_out_where_it_is_optional(serve: Serve) -> None:
    client = await serve()
    assert await (await client.post("/v1/optional")).json() == {"size": 0}
    assert await (await client.post("/v1/optional", json={"size": 3})).json() == {"size": 3}


async def test_the_query_is_checked_like_the_body(serve: Serve) -> None:
    client = await serve()
    assert (await (await client.post(f"{NOTES}?loud=true&times=2", json={"text": "a"})).json())["text"] == "AA"
    for query, words in [
        ("lod=1", "did you mean 'loud'"),
        ("times=9", "less than or equal to 3"),
        ("times=x", "valid integer"),
        ("times=1&times=2", "valid integer"),
        ("%ED%A0%BD=1", "not a known field"),
    ]:
        content = await problem(await client.post(URL(f"{NOTES}?{query}", encoded=True), json={"text": "a"}))
        assert content["status"] == 422
        assert words in content["errors"][0]["detail"], query
    content = await problem(await client.post(f"{NOTES}?loud={'x' * 5000}", json={"text": "a"}))
    assert content["status"] == 414


@pytest.mark.parametrize(
    ("name", "packed"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("GZIP", gzip.compress)]
)
async def test_a_compressed_body_is_read(serve: Serve, name: str, packed: Any) -> None:
    body = packed(orjson.dumps({"text": "packed"}))
    response = await (await serve()).post(NOTES, data=body, headers={"Content-Encoding": name})
    assert (await response.json())["text"] == "packed"


@pytest.mark.parametrize("encoding", ["br", "zstd", "foo", "gzip, gzip", "gzip\t,deflate", ""])
async def test_an_unknown_encoding_is_refused_with_the_known_ones(serve: Serve, encoding: str) -> None:
    response = await (await serve()).post(NOTES, data=b"{}", headers={"Content-Encoding": encoding})
    assert response.status in (400, 415)
    if response.status == 415:
        assert "gzip" in (await problem(response))["detail"]


GARBLED = gzip.compress(b'{"text": "a"}', mtime=0)[:-12] + b"garbage in it"


@pytest.mark.parametrize("body", [b"not gzip", GARBLED], ids=["not packed", "broken inside"])
async def test_a_broken_compressed_body_is_the_clients_fault(serve: Serve, body: bytes) -> None:
    content = await problem(await (await serve()).post(NOTES, data=body, headers={"Content-Encoding": "gzip"}))
    assert content["status"] == 400


async def test_a_body_over_the_limit_is_refused_however_it_is_sent(serve: Serve) -> None:
    client = await serve(max_body_bytes=2048)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b"x" * 100

    fits = orjson.dumps({"text": "x" * 990})
    assert (await client.post(NOTES, data=fits)).status == 201
    for payload, headers in [
        (b"x" * 3000, {}),
        (pieces(), {}),
        (gzip.compress(b"x" * 3000), {"Content-Encoding": "gzip"}),
    ]:
        content = await problem(await client.post(NOTES, data=payload, headers=headers))
        assert content["status"] == 413
        assert "max_body_bytes" in content["detail"]


async def test_a_small_body_that_unpacks_to_much_is_not_unpacked(serve: Serve) -> None:
    client = await serve(max_body_bytes=100_000)
    packer = zlib.compressobj(wbits=31)
    bomb = b"".join(packer.compress(b"0" * 1_000_000) for _ in range(200)) + packer.flush()
    tracemalloc.start()
    try:
        response = await client.post(NOTES, data=bomb, headers={"Content-Encoding": "gzip"})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert response.status == 413
    assert peak < 5_000_000
