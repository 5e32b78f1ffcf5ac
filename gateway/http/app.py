"""The web application: middlewares from the outside in, and all routes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from gateway.http import docs, health, sessions, transfer, turns, usage
from gateway.http.auth import OWNER, Tokens
from gateway.http.limits import RateLimit
from gateway.http.metrics import Metrics
from gateway.http.openapi import build_openapi
from gateway.http.problems import Problem, problem_of, respond
from gateway.http.routes import CALLER, Route, json_answer, mount
from gateway.surfaces import openai_chat

if TYPE_CHECKING:
    from gateway.http.auth import Caller
    from gateway.http.routes import Call
    from gateway.parts import Parts

log = structlog.get_logger()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Middleware = Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]
BEARER = "Bearer "


def all_routes(parts: Parts, metrics: Metrics) -> list[Route]:
    """Every address of the daemon, in the order they are documented."""
    return [
        *turns.routes(parts),
        *sessions.routes(parts),
        *usage.routes(parts),
        *transfer.routes(parts),
        *openai_chat.routes(parts),
        *health.routes(parts, metrics),
    ]


def build_app(parts: Parts) -> web.Application:
    """The application of one daemon."""
    metrics = Metrics()
    metrics.watch(parts.turns, parts.store.index)
    routes = all_routes(parts, metrics)
    app = web.Application(
        middlewares=[
            _errors(metrics),
            _cors(parts.config.server.cors_origins),
            _authenticate(parts, {route.path for route in routes if route.public}),
        ],
        client_max_size=parts.config.server.max_body_bytes,
    )
    description = build_openapi(routes, version("sessiond"))

    async def openapi(call: Call) -> web.Response:
        return json_answer(description)

    described = Route(
        method="GET", path="/openapi.json", endpoint=openapi, summary="This description", tag="docs", public=True
    )
    mount(app, [*routes, described, *docs.routes()])
    return app


def _errors(metrics: Metrics) -> Middleware:
    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        started = asyncio.get_running_loop().time()
        try:
            response = await handler(request)
        except ConnectionResetError:
            raise
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                log.exception("request.failed", method=request.method, route=_route_of(request))
                problem = Problem(500, "Internal error", "sessiond failed inside. Its log has the details.")
            response = respond(problem)
        route = _route_of(request)
        metrics.requests.labels(request.method, route, response.status).inc()
        metrics.latency.labels(route).observe(asyncio.get_running_loop().time() - started)
        return response

    return middleware


def _route_of(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "unknown"


def _authenticate(parts: Parts, public: set[str]) -> Middleware:
    tokens = Tokens(parts.config.auth, parts.environ)
    per_minute = parts.config.server.rate_limit_per_minute
    limit = None if per_minute is None else RateLimit(per_minute)
    public = public | {"/openapi.json"} | set(docs.PATHS)

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in public or request.match_info.http_exception is not None:
            return await handler(request)
        caller = _caller(request, tokens)
        if limit is not None:
            wait_s = limit.wait_s(caller.name, parts.clock.monotonic())
            if wait_s:
                detail = f"This token makes more than {per_minute} requests a minute. Wait {wait_s} s."
                raise Problem(429, "Too many requests", detail, headers={"Retry-After": str(wait_s)})
        request[CALLER] = caller
        return await handler(request)

    return middleware


def _caller(request: web.Request, tokens: Tokens) -> Caller:
    if tokens.open:
        return OWNER
    header = request.headers.get("Authorization", "")
    secret = header[len(BEARER) :] if header.startswith(BEARER) else request.headers.get("x-api-key", "")
    caller = tokens.caller(secret) if secret else None
    if caller is None:
        detail = "Send a known token: Authorization: Bearer <token>. Tokens are configured under auth.tokens."
        raise Problem(401, "Not authenticated", detail, headers={"WWW-Authenticate": "Bearer"})
    return caller


def _cors(origins: tuple[str, ...]) -> Middleware:
    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        allowed = origin is not None and origin in origins
        preflight = allowed and request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        response = web.Response(status=204) if preflight else await handler(request)
        if allowed and not response.prepared:
            response.headers["Access-Control-Allow-Origin"] = origin or ""
            response.headers["Vary"] = "Origin"
            response.headers["Access-Control-Allow-Headers"] = "Authorization, Content-Type, Last-Event-ID"
            response.headers["Access-Control-Allow-Methods"] = "GET, POST, PATCH, DELETE"
        return response

    return middleware
