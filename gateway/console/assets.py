"""Styles and scripts of the console, as they lie in the package."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.http.routes import Call, Route

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
NAMES = (
    "console.css",
    "console.js",
    "actions.js",
    "labels.js",
    "live.js",
    "pieces.js",
    "overview.js",
    "session.js",
    "composer.js",
    "drafts.js",
    "commands.js",
    "sessions.js",
    "map.js",
    "jobs.js",
    "refresh.js",
    "topics.js",
    "icon.svg",
)


def load_assets() -> Mapping[str, str]:
    """Text by name."""
    folder = files("gateway.console").joinpath("static")
    return {name: folder.joinpath(name).read_text("utf-8") for name in NAMES}


def version_of(assets: Mapping[str, str]) -> str:
    """Changes with any of them: a browser never mixes the files of two versions."""
    return hashlib.sha256("".join(assets.values()).encode()).hexdigest()[:12]


def routes(assets: Mapping[str, str]) -> list[Route]:
    """The version is a part of the path, so that modules which import each other stay of one version, too."""
    folder = f"/console/static/{version_of(assets)}"
    return [_route(folder, name, content) for name, content in assets.items()]


def _route(folder: str, name: str, content: str) -> Route:
    kind = KINDS[name.rpartition(".")[2]]

    async def show(call: Call) -> web.Response:
        headers = {"Cache-Control": "max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
        return web.Response(text=content, content_type=kind, charset="utf-8", headers=headers)

    return Route(
        method="GET",
        path=f"{folder}/{name}",
        endpoint=show,
        summary="Part of the console",
        tag="console",
        answers={200: kind},
        public=True,
    )
