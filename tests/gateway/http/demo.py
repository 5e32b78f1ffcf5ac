"""A small API made of routes: everything the real one does, without a daemon behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from aiohttp import web
from pydantic import BaseModel, Field

from gateway.http.problems import not_found
from gateway.http.routes import Body, Call, Route, json_answer

if TYPE_CHECKING:
    from collections.abc import Callable


class Colour(Body):
    name: Annotated[str, Field(min_length=1, max_length=40)]
    share: Annotated[float, Field(ge=0, le=1)] = 1


class NoteIn(Body):
    """A note."""

    text: Annotated[str, Field(max_length=1000)]
    stars: Annotated[int, Field(ge=0, le=5)] = 0
    kind: Literal["plain", "list"] = "plain"
    done: bool = False
    colours: list[Colour] = Field(default_factory=list[Colour], max_length=5)


class NoteQuery(Body):
    loud: bool = False
    times: Annotated[int, Field(ge=1, le=3)] = 1


class NoteView(BaseModel):
    """A note as it is kept."""

    key: str
    agent: str
    caller: str
    text: str
    stars: int


class Count(BaseModel):
    """A number of bytes."""

    size: int


def demo_routes(boom: Callable[[], None] = lambda: None) -> list[Route]:
    async def put_note(call: Call) -> web.Response:
        body: NoteIn = call.body
        query: NoteQuery = call.query
        text = (body.text.upper() if query.loud else body.text) * query.times
        view = NoteView(key=str(call.key), agent=call.key.agent, caller=call.caller.name, text=text, stars=body.stars)
        return json_answer(view, 201)

    async def optional(call: Call) -> web.Response:
        return json_answer(Count(size=call.body.size if call.body else 0))

    async def show_thing(call: Call) -> web.Response:
        if len(call.path("id")) > 3:
            raise not_found("thing")
        boom()
        return json_answer(Count(size=len(call.path("id"))))

    async def secret(call: Call) -> web.Response:
        return json_answer(Count(size=1))

    async def hello(call: Call) -> web.Response:
        return web.Response(text="hello")

    return [
        Route(
            method="POST",
            path="/v1/notes/{key}",
            endpoint=put_note,
            summary="Keep a note",
            tag="notes",
            body=NoteIn,
            query=NoteQuery,
            answers={201: NoteView},
        ),
        Route(
            method="POST",
            path="/v1/optional",
            endpoint=optional,
            summary="Take a body or none",
            tag="notes",
            body=OptionalIn,
            body_optional=True,
            answers={200: Count},
        ),
        Route(
            method="GET",
            path="/v1/things/{id}",
            endpoint=show_thing,
            summary="Show a thing",
            tag="things",
            answers={200: Count},
        ),
        Route(
            method="GET",
            path="/v1/secret",
            endpoint=secret,
            summary="For administrators",
            tag="things",
            roles=("admin",),
            answers={200: Count},
        ),
        Route(
            method="GET",
            path="/hello",
            endpoint=hello,
            summary="For everybody",
            tag="things",
            public=True,
            answers={200: "text/plain"},
        ),
    ]


class OptionalIn(Body):
    size: Annotated[int, Field(ge=0, le=2**40)] = 0
