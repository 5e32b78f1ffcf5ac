"""The web application of one daemon: all its routes, behind one pipeline."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from gateway.console import pages
from gateway.console.logins import Logins
from gateway.http import (
    attachments,
    cache,
    cleanup,
    deliveries,
    docs,
    events,
    files,
    health,
    hooks,
    jobs,
    openapi,
    search,
    sessions,
    transfer,
    turns,
    usage,
)
from gateway.http.auth import Tokens
from gateway.http.documents import routes as document_routes
from gateway.http.learning import routes as learning_routes
from gateway.http.memories import routes as memory_routes
from gateway.http.memory_runs import routes as memory_run_routes
from gateway.http.memory_settings import routes as memory_setting_routes
from gateway.http.metrics import Metrics
from gateway.http.pipeline import build_pipeline
from gateway.http.topics import routes as topic_routes
from gateway.surfaces import engram, mcp, openai_chat

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.http.routes import Route
    from gateway.parts import Parts


def all_routes(parts: Parts, metrics: Metrics) -> list[Route]:
    """Every address of the daemon, in the order they are documented."""
    api = [
        *turns.routes(parts),
        *attachments.routes(parts),
        *sessions.routes(parts),
        *cache.routes(parts),
        *events.routes(parts),
        *search.routes(parts),
        *usage.routes(parts),
        *memory_routes(parts),
        *topic_routes(parts),
        *document_routes(parts),
        *memory_run_routes(parts),
        *learning_routes(parts),
        *memory_setting_routes(parts),
        *files.routes(parts),
        *transfer.routes(parts),
        *cleanup.routes(parts),
        *jobs.routes(parts),
        *hooks.routes(parts),
        *deliveries.routes(parts),
        *openai_chat.routes(parts),
        *mcp.routes(parts),
        *engram.routes(parts),
        *health.routes(health.daemon_checks(parts), metrics),
    ]
    return [*api, *openapi.routes(api, version("sessiond")), *docs.routes()]


def build_app(parts: Parts) -> web.Application:
    """The application of one daemon. Raises MissingSecret."""
    metrics = Metrics()
    metrics.watch(parts.turns, parts.store.index, parts.calls, parts.jobs)
    projects = {one.token: one.project for one in parts.config.engram.projects}
    tokens = Tokens(parts.config.auth, parts.environ, projects)
    logins = Logins(parts.files, parts.data_dir / "console.json", tokens)
    return build_pipeline(
        [*all_routes(parts, metrics), *pages.routes(parts, tokens, logins)],
        server=parts.config.server,
        auth=parts.config.auth,
        environ=parts.environ,
        projects=projects,
        clock=parts.clock,
        metrics=metrics,
        browsers=logins,
    )
