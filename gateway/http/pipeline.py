"""What every request passes on its way to an endpoint, and every answer on its way back."""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import structlog
from aiohttp import web
from structlog.contextvars import bind_contextvars

from gateway.http.auth import OWNER, Tokens
from gateway.http.limits import RateLimit, StreamLimit
from gateway.http.origins import check_open_access, cors_headers
from gateway.http.problems import Problem, problem_of, respond
from gateway.http.routes import CALLER, Route, mount
from gateway.http.sse import STREAM_OF, STREAMS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from aiohttp.typedefs import Handler, Middleware

    from gateway.clock import Clock
    from gateway.http.auth import Caller
    from gateway.http.metrics import Metrics
    from gateway.http.policy import AuthPolicy, ServerPolicy

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

BEARER = "bearer "
COOKIE = "sessiond_console"
CSRF_HEADER = "X-Sessiond-CSRF"


class Browsers(Protocol):
    """Browsers that are signed in, by their cookie."""

    def caller(self, cookie: str, now: datetime) -> Caller | None: ...
    def is_genuine(self, cookie: str, sent: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Gate:
    """What is asked of every request."""

    server: ServerPolicy
    tokens: Tokens
    browsers: Browsers | None
    rate: RateLimit | None
    clock: Clock
    public: frozenset[str]
    signed: frozenset[str]

    def admit(self, request: web.Request) -> None:
        """Finds out who is asking, and puts it on the request. Raises Problem."""
        if self.signed and route_of(request) in self.signed:
            return
        if self.tokens.open:
            headers = request.headers
            check_open_access(request.method, headers.get("Host"), headers.get("Origin"), self.server.cors_origins)
        if request.path in self.public or request.match_info.http_exception is not None:
            return
        caller = self._caller(request)
        if self.rate is not None:
            wait_s = self.rate.wait_s(caller.name, self.clock.monotonic())
            if wait_s:
                limit = self.server.rate_limit_per_minute
                detail = f"This token makes more than {limit} requests a minute. Wait {wait_s} s."
                raise Problem(429, "Too many requests", detail, headers={"Retry-After": str(wait_s)})
        request[CALLER] = caller

    def _caller(self, request: web.Request) -> Caller:
        if self.tokens.open:
            return OWNER
        header = request.headers.get("Authorization", "")
        secret = header[len(BEARER) :].strip() if header[: len(BEARER)].lower() == BEARER else ""
        secret = secret or request.headers.get("x-api-key", "")
        caller = self.tokens.caller(secret) if secret else self._signed_in(request)
        if caller is None:
            detail = "Send a known token: Authorization: Bearer <token>. Tokens are configured under auth.tokens."
            raise Problem(401, "Not authenticated", detail, headers={"WWW-Authenticate": "Bearer"})
        return caller

    def _signed_in(self, request: web.Request) -> Caller | None:
        """Who a browser's cookie stands for. It changes something only for a page of ours: others cannot know what that
        sends along. Raises Problem."""
        cookie = request.cookies.get(COOKIE)
        if self.browsers is None or cookie is None:
            return None
        caller = self.browsers.caller(cookie, self.clock.now())
        if caller is not None and request.method not in ("GET", "HEAD"):
            sent = request.headers.get(CSRF_HEADER, "")
            if not self.browsers.is_genuine(cookie, sent):
                detail = f"A browser that is signed in must send {CSRF_HEADER}. Reload the page, then try again."
                raise Problem(403, "Not from the console", detail)
        return caller


def build_pipeline(
    routes: list[Route],
    *,
    server: ServerPolicy,
    auth: AuthPolicy,
    environ: Mapping[str, str],
    clock: Clock,
    metrics: Metrics,
    browsers: Browsers | None = None,
    projects: Mapping[str, str] | None = None,
) -> web.Application:
    """An application that serves the routes. `projects`: of Engram, by the name of their token.

    Raises MissingSecret for a token whose variable is not set.
    """
    gate = Gate(
        server=server,
        tokens=Tokens(auth, environ, projects),
        browsers=browsers,
        rate=None if server.rate_limit_per_minute is None else RateLimit(server.rate_limit_per_minute),
        clock=clock,
        public=frozenset(route.path for route in routes if route.public),
        signed=frozenset(route.path for route in routes if route.signed),
    )
    streams = StreamLimit(server.max_streams_per_token)
    metrics.watch_streams(lambda: streams.total)
    worded = {(route.method, route.path): route.refuse for route in routes if route.refuse is not None}
    outermost = _outermost(gate, streams, metrics, worded)
    app = web.Application(middlewares=[outermost], client_max_size=server.max_body_bytes)
    app[STREAMS] = streams
    if server.cors_origins:
        app.on_response_prepare.append(_cors(server.cors_origins))
    mount(app, routes)
    return app


def _outermost(
    gate: Gate,
    streams: StreamLimit,
    metrics: Metrics,
    worded: Mapping[tuple[str, str], Callable[[Problem, web.Request], web.Response]],
) -> Middleware:
    """`worded` are the routes whose problems are told in a dialect of their own."""
    process_id, numbers = gate.clock.new_id(), itertools.count(1)
    note = _Notes(metrics, everything=log.is_enabled_for(logging.DEBUG)).note

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        started = gate.clock.monotonic()
        request_id = f"{process_id}-{next(numbers)}"
        # tasks started for this request inherit it: what a turn logs can be traced to its request
        bind_contextvars(request=request_id)
        try:
            if is_preflight(request):
                response: web.StreamResponse = web.Response(status=204)
            else:
                gate.admit(request)
                response = await handler(request)
        except (ConnectionResetError, web.HTTPRedirection):
            raise
        except Exception as error:
            if STREAM_OF in request:
                # the answer has begun: aiohttp can only close the connection
                raise
            problem = _told(request, request_id, error)
            refuse = worded.get((request.method, route_of(request)))
            response = respond(problem) if refuse is None else refuse(problem, request)
            response.headers["X-Request-Id"] = request_id
        finally:
            if streams.total and STREAM_OF in request:
                streams.leave(request[STREAM_OF])
        note(request, response.status, gate.clock.monotonic() - started)
        return response

    return middleware


def is_preflight(request: web.Request) -> bool:
    return request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers


def _told(request: web.Request, request_id: str, error: Exception) -> Problem:
    problem = problem_of(error)
    if problem is not None:
        return problem
    log.error("request.failed", method=request.method, route=route_of(request), exc_info=error)
    detail = f"sessiond failed inside. Its log has the details under request {request_id}."
    return Problem(500, "Internal error", detail)


@dataclass(frozen=True, slots=True)
class _Notes:
    """Counts requests, and logs those that failed; `everything`: the others too, at debug."""

    metrics: Metrics
    everything: bool

    def note(self, request: web.Request, status: int, took_s: float) -> None:
        route = route_of(request)
        self.metrics.requests.note(request.method, route, status, took_s)
        if status < 400 and not self.everything:
            return
        caller = request.get(CALLER)
        emit = log.info if status >= 400 else log.debug
        emit(
            "request",
            method=request.method,
            route=route,
            status=status,
            caller=None if caller is None else caller.name,
            took_ms=round(took_s * 1000, 1),
        )


def route_of(request: web.Request) -> str:
    """The template of the address, which names no key and no person."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "unknown"


def _cors(origins: tuple[str, ...]) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Headers for browsers, set just before an answer goes out, so that streams and errors have them too."""

    async def add(request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(cors_headers(request.headers.get("Origin"), origins, preflight=is_preflight(request)))

    return add
