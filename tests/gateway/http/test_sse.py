from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import aiohttp
import pytest

from gateway.events import EventLog
from gateway.http.routes import Call, Route
from gateway.http.sse import follow
from tests.gateway.http.conftest import TOKENS, bearer
from tests.gateway.http.test_routes import problem
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import ClientResponse, web

    from gateway.events import TurnEvent
    from tests.gateway.http.conftest import Serve


class Follower:
    """A route that follows a log of events, and tells when it has stopped."""

    def __init__(self, *, ping_s: float = 15, stalled_s: float = 60) -> None:
        self.events = EventLog()
        self.ended = asyncio.Event()
        self.ping_s, self.stalled_s = ping_s, stalled_s
        self.sent = 0

    def routes(self) -> list[Route]:
        async def watch(call: Call) -> web.StreamResponse:
            after = call.request.headers.get("Last-Event-ID", "0.0")
            try:
                return await follow(
                    call.request,
                    self._counted(after),
                    ping_s=self.ping_s,
                    stalled_s=self.stalled_s,
                    X_Sessiond_Turn="t1",
                )
            finally:
                self.ended.set()

        def route(method: str) -> Route:
            return Route(method=method, path="/watch", endpoint=watch, summary="Watch", tag="events")

        return [route("GET"), route("POST")]

    async def _counted(self, after: str) -> AsyncIterator[TurnEvent]:
        async for event in self.events.follow(after):
            self.sent += 1
            yield event


async def read(response: ClientResponse) -> str:
    async with asyncio.timeout(PATIENCE_S):
        return await response.text()


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_events_come_with_their_ids_until_the_last(serve: Serve, method: str) -> None:
    follower = Follower()
    follower.events.emit("accepted", turn="t1")
    follower.events.emit_text("Hello,\nwörld \u2028")
    follower.events.emit("done")
    follower.events.close()
    response = await (await serve(follower.routes())).request(method, "/watch")
    assert response.status == 200
    assert response.content_type == "text/event-stream"
    assert response.headers["Cache-Control"] == "no-cache"
    assert response.headers["X-Sessiond-Turn"] == "t1"
    assert await read(response) == (
        'id: 1.0\nevent: accepted\ndata: {"turn":"t1"}\n\n'
        'id: 1.14\nevent: delta\ndata: {"text":"Hello,\\nwörld \u2028"}\n\n'
        "id: 3.0\nevent: done\ndata: {}\n\n"
    )


async def test_a_reader_goes_on_after_its_last_event(serve: Serve) -> None:
    follower = Follower()
    follower.events.emit("accepted")
    follower.events.emit_text("Hello")
    follower.events.emit("done")
    follower.events.close()
    client = await serve(follower.routes())
    text = await read(await client.get("/watch", headers={"Last-Event-ID": "1.2"}))
    assert text.startswith('id: 1.5\nevent: delta\ndata: {"text":"llo"}\n\n')
    for unreadable in ("", "x", "-1.0", "9" * 400, "1.²"):
        text = await read(await client.get("/watch", headers={"Last-Event-ID": unreadable}))
        assert text.startswith("id: 1.0\nevent: accepted"), unreadable


async def test_a_quiet_stream_is_kept_open_by_comments(serve: Serve) -> None:
    follower = Follower(ping_s=0.01)
    response = await (await serve(follower.routes())).get("/watch")
    async with asyncio.timeout(PATIENCE_S):
        assert await response.content.readline() == b": ping\n"
    follower.events.close()
    assert (await read(response)).replace(": ping\n\n", "").strip() == ""


async def test_a_reader_that_leaves_in_a_silence_stops_nothing_and_holds_nothing(serve: Serve) -> None:
    follower = Follower(ping_s=0.01)
    client = await serve(follower.routes())
    follower.events.emit("accepted")
    response = await client.get("/watch")
    await response.content.readline()
    response.close()
    async with asyncio.timeout(PATIENCE_S):
        await follower.ended.wait()
    follower.events.emit("done")
    follower.events.close()
    text = await read(await client.get("/watch", headers={"Last-Event-ID": "1.0"}))
    assert "event: done" in text


async def test_a_reader_that_takes_nothing_is_dropped_and_can_come_back(serve: Serve) -> None:
    follower = Follower(stalled_s=0.2)
    client = await serve(follower.routes())
    for _ in range(200):
        follower.events.emit("blob", filler="x" * 100_000)
    assert client.port is not None
    with socket.create_connection(("127.0.0.1", client.port)) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.sendall(b"GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            await follower.ended.wait()
    assert follower.sent < 200, "a slow reader is not read ahead for"
    follower.events.close()
    text = await read(await client.get("/watch", headers={"Last-Event-ID": "198.0"}))
    assert text.count("event: blob") == 2


async def test_a_token_has_so_many_streams_and_gets_them_back(serve: Serve) -> None:
    follower = Follower(ping_s=0.01)
    client = await serve(follower.routes(), auth=TOKENS, max_streams_per_token=2)
    mine, other = bearer("frontend-secret"), bearer("user-secret")
    open_ones = [await client.get("/watch", headers=mine) for _ in range(2)]
    refused = await client.get("/watch", headers=mine)
    assert (await problem(refused))["type"].endswith(":too-many-streams")
    assert refused.headers["Retry-After"] == "5"
    assert refused.headers["X-Sessiond-Turn"] == "t1"
    assert (await client.get("/watch", headers=other)).status == 200
    follower.ended.clear()
    open_ones[0].close()
    async with asyncio.timeout(PATIENCE_S):
        await follower.ended.wait()
        while (await client.get("/watch", headers=mine)).status != 200:
            await asyncio.sleep(0.01)


async def test_a_stream_that_fails_inside_says_so_and_ends(serve: Serve) -> None:
    async def broken() -> AsyncIterator[TurnEvent]:
        log = EventLog()
        log.emit("accepted")
        log.close()
        async for event in log.follow():
            yield event
        raise ZeroDivisionError("the text of a message")

    async def watch(call: Call) -> web.StreamResponse:
        return await follow(call.request, broken(), ping_s=15)

    route = Route(method="GET", path="/watch", endpoint=watch, summary="Watch", tag="events")
    text = await read(await (await serve([route])).get("/watch"))
    assert text.startswith("id: 1.0\nevent: accepted\n")
    assert "event: error\ndata: {" in text
    assert "the text of a message" not in text


async def test_an_endpoint_that_fails_after_its_answer_began_only_closes_the_connection(serve: Serve) -> None:
    async def watch(call: Call) -> web.StreamResponse:
        await follow(call.request, EventLogOf("accepted").follow(), ping_s=15)
        raise ZeroDivisionError

    route = Route(method="GET", path="/watch", endpoint=watch, summary="Watch", tag="events")
    response = await (await serve([route])).get("/watch")
    with pytest.raises(aiohttp.ClientPayloadError):
        await read(response)


class EventLogOf(EventLog):
    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            self.emit(name)
        self.close()


async def test_many_readers_cost_the_log_one_copy(serve: Serve) -> None:
    follower = Follower()
    client = await serve(follower.routes())
    responses = await asyncio.gather(*(client.get("/watch") for _ in range(90)))
    for word in ("one ", "two ", "three"):
        follower.events.emit_text(word)
        await asyncio.sleep(0)
    follower.events.close()
    texts = await asyncio.gather(*map(read, responses))
    for text in texts:
        pieces = [line.split('"')[3] for line in text.splitlines() if line.startswith("data: ")]
        assert "".join(pieces) == "one two three"


async def test_what_came_after_the_last_event_of_a_name_can_be_asked_for() -> None:
    log = EventLogOf("accepted")
    assert log.since("tool_call").endswith("0.0")
    log.emit_text("Let me look.")
    for name in ("tool_call", "tool_call", "tool_result"):
        log.emit(name)
    log.emit_text("It is noon.")
    told = [(event.name, event.fields.get("text")) async for event in log.follow(log.since("tool_call"))]
    assert told == [("tool_result", None), ("delta", "It is noon.")]
