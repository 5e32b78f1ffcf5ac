"""Events of many turns and sessions as they come: of one key, or of several."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from gateway.http.auth import may_post, may_see
from gateway.http.problems import Problem, not_found
from gateway.http.routes import Body, Call, Route
from gateway.http.sessions import visible
from gateway.http.sse import follow
from sessions.keys import parse_key

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiohttp import web

    from gateway.bus import BusEvent
    from gateway.parts import Parts

MAX_KEYS = 200
# an id may hold a comma, but never a colon
_BETWEEN_KEYS = re.compile(r",(?=(?:agent|cron|hook):)")

Keys = Annotated[str, Field(max_length=4096)]


class EventsQuery(Body):
    keys: Keys | list[Keys] | None = Field(
        default=None, description="Session keys, with commas or given several times; left out: all this token may see"
    )


def routes(parts: Parts) -> list[Route]:
    async def all_events(call: Call) -> web.StreamResponse:
        return await _follow(parts, call, wanted_keys(parts, call))

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
    def allowed(event: BusEvent) -> bool:
        return may_see(call.caller, event.key, event.owner)

    after = call.request.headers.get("Last-Event-ID") or None
    return await follow(call.request, parts.bus.follow(keys, allowed, after), ping_s=parts.config.server.ping_s)
