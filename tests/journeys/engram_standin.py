"""A server that answers as Engram's published API does, with memories that are made up."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

KEY = "eng_old"
MOST = 100


def topic(name: str, *, bounded: bool = False, user_scoped: bool = True, by: tuple[str, ...] = ()) -> dict[str, Any]:
    scoping = {"user_scoped": user_scoped, "scope_properties": list(by)}
    return {"topic_name": name, "description": f"All about {name}.", "is_bounded": bounded, "scoping": scoping}


def memory(
    number: int, content: str, topic_name: str, user: str | None, *, group: str = "default", **properties: str
) -> dict[str, Any]:
    at = f"2025-{1 + number % 12:02}-{1 + number % 28:02}T10:{number % 60:02}:00Z"
    made = {
        "id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"memory {number}")),
        "project_id": str(uuid.uuid5(uuid.NAMESPACE_OID, "project")),
        "content": content,
        "topic": topic_name,
        "group": group,
        "created_at": at,
        "updated_at": at,
    }
    if user is not None:
        made["user_id"] = user
    return {**made, "properties": properties} if properties else made


@dataclass
class EngramStandIn:
    """`shows_anybody`: lists without a user show everybody's. `fetches_all`: fetch without a limit has none.

    `fails` answers so many requests with 503 first. `before` is called at every request.
    """

    groups: list[dict[str, Any]]
    memories: list[dict[str, Any]]
    shows_anybody: bool = False
    fetches_all: bool = False
    fails: int = 0
    requests: int = 0
    before: Callable[[], Awaitable[None]] | None = None
    url: str = ""
    _runner: web.AppRunner | None = field(default=None, repr=False)

    async def __aenter__(self) -> EngramStandIn:
        app = web.Application(middlewares=[self._gate])
        app.router.add_get("/v1/groups", self._groups)
        app.router.add_post("/v1/memories/list", self._list)
        app.router.add_post("/v1/memories/search", self._search)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @web.middleware
    async def _gate(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests += 1
        if self.before is not None:
            await self.before()
        if self.fails:
            self.fails -= 1
            return web.json_response({"status": 503, "message": "busy"}, status=503, headers={"Retry-After": "0"})
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.json_response({"status": 401, "detail": "invalid API key"}, status=401)
        return await handler(request)

    async def _groups(self, _: web.Request) -> web.Response:
        return web.json_response({"groups": self.groups})

    async def _list(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert set(body) <= {"group", "limit", "properties", "topics", "user_id"}
        return self._answer(body, min(body.get("limit", 20), MOST), lambda found: found)

    async def _search(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert body["query"]
        retrieval = body.get("retrieval_config", {"retrieval_type": "hybrid"})
        limit = retrieval.get("limit", 10)
        assert 1 <= limit <= MOST
        if retrieval["retrieval_type"] == "fetch":
            unlimited = self.fetches_all and "limit" not in retrieval
            return self._answer(body, len(self.memories) if unlimited else limit, lambda found: found)
        words = set(re.findall(r"\w+", body["query"].casefold()))

        def ranked(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
            scored = [(len(words & set(re.findall(r"\w+", one["content"].casefold()))), one) for one in found]
            return [one for score, one in sorted(scored, key=lambda pair: -pair[0]) if score]

        return self._answer(body, limit, ranked)

    def _answer(self, body: dict[str, Any], limit: int, order: Callable[[Any], Any]) -> web.Response:
        group = next((one for one in self.groups if one["name"] == body.get("group", "default")), None)
        if group is None:
            return _refused("unknown group")
        topics = {one["topic_name"]: one for one in group["topics"]}
        names = [one if isinstance(one, str) else one["name"] for one in body.get("topics", topics)]
        if not set(names) <= set(topics):
            return _refused("unknown topic")
        user = body.get("user_id")
        if user is None and not self.shows_anybody and any(topics[name]["scoping"]["user_scoped"] for name in names):
            return _refused("user_id is required")
        properties = body.get("properties", {})
        found = [
            one
            for one in self.memories
            if one["group"] == group["name"]
            and one["topic"] in names
            and (user is None or one.get("user_id") in (None, user))
            and all(one.get("properties", {}).get(name) == value for name, value in properties.items())
        ]
        shown = list(order(found))[:limit]
        return web.json_response({"memories": shown, "total": len(shown)})


def _refused(detail: str) -> web.Response:
    return web.json_response({"status": 400, "title": "Bad Request", "detail": detail}, status=400)
