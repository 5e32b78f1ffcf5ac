"""A stand-in of an embedding model's server, with faults on demand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

from memory.embed import HashEmbedder

if TYPE_CHECKING:
    from collections.abc import Iterable

SLOW_S = 0.3


class EmbeddingServer:
    """Answers as HashEmbedder does; `fault` names what it does instead."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.asked: list[list[str]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self._release = asyncio.Event()

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/embeddings", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()
        await self._runner.cleanup()

    def release(self) -> None:
        """What hangs goes on."""
        self._release.set()

    @property
    def texts(self) -> Iterable[str]:
        return (text for texts in self.asked for text in texts)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = await request.json()
        texts: list[str] = body["input"]
        self.asked.append(texts)
        self.headers.append(dict(request.headers))
        match self.fault:
            case "500":
                return web.json_response({"error": {"message": "out of memory"}}, status=500)
            case "html":
                return web.Response(text="<html>Bad Gateway</html>", content_type="text/html")
            case "empty":
                return web.json_response({"object": "list", "data": []})
            case "nan":
                return web.Response(
                    text='{"data": [{"index": 0, "embedding": [NaN]}]}', content_type="application/json"
                )
            case "slow":
                await asyncio.sleep(SLOW_S)
            case "hang":
                await self._release.wait()
            case _:
                pass
        dimension = {"short": 3}.get(self.fault, body.get("dimensions", 64))
        rows = await HashEmbedder(dimension).embed_passages(texts)
        found = [{"object": "embedding", "index": at, "embedding": row.tolist()} for at, row in enumerate(rows)]
        return web.json_response({"object": "list", "data": found[::-1], "model": body["model"]})
