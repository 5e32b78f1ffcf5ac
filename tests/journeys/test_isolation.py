"""Who sees what: every route, by every kind of token, over everybody's sessions."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from gateway.http.app import all_routes
from gateway.http.metrics import Metrics
from sessions.keys import parse_key
from tests.journeys.daemon import Client, config, running
from tests.journeys.test_memories import ALL_MEMORY_ROUTES, addressed
from tests.patience import until_equal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TOKENS: list[dict[str, Any]] = [
    {"name": "root", "token": "root", "role": "admin"},
    {"name": "ana", "token": "ana", "role": "user", "user": "ana"},
    {"name": "bob", "token": "bob", "role": "user", "user": "bob"},
    {"name": "bridge", "token": "bridge", "role": "frontend", "key_prefixes": ["agent:main:telegram"]},
]
KEYS = {
    "ana": "agent:main:web:direct:ana",
    "bob": "agent:main:web:direct:bob",
    "group": "agent:main:telegram:group:g",
}
SEES = {"root": {"ana", "bob", "group"}, "ana": {"ana"}, "bob": {"bob"}, "bridge": {"group"}}
HIDDEN = {owner: f"hush-{owner}" for owner in KEYS}

# the body of each route whose address names a session or a turn; None: it takes none
ADDRESSED: dict[tuple[str, str], dict[str, Any] | None] = {
    ("POST", "/v1/sessions/{key}/messages"): {"text": "hello"},
    ("GET", "/v1/turns/{id}"): None,
    ("GET", "/v1/turns/{id}/events"): None,
    ("POST", "/v1/turns/{id}/stop"): None,
    ("GET", "/v1/sessions/{key}"): None,
    ("PATCH", "/v1/sessions/{key}"): {"pinned": True},
    ("POST", "/v1/sessions/{key}/stop"): None,
    ("POST", "/v1/sessions/{key}/compact"): {},
    ("POST", "/v1/sessions/{key}/resume"): {"session": "0" * 26},
    ("POST", "/v1/sessions/{key}/fork"): {"to": "agent:main:web:direct:nobody"},
    ("POST", "/v1/sessions/{key}/pin"): {"seq": 1},
    ("GET", "/v1/sessions/{key}/transcript"): None,
    ("GET", "/v1/sessions/{key}/history"): None,
    ("GET", "/v1/sessions/{key}/context"): None,
    ("GET", "/v1/sessions/{key}/cache"): None,
    ("POST", "/v1/sessions/{key}/entries"): {"entries": [{"role": "user", "text": "a"}]},
    ("GET", "/v1/sessions/{key}/prompt"): None,
    ("GET", "/v1/sessions/{key}/usage"): None,
    ("GET", "/v1/sessions/{key}/search"): None,
    ("GET", "/v1/sessions/{key}/export"): None,
    ("POST", "/v1/sessions/{key}/restore"): {},
    ("POST", "/v1/sessions/{key}/reset"): None,
    ("DELETE", "/v1/sessions/{key}"): None,
}
STREAMS = {("GET", "/v1/sessions/{key}/events")}
LISTS = {("GET", "/v1/sessions"), ("GET", "/v1/usage"), ("GET", "/v1/search")}
QUERIES = {"/v1/sessions/{key}/search": "?q=hush"}
WRITERS = {("POST", path) for path in ("/v1/inbound", "/v1/import", "/v1/attachments", "/v1/chat/completions")}
ADMIN = {("POST", "/v1/backup"), ("POST", "/v1/cleanup")}
# jobs, webhooks and deliveries belong to nobody: by role alone. The body, the answer to an administrator, who else may
JOB = {"name": "new", "every": "1h", "message": "x"}
CALENDAR: dict[tuple[str, str], tuple[dict[str, Any] | None, int, set[str]]] = {
    ("GET", "/v1/jobs"): (None, 200, set()),
    ("POST", "/v1/jobs"): (JOB, 201, set()),
    ("GET", "/v1/jobs/preview"): (None, 422, set()),
    ("GET", "/v1/jobs/{id}"): (None, 200, set()),
    ("PUT", "/v1/jobs/{id}"): (JOB, 200, set()),
    ("POST", "/v1/jobs/{id}/run"): (None, 202, set()),
    ("POST", "/v1/jobs/{id}/pause"): (None, 200, set()),
    ("POST", "/v1/jobs/{id}/resume"): (None, 200, set()),
    ("GET", "/v1/jobs/{id}/runs"): (None, 200, set()),
    ("DELETE", "/v1/jobs/{id}"): (None, 200, set()),
    ("GET", "/v1/hooks"): (None, 200, set()),
    ("GET", "/v1/hooks/{name}"): (None, 200, set()),
    ("GET", "/v1/hooks/{name}/example"): (None, 200, set()),
    ("GET", "/v1/hooks/{name}/runs"): (None, 200, set()),
    ("GET", "/hooks/runs/{id}"): (None, 404, {"bridge"}),
    ("GET", "/v1/deliveries"): (None, 200, set()),
    ("GET", "/v1/deliveries/{id}"): (None, 404, set()),
    ("POST", "/v1/deliveries/{id}/resend"): (None, 404, set()),
}
# of tokens that have a project under engram.projects, and of nobody else; told apart in test_engram
ENGRAM: dict[tuple[str, str], dict[str, Any] | None] = {
    ("POST", "/engram/v1/memories"): {"input": {"string": {"content": ["x"]}}, "user_id": "ana"},
    ("POST", "/engram/v1/memories/search"): {"query": "hush", "user_id": "ana"},
    ("POST", "/engram/v1/memories/list"): {"user_id": "ana"},
    ("GET", "/engram/v1/memories/{id}"): None,
    ("DELETE", "/engram/v1/memories/{id}"): None,
    ("GET", "/engram/v1/runs/{id}"): None,
    ("GET", "/engram/v1/groups"): None,
    ("GET", "/engram/v1/import"): None,
    ("POST", "/engram/v1/import"): {},
    ("GET", "/engram/v1/auth/verify"): None,
}
# by the signature of its body, not by a token; told apart in test_jobs_and_hooks
SIGNED = {("POST", "/hooks/{name}")}
# whose memories and chats a token's tools reach is told apart in test_mcp
TOOLS = {("POST", "/mcp")}
ALIKE = {
    ("GET", path)
    for path in ("/v1/models", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/docs.js", "/docs.css")
}


@pytest.fixture
async def turns(tmp_path: Path) -> AsyncIterator[tuple[Client, dict[str, str]]]:
    """A daemon with a chat of each owner, and a turn of each."""
    async with running(tmp_path / "data", config(auth={"tokens": TOKENS})) as client:
        client.token = "root"
        yield client, {owner: (await client.say(HIDDEN[owner], key))["turn"] for owner, key in KEYS.items()}


async def test_every_route_has_its_row(turns: tuple[Client, dict[str, str]]) -> None:
    routes = all_routes(turns[0].daemon.parts, Metrics())
    served = {(route.method, route.path) for route in routes}
    memory = {(method, addressed(path)) for method, path in ALL_MEMORY_ROUTES}  # told apart in test_memories
    assert memory <= served
    served -= memory
    assert served == set(ADDRESSED) | STREAMS | {("GET", "/v1/events")} | LISTS | WRITERS | ADMIN | ALIKE | set(
        CALENDAR
    ) | SIGNED | TOOLS | set(ENGRAM)
    public = {route.path for route in routes if route.public}
    assert not [path for path in public if path.startswith("/v1")]


@pytest.mark.parametrize("caller", list(SEES))
async def test_what_a_token_may_not_see_is_not_there(turns: tuple[Client, dict[str, str]], caller: str) -> None:
    client, ids = turns
    client.token = caller
    for (method, path), body in ADDRESSED.items():
        for owner in KEYS.keys() - SEES[caller]:
            address = path.replace("{key}", KEYS[owner]).replace("{id}", ids[owner]) + QUERIES.get(path, "")
            status, content = await client.call(method, address, body)
            assert status == 404, (caller, method, address, content)
            assert HIDDEN[owner] not in str(content)
    for owner in SEES[caller]:
        for (method, path), body in ADDRESSED.items():
            if method == "GET":
                address = path.replace("{key}", KEYS[owner]).replace("{id}", ids[owner]) + QUERIES.get(path, "")
                assert (await client.call(method, address, body))[0] == 200, (caller, address)
    client.token = "root"
    for owner, key in KEYS.items():
        assert len(await client.texts(key)) == 2, owner


@pytest.mark.parametrize("caller", list(SEES))
async def test_lists_and_usage_hold_only_what_a_token_may_see(
    turns: tuple[Client, dict[str, str]], caller: str
) -> None:
    client, _ = turns
    client.token = caller
    own = {KEYS[owner] for owner in SEES[caller]}
    assert {s["key"] for s in (await client.get("/v1/sessions"))["sessions"]} == own
    assert {s["key"] for s in (await client.get("/v1/sessions?q=agent"))["sessions"]} == own
    assert {row["group"]["key"] for row in (await client.get("/v1/usage?by=key"))["rows"]} <= own
    assert {hit["key"] for hit in (await client.get("/v1/search?q=hush"))["hits"]} == own
    table = (await client.get("/v1/usage?by=key,session&format=csv")).decode()
    assert not [key for key in KEYS.values() if key not in own and key in table]
    for method, path in ADMIN:
        status = (await client.call(method, path, {"folder": "relative"}))[0]
        assert status == (422 if caller == "root" else 404)


@pytest.mark.parametrize("caller", list(SEES))
async def test_event_streams_hold_only_what_a_token_may_see(turns: tuple[Client, dict[str, str]], caller: str) -> None:
    client, _ = turns
    hidden = KEYS.keys() - SEES[caller]
    client.token = caller
    for owner in hidden:
        for address in (f"/v1/sessions/{KEYS[owner]}/events", f"/v1/events?keys={KEYS[owner]}&text=true"):
            status, content = await client.call("GET", address)
            assert status == 404, (address, content)
    own = {KEYS[owner] for owner in SEES[caller]}
    told = [n for n, e in enumerate(client.daemon.parts.bus.recent(), 1) if e.key in own]
    seen = await client.events("GET", "/v1/events", after="0", limit=len(told) + 1)
    assert [int(event_id.rpartition("-")[2]) for event_id, _, _ in seen[1:]] == told
    assert {fields["key"] for _, _, fields in seen[1:]} == own
    assert not [owner for owner in hidden if HIDDEN[owner] in str(seen)]
    for owner in SEES[caller]:
        events = await client.events("GET", f"/v1/sessions/{KEYS[owner]}/events", after="0", limit=3)
        assert {fields["key"] for _, _, fields in events[1:]} == {KEYS[owner]}


async def test_nobody_writes_into_the_chat_of_another(turns: tuple[Client, dict[str, str]]) -> None:
    client, _ = turns
    hello = [{"role": "user", "content": "hello"}]
    chat = {"model": "agent/main", "messages": hello}
    for caller in ("bob", "bridge"):
        client.token = caller
        named = {"X-Sessiond-Key": KEYS["ana"]}
        status, content = await client.call("POST", "/v1/chat/completions", chat, named)
        assert (status, content["error"]["type"]) == (404, "invalid_request_error")
        status, _ = await client.call("POST", "/v1/chat/completions", {**chat, "user": "ana"})
        assert status == 404
        exported = {"content": '{"messages": [{"role": "user", "content": "a"}]}', "key": KEYS["ana"]}
        assert (await client.call("POST", "/v1/import", exported))[0] == 404
        assert (await client.call("POST", f"/v1/sessions/{KEYS['ana']}:thread:1/messages", {"text": "a"}))[0] == 404
    client.token = "bob"
    inbound = {"channel": "web", "chat_type": "direct", "sender": "ana", "text": "it is me"}
    assert (await client.call("POST", "/v1/inbound", inbound))[0] in (404, 422)
    assert (await client.call("POST", "/v1/inbound", {**inbound, "sender": None}))[0] == 200
    client.token = "root"
    keys = {s["key"] for s in (await client.get("/v1/sessions"))["sessions"]}
    assert keys == set(KEYS.values())
    assert len(await client.texts(KEYS["ana"])) == 2


async def test_jobs_webhooks_and_deliveries_are_told_apart_by_role(tmp_path: Path) -> None:
    hook = {"name": "build", "scheme": "bearer", "secret": "hush-hook", "template": "x"}
    async with running(tmp_path / "data", config(auth={"tokens": TOKENS}, hooks=[hook])) as client:
        for caller in ("ana", "bob", "bridge", "root"):  # root last: it changes and removes
            client.token = caller
            for (method, path), (body, expected, also) in CALENDAR.items():
                address = path.replace("{name}", "build").replace("{id}", "new" if "/jobs/" in path else "0" * 26)
                status, content = await client.call(method, address, body)
                known = caller == "root" or caller in also
                assert status == (expected if known else 404), (caller, method, address, content)
                assert "hush-hook" not in str(content)
            client.token = "root"
            jobs = [job["name"] for job in (await client.get("/v1/jobs"))["jobs"]]
            assert jobs == []


async def test_a_token_without_a_project_of_engram_finds_none(turns: tuple[Client, dict[str, str]]) -> None:
    client, _ = turns
    for client.token in SEES:
        for (method, path), body in ENGRAM.items():
            address = path.replace("{id}", "0" * 26) + "?user_id=ana" * ("{id}" in path)
            status, content = await client.call(method, address, body)
            assert (status, "engram.projects" in content["message"]) == (404, True), (client.token, method, path)


async def test_without_a_known_token_there_is_nothing(turns: tuple[Client, dict[str, str]]) -> None:
    client, ids = turns
    for client.token in (None, "unknown"):
        for method, path in [
            *ADDRESSED,
            *STREAMS,
            ("GET", "/v1/events"),
            *LISTS,
            *WRITERS,
            *ADMIN,
            *CALENDAR,
            *TOOLS,
            *ENGRAM,
            ("GET", "/v1/models"),
        ]:
            address = path.replace("{key}", KEYS["ana"]).replace("{id}", ids["ana"]).replace("{name}", "build")
            assert (await client.call(method, address, {}))[0] == 401, (method, path)


@pytest.mark.parametrize("first", ["job", "hook", "delivery"])
async def test_what_speaks_first_in_a_private_chat_takes_it_from_nobody(tmp_path: Path, first: str) -> None:
    hook = {"scheme": "bearer", "secret": "hush", "template": "hi"}
    hooks = [
        {**hook, "name": "hook", "session": KEYS["ana"], "allow_key_prefixes": ["agent:main:web:direct"]},
        {**hook, "name": "delivery", "deliver": {"session": KEYS["ana"]}},
    ]
    async with running(tmp_path / "data", config(auth={"tokens": TOKENS}, hooks=hooks)) as client:
        client.token = "root"
        if first == "job":
            job = {"name": "j", "every": "7d", "message": "good morning", "session": KEYS["ana"]}
            assert (await client.call("POST", "/v1/jobs", job))[0] == 201
            assert (await client.call("POST", "/v1/jobs/j/run"))[0] == 202
        else:
            secret = {"Authorization": "Bearer hush"}
            assert (await client.call("POST", f"/hooks/{first}", b"{}", secret))[0] == 202

        async def seen() -> int:
            return (await client.call("GET", f"/v1/sessions/{KEYS['ana']}/transcript"))[0]

        await until_equal(seen, 200)
        client.token = "ana"
        assert await seen() == 200
        await client.say("good morning", KEYS["ana"])
        client.token = "bob"
        assert await seen() == 404


async def test_a_private_chat_that_belonged_to_nobody_is_its_persons_after_a_start(tmp_path: Path) -> None:
    settings = config(auth={"tokens": TOKENS}, sessions={"identities": {"bob": ["telegram:7"]}})
    keys = {"ana": KEYS["ana"], "bob": "agent:main:telegram:direct:7"}
    async with running(tmp_path / "data", settings) as client:
        client.token = "root"
        store = client.daemon.parts.store
        for owner, key in keys.items():
            await client.say(f"hush-{owner}", key)
        found = [hit["key"] for hit in (await client.get("/v1/search?q=hush"))["hits"]]
        assert set(found) == set(keys.values())
        for key in keys.values():
            session = await store.active(parse_key(key))
            await store.update(session, lambda record: dataclasses.replace(record, owner=None))
        client.token = "ana"
        assert (await client.call("GET", f"/v1/sessions/{keys['ana']}"))[0] == 404
    async with running(tmp_path / "data", settings) as client:
        for owner, key in keys.items():
            client.token = owner
            assert [one["key"] for one in (await client.get("/v1/sessions"))["sessions"]] == [key]

            async def hits() -> list[str]:
                return [hit["text"] for hit in (await client.get("/v1/search?q=hush"))["hits"] if hit["role"] == "user"]

            await until_equal(hits, [f"hush-{owner}"])
