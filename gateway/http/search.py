"""Search in what was said: over all chats a caller may see, and in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from gateway.http.auth import may_see
from gateway.http.memories import MAIN, Name, agent_for
from gateway.http.memory_views import FileHitView, file_hit
from gateway.http.problems import Problem
from gateway.http.routes import Body, Call, Route, json_answer
from gateway.http.sessions import visible
from gateway.search import AROUND_CHARACTERS, TEXT_CHARACTERS, NothingToSearch, excerpt
from gateway.shelves import readable_shelves
from gateway.viewers import viewer_of_caller
from memory.text import cut_query
from sessions.entries import format_time
from sessions.found import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiohttp import web

    from gateway.http.auth import Caller
    from gateway.parts import Parts
    from gateway.search import Hit
    from sessions.found import Said
    from sessions.record import SessionRecord


class SearchQuery(Body):
    q: Annotated[str, Field(min_length=1, max_length=1000)] = Field(description="The words to look for")
    limit: Annotated[int, Field(ge=1, le=50)] = 10
    around: Annotated[int, Field(ge=0, le=10)] = Field(
        default=2, description="How many messages to show before and after each"
    )


class EverywhereQuery(SearchQuery):
    agent: Name | None = Field(
        default=None, description=f"Whose notes are searched as well, with the documents of projects; {MAIN}'s if null"
    )


class SaidView(BaseModel):
    """One message; `text` is shortened when it is long: `transcript?before=<seq+1>&limit=1` has all of it."""

    seq: int
    at: str
    role: str
    name: str | None
    text: str


class HitView(SaidView):
    """A message that was found, where, and what was said before and after it."""

    key: str
    session: str
    score: float
    before: list[SaidView]
    after: list[SaidView]


class HitsView(BaseModel):
    """Hits, best first. `complete` is false while the archive is being built again: there may be more."""

    hits: list[HitView]
    complete: bool


class EverywhereView(HitsView):
    """With pieces of the files the caller may read."""

    files: list[FileHitView]


def routes(parts: Parts) -> list[Route]:
    async def everywhere(call: Call) -> web.Response:
        caller = call.caller
        query: EverywhereQuery = call.query
        agent = agent_for(call, query.agent)
        said = await _found(parts, call, scope_of(caller), lambda key, owner: may_see(caller, key, owner))
        shelves = await readable_shelves(parts.memory, viewer_of_caller(caller), agent=agent)
        pieces, _ = await parts.workspaces.search(list(shelves), query.q, limit=query.limit)
        return json_answer({**said, "files": [file_hit(one, shelves[one.piece.shelf]) for one in pieces]})

    async def in_one(call: Call) -> web.Response:
        key = visible(parts, call).key
        caller = call.caller
        return json_answer(
            await _found(
                parts, call, Scope(keys=(key,)), lambda found, owner: found == key and may_see(caller, found, owner)
            )
        )

    return [
        Route(
            method="GET",
            path="/v1/search",
            endpoint=everywhere,
            summary="Find what was said in all chats, and what stands in all files, that the caller may see",
            tag="search",
            query=EverywhereQuery,
            answers={200: EverywhereView},
        ),
        Route(
            method="GET",
            path="/v1/sessions/{key}/search",
            endpoint=in_one,
            summary="Find what was said in one chat, also in its former sessions",
            tag="search",
            query=SearchQuery,
            answers={200: HitsView},
        ),
    ]


def scope_of(caller: Caller) -> Scope | None:
    """Where a caller's hits can be; what may_see says of each decides. None: anywhere."""
    if caller.role == "user":
        return Scope(owners=(caller.user,) if caller.user else (), prefixes=caller.key_prefixes or ())
    if caller.role == "frontend" and caller.key_prefixes is not None:
        return Scope(prefixes=caller.key_prefixes)
    if caller.role == "frontend" and caller.agents is not None:
        return Scope(prefixes=tuple(f"agent:{agent}" for agent in caller.agents))
    return None


async def _found(
    parts: Parts, call: Call, scope: Scope | None, visible_to: Callable[[str, str | None], bool]
) -> dict[str, Any]:
    query: SearchQuery = call.query

    def allowed(record: SessionRecord, _said: Said) -> bool:
        return visible_to(record.key, record.owner)

    try:
        found = await parts.search.search(query.q, scope, allowed=allowed, limit=query.limit, around=query.around)
    except NothingToSearch as error:
        raise Problem(422, "Invalid request", str(error), [("q", str(error))]) from error
    terms = cut_query(query.q)
    return {"hits": [_hit(hit, terms) for hit in found.hits], "complete": found.complete}


def _hit(hit: Hit, terms: Sequence[str]) -> dict[str, Any]:
    return {
        "key": hit.record.key,
        "session": hit.said.session,
        "score": hit.score,
        **_said(hit.said, terms, TEXT_CHARACTERS),
        "before": [_said(said, terms, AROUND_CHARACTERS) for said in hit.before],
        "after": [_said(said, terms, AROUND_CHARACTERS) for said in hit.after],
    }


def _said(said: Said, terms: Sequence[str], limit: int) -> dict[str, Any]:
    return {
        "seq": said.seq,
        "at": format_time(said.at),
        "role": said.role,
        "name": said.name,
        "text": excerpt(said.text, terms, limit),
    }
