"""A whole daemon in this process, and a client for it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from gateway.config import Config
from gateway.daemon import Daemon
from gateway.parts import Parts
from tests.tables import make_tables

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from gateway.clock import Clock
    from sessions.files import Files

KEY = "agent:main:web:direct:ana"


class Client:
    """Speaks to a daemon as a frontend does."""

    def __init__(self, session: aiohttp.ClientSession, url: str, daemon: Daemon) -> None:
        self._session = session
        self.url = url
        self.daemon = daemon
        self.token: str | None = None

    def headers(self, more: dict[str, str] | None = None) -> dict[str, str]:
        return {**({"Authorization": f"Bearer {self.token}"} if self.token else {}), **(more or {})}

    async def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        payload = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
        async with self._session.request(
            method, f"{self.url}{path}", data=payload, headers=self.headers(headers)
        ) as response:
            content = await response.read()
            return response.status, orjson.loads(content) if response.content_type.endswith(
                ("/json", "+json")
            ) else content

    async def get(self, path: str) -> Any:
        status, content = await self.call("GET", path)
        assert status == 200, content
        return content

    async def say(self, text: str, key: str = KEY, **more: Any) -> dict[str, Any]:
        status, content = await self.call("POST", f"/v1/sessions/{key}/messages", {"text": text, **more})
        assert status == 200, content
        return content

    async def post(self, text: str, key: str = KEY, **more: Any) -> dict[str, Any]:
        """Sends a message without waiting for the reply."""
        status, content = await self.call("POST", f"/v1/sessions/{key}/messages?wait=0", {"text": text, **more})
        assert status == 202, content
        return content

    async def events(
        self, method: str, path: str, body: Any = None, *, after: str | None = None, limit: int | None = None
    ) -> list[tuple[str, str, dict[str, Any]]]:
        """(id, name, fields) of a stream's events, up to its end or `limit`."""
        headers = self.headers({"Accept": "text/event-stream", **({"Last-Event-ID": after} if after else {})})
        found: list[tuple[str, str, dict[str, Any]]] = []
        payload = None if body is None else orjson.dumps(body)
        async with self._session.request(method, f"{self.url}{path}", data=payload, headers=headers) as response:
            assert response.status == 200, await response.text()
            event_id = name = ""
            async for raw in response.content:
                field, _, value = raw.decode().rstrip("\n").partition(": ")
                if field == "id":
                    event_id = value
                elif field == "event":
                    name = value
                elif field == "data":
                    found.append((event_id, name, orjson.loads(value)))
                    if limit is not None and len(found) == limit:
                        return found
        return found

    async def transcript(self, key: str = KEY) -> list[dict[str, Any]]:
        return (await self.get(f"/v1/sessions/{key}/transcript"))["entries"]

    async def texts(self, key: str = KEY) -> list[str]:
        return [e["text"] for e in await self.transcript(key) if e["type"] in ("user", "assistant")]


def config(**settings: Any) -> Config:
    """Settings for a test: any free port, and a short grace time."""
    server = {"port": 0, "rate_limit_per_minute": None, **settings.pop("server", {})}
    return Config.model_validate({"server": server, "shutdown": {"grace_s": 0.2}, **settings})


def model_settings(base_url: str, **more: Any) -> dict[str, Any]:
    """`models` and `roles` for a stand-in."""
    chat = {"provider": "openai", "base_url": base_url, "model": "chat-model", "api_key": "x", "window": 100_000}
    return {"models": {"chat": {**chat, **more}}, "roles": {"chat": "chat"}}


@asynccontextmanager
async def running(
    data_dir: Path, settings: Config, *, clock: Clock | None = None, files: Files | None = None
) -> AsyncIterator[Client]:
    """A daemon from start to stop."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    await make_tables(data_dir / "state.db")
    daemon = Daemon(Parts(settings, data_dir, environ={}, clock=clock, files=files))
    task = asyncio.create_task(daemon.run())
    ready = asyncio.create_task(daemon.ready.wait())
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    if task.done():
        await task
    try:
        async with aiohttp.ClientSession() as session:
            yield Client(session, daemon.url, daemon)
    finally:
        daemon.stop()
        await task
