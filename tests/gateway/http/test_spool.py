from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gateway.http.problems import Problem, respond
from gateway.http.spool import IN_MEMORY, file_answer, read_into, spool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from typing import IO

MOST = 6 * 1024 * 1024


class Full(io.BytesIO):
    def write(self, _content: object) -> int:
        raise OSError(28, "No space left on device")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    """Answers with what it is sent."""

    async def echo(request: web.Request) -> web.Response:
        file: IO[bytes] = Full() if "full" in request.query else spool(tmp_path)
        try:
            await read_into(file, request, MOST)
        except Problem as problem:
            return respond(problem)
        file.seek(0)
        return file_answer(file, "application/jsonl")

    app = web.Application(client_max_size=1024)
    app.router.add_post("/", echo)
    async with TestClient(TestServer(app)) as client:
        yield client


@pytest.mark.parametrize("size", [0, 1, IN_MEMORY, MOST])
async def test_a_body_of_any_length_comes_back_and_leaves_no_file(
    client: TestClient[web.Request, web.Application], tmp_path: Path, size: int
) -> None:
    content = bytes(n % 251 for n in range(1000)) * (size // 1000) + b"x" * (size % 1000)
    response = await client.post("/", data=content)
    assert (response.status, await response.read() == content) == (200, True)
    assert list(tmp_path.iterdir()) == []


async def test_what_is_too_long_or_finds_no_room_is_refused_in_words(
    client: TestClient[web.Request, web.Application],
) -> None:
    response = await client.post("/", data=b"x" * (MOST + 1))
    assert (response.status, "Split it" in (await response.json(content_type=None))["detail"]) == (413, True)
    response = await client.post("/?full", data=b"x")
    assert (response.status, "No space left" in (await response.json(content_type=None))["detail"]) == (507, True)
