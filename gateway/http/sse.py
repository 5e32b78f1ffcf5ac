"""Server-sent events: any number of readers, each at its own pace, none of whom can hold up a turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web
from aiohttp_sse import EventSourceResponse

from gateway.http.json import dump
from gateway.http.limits import StreamLimit
from gateway.http.problems import Problem, body_of
from gateway.http.routes import CALLER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from typing import Protocol

    class ServerEvent(Protocol):
        """One event; `id` is where to go on after it."""

        @property
        def id(self) -> str: ...
        @property
        def name(self) -> str: ...
        @property
        def fields(self) -> dict[str, Any]: ...


log = structlog.get_logger()

STREAMS: web.AppKey[StreamLimit] = web.AppKey("streams", StreamLimit)
STREAM_OF: web.RequestKey[str] = web.RequestKey("stream_of", str)
STALLED_S = 60


async def open_stream(
    request: web.Request, *, ping_s: float, stalled_s: float = STALLED_S, **headers: str
) -> EventSourceResponse:
    """A prepared event stream, also in answer to a POST. Header names are given with underscores.

    It counts against the caller's streams until the request ends. Raises Problem when there are too many.
    """
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    _count(request, named)
    response = EventSourceResponse(
        headers=named, sep="\n", allow_all_methods=True, send_timeout=stalled_s, ping_interval=ping_s
    )
    await response.prepare(request)
    return response


def _count(request: web.Request, headers: dict[str, str]) -> None:
    streams, name = request.app[STREAMS], request[CALLER].name
    if not streams.enter(name):
        detail = (
            f"This token reads {streams.per_caller} event streams already. Close one and come back: a message that was "
            "sent with this request is being answered, its events can be read later."
        )
        raise Problem(429, "Too many streams", detail, headers={"Retry-After": "5", **headers})
    request[STREAM_OF] = name


async def follow(
    request: web.Request,
    events: AsyncIterator[ServerEvent],
    *,
    ping_s: float,
    stalled_s: float = STALLED_S,
    **headers: str,
) -> web.StreamResponse:
    """Sends events until they end or the reader leaves; leaving stops nothing but the sending.

    A reader that takes nothing for `stalled_s` is dropped; it can go on from its last event id.
    """
    response = await open_stream(request, ping_s=ping_s, stalled_s=stalled_s, **headers)
    await send_to_reader(request, response, _send_all(response, events))
    return response


async def _send_all(response: EventSourceResponse, events: AsyncIterator[ServerEvent]) -> None:
    async for event in events:
        await response.send(dump(event.fields).decode(), id=event.id, event=event.name)


async def send_to_reader(
    request: web.Request, response: EventSourceResponse, sending: Coroutine[Any, Any, None]
) -> None:
    """Runs `sending` until it ends or the reader is gone, which the pings notice also while nothing is sent.

    What goes wrong in between is logged and told as an `error` event: the answer has begun, its status cannot change.
    """
    async with response:
        task = asyncio.create_task(sending, name="event stream")
        reader = asyncio.create_task(response.wait(), name="event stream reader")
        try:
            await asyncio.wait({task, reader}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
            reader.cancel()
            outcome, _ = await asyncio.gather(task, reader, return_exceptions=True)
        match outcome:
            case None:
                return
            case TimeoutError():
                log.info("stream.dropped", reason="the reader took nothing", caller=request[CALLER].name)
            case ConnectionResetError() | asyncio.CancelledError():
                log.info("stream.dropped", reason="the reader left", caller=request[CALLER].name)
            case _:
                log.error("stream.failed", exc_info=outcome)
                problem = Problem(500, "Internal error", "sessiond failed inside. Its log has the details.")
                await response.send(dump(body_of(problem)).decode(), event="error")


def wants_events(request: web.Request) -> bool:
    """Whether the client asked for a stream by its Accept header."""
    return "text/event-stream" in request.headers.get("Accept", "")
