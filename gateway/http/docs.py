"""A page that shows the API, made from /openapi.json, without anything from outside."""

from __future__ import annotations

from importlib.resources import files

from aiohttp import web

from gateway.http.routes import Call, Route

PATHS = {
    "/docs": ("docs.html", "text/html"),
    "/docs.css": ("docs.css", "text/css"),
    "/docs.js": ("docs.js", "text/javascript"),
}
POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; frame-ancestors 'none'"


def routes() -> list[Route]:
    """The page and its two assets."""
    return [_asset(path, name, kind) for path, (name, kind) in PATHS.items()]


def _asset(path: str, name: str, kind: str) -> Route:
    content = files("gateway.http").joinpath("assets", name).read_text("utf-8")

    async def show(call: Call) -> web.Response:
        headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
        return web.Response(text=content, content_type=kind, charset="utf-8", headers=headers)

    return Route(
        method="GET",
        path=path,
        endpoint=show,
        summary="API documentation",
        tag="docs",
        answers={200: kind},
        public=True,
    )
