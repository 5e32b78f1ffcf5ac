"""What keeps the console from being used against whoever is signed in: over HTTP, without a browser."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import aiohttp
import orjson
import pytest

from gateway.console.logins import csrf_of
from gateway.http.pipeline import COOKIE, CSRF_HEADER
from sessions.entries import format_time
from tests.journeys.daemon import KEY, Client, config, running
from tests.memory.opened import person
from tests.patience import until_equal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TOKENS = {
    "tokens": [
        {"name": "root", "token": "root-token-of-the-tests", "role": "admin"},
        {"name": "web", "token": "web-token-of-the-tests", "role": "frontend"},
        {"name": "ana", "token": "ana-token-of-the-tests", "role": "user", "user": "ana"},
    ]
}
PAGES = (
    "",
    "/sessions",
    "/memory",
    "/memory/map",
    "/memory/map/drawn",
    "/memory/topics",
    "/jobs",
    "/usage",
    "/settings",
    "/login",
)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with running(tmp_path / "data", config(auth=TOKENS)) as client:
        yield client


@pytest.fixture
async def browser(client: Client) -> AsyncIterator[aiohttp.ClientSession]:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(client.url, cookie_jar=jar) as session:
        yield session


async def sign_in(browser: aiohttp.ClientSession, token: str = "root-token-of-the-tests") -> str:
    """The cookie."""
    async with browser.post("/console/login", data={"token": token}) as answer:
        assert answer.status == 200
    return next(one.value for one in browser.cookie_jar if one.key == COOKIE)


async def test_every_page_refuses_frames_scripts_and_styles_that_are_not_ours(browser: aiohttp.ClientSession) -> None:
    await sign_in(browser)
    for path in PAGES:
        async with browser.get(f"/console{path}") as answer:
            assert answer.status == 200, path
            policy = answer.headers["Content-Security-Policy"]
            assert "frame-ancestors 'none'" in policy
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["X-Frame-Options"] == "DENY"
            assert answer.headers["Cache-Control"] == "no-store"
            html = await answer.text()
            assert " style=" not in html
            assert " onclick" not in html
            assert "<script>" not in html


async def test_a_cookie_is_new_at_every_sign_in_and_out_of_reach_of_scripts(client: Client) -> None:
    """Session fixation: a cookie that was there before signing in is worth nothing, and is not taken over."""
    planted = "planted-by-somebody-else"
    async with aiohttp.ClientSession(client.url, cookies={COOKIE: planted}) as session:
        async with session.post(
            "/console/login", data={"token": "root-token-of-the-tests"}, allow_redirects=False
        ) as answer:
            assert answer.status == 303
            made = answer.cookies[COOKIE]
        assert made.value != planted
        assert made["httponly"]
        assert made["samesite"] == "Strict"
    async with (
        aiohttp.ClientSession(client.url, cookies={COOKIE: planted}) as session,
        session.get("/console", allow_redirects=False) as answer,
    ):
        assert answer.headers["Location"] == "/console/login"


async def test_no_change_without_what_only_our_pages_know(browser: aiohttp.ClientSession) -> None:
    cookie = await sign_in(browser)
    address, body = "/v1/sessions/agent:main:web:direct:ana/messages?wait=0", {"text": "hi"}
    for headers in ({}, {CSRF_HEADER: ""}, {CSRF_HEADER: csrf_of("another")}):
        async with browser.post(address, json=body, headers=headers) as answer:
            assert answer.status == 403
        async with browser.delete("/v1/sessions/agent:main:web:direct:ana", headers=headers) as answer:
            assert answer.status == 403
    async with browser.post("/console/logout", data={"csrf": "wrong"}) as answer:
        assert answer.status == 403
    async with browser.post(address, json=body, headers={CSRF_HEADER: csrf_of(cookie)}) as answer:
        assert answer.status == 202


async def test_a_cookie_is_dead_after_signing_out(browser: aiohttp.ClientSession, client: Client) -> None:
    cookie = await sign_in(browser)
    async with browser.post("/console/logout", data={"csrf": csrf_of(cookie)}) as answer:
        assert str(answer.url).endswith("/console/login")
    async with (
        aiohttp.ClientSession(client.url, cookies={COOKIE: cookie}) as session,
        session.get("/v1/sessions") as answer,
    ):
        assert answer.status == 401


async def test_a_person_sees_their_own_chats_and_memories_and_no_page_of_administrators(
    browser: aiohttp.ClientSession, client: Client
) -> None:
    client.token = "root-token-of-the-tests"
    await client.say("a secret of Bob", key="agent:main:web:direct:bob")
    await client.say("a plan of Ana", key="agent:main:web:direct:ana")
    await client.call("POST", "/v1/memories", {"text": "Bob keeps bees.", "pool": "user:bob"})
    run, _ = await client.daemon.parts.memory_jobs.start(person("bob"), "recategorize", automatic=True)
    await sign_in(browser, "ana-token-of-the-tests")
    seen = (
        "",
        "/sessions",
        "/memory",
        "/memory?q=bees&mode=keyword",
        "/usage",
        "/memory/topics",
        "/memory/map",
        "/memory/map/drawn",
    )
    for path in (*seen, "/memory/runs", "/memory/settings"):
        async with browser.get(f"/console{path}") as answer:
            assert answer.status == 200, path
            html = await answer.text()
            assert "bob" not in html.casefold().replace("a secret of bob", "bob"), path
    pools = [f"/memory{page}?pool=user:bob" for page in ("", "/map", "/map/drawn", "/topics", "/settings")]
    hidden = ("/jobs", "/settings", "/sessions/agent:main:web:direct:bob", "/jobs/x", f"/memory/runs/{run.id}")
    for path in (*hidden, *pools):
        async with browser.get(f"/console{path}") as answer:
            assert answer.status == 404, path
    async with browser.get("/console/memory/runs?pool=user:bob") as answer:
        assert run.id not in await answer.text()


async def test_a_frontend_is_shown_no_way_to_memory_and_told_why(browser: aiohttp.ClientSession) -> None:
    await sign_in(browser, "web-token-of-the-tests")
    async with browser.get("/console") as answer:
        html = await answer.text()
    assert 'href="/console/sessions"' in html
    assert 'href="/console/memory"' not in html
    for page in ("", "/map", "/map/drawn", "/topics", "/runs", "/settings", "/merge", "/01ZZZZZZZZZZZZZZZZZZZZZZZZ"):
        async with browser.get(f"/console/memory{page}") as answer:
            assert answer.status == 403, page
            assert "token of the person" in await answer.text(), page


async def test_from_a_page_that_tells_a_problem_the_others_and_the_way_out_are_there(
    browser: aiohttp.ClientSession,
) -> None:
    await sign_in(browser, "web-token-of-the-tests")
    for page, status in (("/memory", 403), ("/usage?days=x", 422)):
        async with browser.get(f"/console{page}") as answer:
            html = await answer.text()
        assert answer.status == status
        assert 'href="/console/sessions"' in html
        assert re.search(r'action="/console/logout"><input type="hidden" name="csrf" value="\w{20,}', html)
    browser.cookie_jar.clear()
    async with browser.get("/console/memory", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/console/login")


async def test_the_trash_says_how_long_it_keeps_and_a_search_that_there_is_more(tmp_path: Path) -> None:
    for days, told in ((None, "stays there until"), (7.5, "after 7.5 days")):
        settings = config(memory={"trash": {"days": days}})
        async with running(tmp_path / f"data{days}", settings) as client:
            _, kept = await client.call("POST", "/v1/memories", {"text": "Ana keeps bees."})
            await client.call("DELETE", f"/v1/memories/{kept['id']}")
            for page in ("/console/memory?state=trashed", f"/console/memory/{kept['id']}"):
                assert told in (await client.get(page)).decode(), page
    async with running(tmp_path / "many", config()) as client:
        for number in range(101):
            await client.call("POST", "/v1/memories", {"text": f"Hive {number} has bees of kind {number * number}."})
        page = (await client.get("/console/memory?q=bees")).decode()
        assert page.count('name="id"') == 50
        assert "shown=100" in page
        page = (await client.get("/console/memory?q=bees&shown=100")).decode()
        assert page.count('name="id"') == 100
        assert "shown=200" in page
        assert (await client.get("/console/memory?q=bees&shown=200")).decode().count('name="id"') == 101


async def test_a_search_in_a_chat_says_that_there_is_more(tmp_path: Path) -> None:
    async with running(tmp_path / "data", config()) as client:
        lines = [{"role": "user", "content": f"Hive {number} has bees."} for number in range(21)]
        for count, told in ((20, False), (21, True)):
            key = f"agent:main:web:group:{count}"
            body = {"content": orjson.dumps(lines[:count]).decode(), "key": key}
            status, answer = await client.call("POST", "/v1/import", body)
            assert status == 201, answer
            page = f"/console/sessions/{key}?q=bees"
            await until_equal(lambda page=page: hits(client, page), 20)
            assert ("the best 20" in (await client.get(page)).decode()) == told


async def hits(client: Client, page: str) -> int:
    return (await client.get(page)).decode().partition('<ol class="hits">')[2].partition("</ol>")[0].count("<li>")


async def test_the_overview_counts_every_chat_of_today(client: Client, browser: aiohttp.ClientSession) -> None:
    client.token = "root-token-of-the-tests"
    await client.say("hi")
    index, now = client.daemon.parts.store.index, client.daemon.parts.clock.now()
    like = index.active(KEY)
    assert like is not None
    done = {"outcome": "done", "at": format_time(now)}
    for number in range(700):
        key, session = f"agent:main:web:group:{number}", f"01ZZZZZZZZZZZZZZZZZZZZ{number:04}"
        made = replace(like, key=key, session=session, owner=None, compaction=done if number < 3 else None)
        index.put(replace(made, active_at=now - timedelta(microseconds=800 - number)))
    await sign_in(browser)
    async with browser.get("/console") as answer:
        html = await answer.text()
    assert "<dd>701</dd>" in html
    assert "<dd>3</dd>" in html


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "null", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "https://proxied.example", "Sec-Fetch-Site": "same-origin"}, 303),
        ({"Origin": "https://known.example"}, 303),
        ({"Origin": "OURS"}, 303),
        ({}, 303),
    ],
)
async def test_another_page_signs_nobody_in(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    settings = config(auth=TOKENS, server={"cors_origins": ["https://known.example"]})
    async with running(tmp_path / "data", settings) as client, aiohttp.ClientSession(client.url) as session:
        sent = {name: client.url if value == "OURS" else value for name, value in headers.items()}
        form = {"token": "root-token-of-the-tests"}
        async with session.post("/console/login", data=form, headers=sent, allow_redirects=False) as answer:
            assert answer.status == status
            assert (COOKIE in answer.cookies) == (status == 303)
            if status == 403:
                assert "server.cors_origins" in await answer.text()
