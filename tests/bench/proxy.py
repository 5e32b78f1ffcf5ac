"""A bare streaming proxy in front of a model: what any daemon between client and model costs at the least.

python -m tests.bench.proxy http://127.0.0.1:9999
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

import aiohttp
import uvloop
from aiohttp import web


async def serve(upstream: str) -> None:
    """Passes every POST on, and the answer back piece by piece, until it is cancelled."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def forward(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            headers = {"Content-Type": "application/json"}
            async with client.post(f"{upstream}{request.path}", data=body, headers=headers) as answer:
                response = web.StreamResponse(headers={"Content-Type": answer.headers["Content-Type"]})
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response

        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/{path:.*}", forward)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(sys.argv[1]))
