"""Routes as values: what is routed, checked, documented and tested is read off the same list."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError
from pydantic import BaseModel, ConfigDict, ValidationError

from gateway.http.json import BadJson, clean_text, dump, parse_json, shown
from gateway.http.problems import Problem, invalid
from sessions.keys import SessionKey, parse_key

if TYPE_CHECKING:
    from gateway.http.auth import Caller
    from gateway.http.policy import Role

EVERY_ROLE: tuple[Role, ...] = ("admin", "frontend", "user")
CALLER: web.RequestKey[Any] = web.RequestKey("caller", object)
MAX_QUERY = 4096
ENCODINGS = ("identity", "gzip", "deflate")

Model = TypeVar("Model", bound=BaseModel)
Reply = web.StreamResponse


class Body(BaseModel):
    """A request body or query: unknown fields are refused with their name."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Call:
    """One request, checked."""

    request: web.Request
    caller: Caller
    body: Any = None
    query: Any = None

    @property
    def key(self) -> SessionKey:
        """The session key of the path. Raises MalformedKey."""
        return parse_key(self.path("key"))

    def path(self, name: str) -> str:
        """A part of the path, percent-decoded once; what is not UTF-8 stays as it was sent."""
        return self.request.match_info[name]


# the model of a JSON answer, or the media type of another
Answer = type[BaseModel] | str
Endpoint = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One address. `answers` maps a status to what it may bring; problems come by themselves.

    `errors` is the model of errors in a dialect of its own, and `refuse` words a problem in it; `public` needs no
    token; `signed` neither: its endpoint checks the sender's signature;
    with `body_optional` an empty body means one with all defaults.
    """

    method: str
    path: str
    endpoint: Endpoint
    summary: str
    tag: str
    answers: Mapping[int, Answer | tuple[Answer, ...]] = field(default_factory=dict[int, "Answer | tuple[Answer, ...]"])
    errors: type[BaseModel] | None = None
    refuse: Callable[[Problem, web.Request], web.Response] | None = None
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    roles: tuple[Role, ...] = EVERY_ROLE
    public: bool = False
    signed: bool = False
    body_optional: bool = False


def mount(app: web.Application, routes: list[Route]) -> None:
    """Adds the routes to an application."""
    for route in routes:
        app.router.add_route(route.method, route.path, _handler(route))


def _handler(route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        caller = cast("Caller", request.get(CALLER))
        if not (route.public or route.signed) and caller.role not in route.roles:
            raise Problem(404, "Not found", "There is no such address for this token.")
        query = parse_query(route.query, request) if route.query is not None else None
        body = await read_body(route, request) if route.body is not None else None
        return await route.endpoint(Call(request, caller, body, query))

    return answer


def parse_query(model: type[Model], request: web.Request) -> Model:
    """The query string as a value. Raises Problem."""
    if len(request.query_string) > MAX_QUERY:
        raise Problem(414, "Query too long", f"The query string may have {MAX_QUERY} characters.")
    fields: dict[str, Any] = {}
    for name in request.query:
        values = [clean_text(value) for value in request.query.getall(name)]
        fields[clean_text(name)] = values[0] if len(values) == 1 else values
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise invalid(error, model) from error


async def read_payload(request: web.Request) -> bytes:
    """The body, decompressed, within `max_body_bytes`. Raises Problem and HTTPRequestEntityTooLarge."""
    _check_encoding(request)
    try:
        return await request.read()
    except RequestPayloadError as error:
        raise _broken_off() from error


async def payload_chunks(request: web.Request) -> AsyncIterator[bytes]:
    """The body, decompressed, as it comes, whatever its length. Raises Problem."""
    _check_encoding(request)
    try:
        async for chunk in request.content.iter_any():
            yield chunk
    except RequestPayloadError as error:
        raise _broken_off() from error


def _check_encoding(request: web.Request) -> None:
    encoding = request.headers.get("Content-Encoding")
    if encoding is not None and encoding.strip().lower() not in ENCODINGS:
        detail = f"Content-Encoding {shown(encoding)} is not supported. Send {', '.join(ENCODINGS)}, and only one."
        raise Problem(415, "Content encoding not supported", detail, headers={"Accept-Encoding": ", ".join(ENCODINGS)})


def _broken_off() -> Problem:
    detail = "The body ended early, or is not what its Content-Encoding or Transfer-Encoding says."
    # aiohttp gives up the connection: the client must not send its next request on it
    return Problem(400, "Unreadable body", detail, [("body", detail)], headers={"Connection": "close"})


async def read_body(route: Route, request: web.Request) -> BaseModel | None:
    """The JSON body as a value. Raises Problem."""
    assert route.body is not None  # noqa: S101
    payload = await read_payload(request)
    if not payload and route.body_optional:
        return route.body()
    return parse_body(route.body, payload)


def parse_body(model: type[Model], payload: bytes) -> Model:
    """The value a JSON text means: nothing is guessed, a number in quotes is no number. Raises Problem."""
    try:
        fields = parse_json(payload)
    except BadJson as error:
        raise Problem(400, "Malformed JSON", str(error), [("body", str(error))]) from error
    if not isinstance(fields, dict):
        raise Problem(422, "Invalid request", "The body must be a JSON object.", [("body", "must be a JSON object")])
    try:
        return model.model_validate_json(dump(fields), strict=True)
    except ValidationError as error:
        raise invalid(error, model) from error


def json_answer(content: BaseModel | Mapping[str, Any], status: int = 200, **headers: str) -> web.Response:
    """A JSON answer; header names are given with underscores."""
    fields = content.model_dump(mode="json") if isinstance(content, BaseModel) else content
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.Response(body=dump(fields), status=status, content_type="application/json", headers=named)
