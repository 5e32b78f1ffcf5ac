"""Server-sent events: any number of readers, each at its own pace, none of whom can hold up a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp_sse import EventSourceResponse

from gateway.http.json import dump

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import web

    from gateway.events import TurnEvent

STALLED_S = 60


async def open_stream(request: web.Request, *, ping_s: float, **headers: str) -> EventSourceResponse:
    """A prepared event stream, also in answer to a POST. Header names are given with underscores."""
    response = EventSourceResponse(
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        sep="\n",
        allow_all_methods=True,
        send_timeout=STALLED_S,
        ping_interval=ping_s,
    )
    await response.prepare(request)
    return response


async def follow(
    request: web.Request, events: AsyncIterator[TurnEvent], *, ping_s: float, **headers: str
) -> web.StreamResponse:
    """Sends events until they end or the reader leaves; leaving stops nothing but the sending.

    A reader that takes nothing for STALLED_S is dropped; it can go on from its last event id.
    """
    response = await open_stream(request, ping_s=ping_s, **headers)
    async with response:
        try:
            async for event in events:
                await response.send(dump(event.fields).decode(), id=event.id, event=event.name)
        except (ConnectionResetError, TimeoutError):
            return response
    return response


def wants_events(request: web.Request) -> bool:
    """Whether the client asked for a stream by its Accept header."""
    return "text/event-stream" in request.headers.get("Accept", "")
