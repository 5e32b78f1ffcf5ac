"""A bare proxy: what a turn costs when nothing is kept. `python -m tests.bench.proxy --port N --upstream URL`."""

from __future__ import annotations

import argparse

import aiohttp
import uvloop
from aiohttp import web


async def forward(request: web.Request) -> web.StreamResponse:
    """Sends the body on and streams the answer back."""
    client = request.app[CLIENT]
    body = await request.read()
    async with client.post(request.app[UPSTREAM], data=body, headers={"Content-Type": "application/json"}) as answer:
        response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
        await response.prepare(request)
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
        return response


CLIENT = web.AppKey("client", aiohttp.ClientSession)
UPSTREAM = web.AppKey("upstream", str)


async def build(upstream: str) -> web.Application:
    app = web.Application()
    app[UPSTREAM] = upstream
    app[CLIENT] = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    app.router.add_post("/v1/chat/completions", forward)
    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True)
    given = parser.parse_args()
    uvloop.install()
    web.run_app(build(given.upstream), host="127.0.0.1", port=given.port, access_log=None, print=None)


if __name__ == "__main__":
    main()
