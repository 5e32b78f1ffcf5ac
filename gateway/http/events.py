"""Events of many turns and sessions as they come: of one key, or of several."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from gateway.http.auth import may_post, may_see
from gateway.http.problems import Problem, not_found
from gateway.http.routes import Body, Call, Route
from gateway.http.sessions import visible
from gateway.http.sse import follow, open_stream, send_to_reader
from gateway.http.written import Written
from sessions.keys import parse_key

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Iterator

    from aiohttp import web

    from gateway.bus import BusEvent
    from gateway.parts import Parts
    from gateway.turn import Turn

MAX_KEYS = 200
# an id may hold a comma, but never a colon
_BETWEEN_KEYS = re.compile(r",(?=(?:agent|cron|hook):)")

Keys = Annotated[str, Field(max_length=4096)]


class EventsQuery(Body):
    keys: Keys | list[Keys] | None = Field(
        default=None, description="Session keys, with commas or given several times; left out: all this token may see"
    )
    text: bool = Field(
        default=False, description="Of the keys that are named, also the text of replies as it is written (`delta`)"
    )


def routes(parts: Parts) -> list[Route]:
    async def all_events(call: Call) -> web.StreamResponse:
        keys = wanted_keys(parts, call)
        if not call.query.text:
            return await _follow(parts, call, keys)
        if keys is None:
            detail = "A stream with the text of replies names its keys."
            raise Problem(422, "Invalid request", detail, [("keys", detail)])
        return await _follow_written(parts, call, keys)

    async def session_events(call: Call) -> web.StreamResponse:
        return await _follow(parts, call, [visible(parts, call).key])

    return [
        Route(
            method="GET",
            path="/v1/events",
            endpoint=all_events,
            summary="Events of sessions as they come, after Last-Event-ID or from now on",
            tag="events",
            query=EventsQuery,
            answers={200: "text/event-stream"},
        ),
        Route(
            method="GET",
            path="/v1/sessions/{key}/events",
            endpoint=session_events,
            summary="Events of a key as they come, through its resets",
            tag="events",
            answers={200: "text/event-stream"},
        ),
    ]


def wanted_keys(parts: Parts, call: Call) -> list[str] | None:
    """The keys a request names; None for all. Raises MalformedKey, and Problem for a key this token may not see."""
    query: EventsQuery = call.query
    if query.keys is None:
        return None
    given = [query.keys] if isinstance(query.keys, str) else query.keys
    texts = [text for one in given for text in _BETWEEN_KEYS.split(one)]
    if len(texts) > MAX_KEYS:
        detail = f"A stream follows {MAX_KEYS} keys at most; leave out keys to follow all this token may see."
        raise Problem(422, "Invalid request", detail, [("keys", detail)])
    keys = [parse_key(text) for text in texts]
    identities = parts.config.sessions.identities
    for key in keys:
        record = parts.store.find(key)
        # a chat that does not exist yet can be followed by those who may open it
        if not may_post(call.caller, key, record and record.owner, identities, exists=record is not None):
            raise not_found("session")
    return [str(key) for key in keys]


async def _follow(parts: Parts, call: Call, keys: Collection[str] | None) -> web.StreamResponse:
    return await follow(call.request, _events(parts, call, keys), ping_s=parts.config.server.ping_s)


async def _follow_written(parts: Parts, call: Call, keys: Collection[str]) -> web.StreamResponse:
    def running() -> Iterator[Turn]:
        for key in keys:
            for record in parts.store.sessions_of(parse_key(key)):
                if may_see(call.caller, record.key, record.owner):
                    yield from chain(*parts.turns.lane_state(record.session))

    response = await open_stream(call.request, ping_s=parts.config.server.ping_s)
    written = Written(response, parts.turns.live, running)
    await send_to_reader(call.request, response, written.send_all(_events(parts, call, keys)))
    return response


def _events(parts: Parts, call: Call, keys: Collection[str] | None) -> AsyncGenerator[BusEvent, None]:
    def allowed(event: BusEvent) -> bool:
        return may_see(call.caller, event.key, event.owner)

    return parts.bus.follow(keys, allowed, call.request.headers.get("Last-Event-ID") or None)
