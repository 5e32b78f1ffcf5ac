"""Hostile text in every field of every page: nothing executes, nothing of it becomes a part of a page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.jobs.signatures import sign_standard
from gateway.models.base import ModelEvent, ModelUnavailable
from tests.bench.standin import StandIn
from tests.browser.conftest import ROOT, TOKENS, fixture
from tests.browser.sample import HOOK_SECRET, sample_models
from tests.browser.watched import Watch, open_whole, sign_in, visitor
from tests.journeys.daemon import Client, config, running
from tests.journeys.helpers import Helper
from tests.journeys.test_learning import learnt, repeats
from tests.patience import until_equal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

    from playwright.async_api import Browser

pytestmark = pytest.mark.browser

EVIL = (
    "</textarea></title></script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"
    "\"'><svg onload=window.pwned=1></svg><style>*{display:none}</style>{{7*7}}${7*7}<!--"
)
MARKDOWN = (
    f"{EVIL}\n\n[click](javascript:window.pwned=1) ![x](https://elsewhere.example/p.png) <b onclick=pwned=1>b</b>"
)
WIDE = "W" * 4000
BRACES = {ord("/"): "|", ord("{"): "(", ord("}"): ")"}
KEY = "agent:main:web:direct:<img src=x onerror=window.pwned=1>"
FOREIGN = """() => ({
  pwned: window.pwned ?? 0,
  scripts: [...document.scripts].filter((one) => !one.src.includes("/console/static/")).length,
  styles: document.querySelectorAll("style").length,
  images: document.querySelectorAll("img").length,
  handlers: [...document.querySelectorAll("*")].flatMap((one) => one.getAttributeNames())
    .filter((name) => name.startsWith("on")).length,
  links: [...document.links].filter((one) => /^(javascript|data|vbscript):/i.test(one.protocol)).length,
  wide: document.documentElement.scrollWidth > innerWidth,
  heading: document.querySelectorAll("main h1").length,
})"""
CLEAN = {
    "pwned": 0,
    "scripts": 0,
    "styles": 0,
    "images": 0,
    "handlers": 0,
    "links": 0,
    "wide": False,
    "heading": 1,
}


def helps(question: dict[str, Any]) -> str:
    """Learns what begins with "I ", sorts nothing, and tidies what is hostile into what is more so."""
    if "conversation" in question:
        return repeats(question)
    if "facts" in question:
        raise ModelUnavailable(EVIL)
    changes = [
        {"op": "update", "id": one["id"], "text": f"{one['text']} {EVIL}", "topic": EVIL[:60]}
        for one in question["memories"]
    ]
    return json.dumps({"changes": changes, "topics": [{"op": "add", "name": EVIL[:60], "description": EVIL}]})


class Broken:
    """A model that tells its fault in hostile words."""

    name = model = "broken"
    window = None

    async def stream(self, request: object) -> AsyncGenerator[ModelEvent, None]:
        raise ModelUnavailable(EVIL)
        yield  # pyright: ignore[reportUnreachable]

    async def close(self) -> None:
        """Nothing is open."""


@fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with StandIn() as standin:
        models = sample_models(standin.base_url)
        models["models"] |= {name: {"provider": "offline", "model": name} for name in ("helper", "broken")}
        models["roles"] |= {"helper": "helper", "consolidation": "helper"}
        settings = config(
            auth={
                "tokens": [
                    *TOKENS["tokens"],
                    {"name": EVIL, "token": "another-token-here", "role": "user", "user": EVIL},
                ]
            },
            hooks=[{"name": "h", "secret": HOOK_SECRET, "template": "{{ body.text }}", "instruction": EVIL}],
            deliver={"give_up_hours": 0.0000001, "allow": ["127.0.0.1:9"]},
            agents={"main": {"system": EVIL}},
            memory={"learn": {"after_reply": True}},
            **models,
        )
        async with running(tmp_path / "data", settings) as client:
            client.daemon.parts.models.put(Helper(helps))
            client.daemon.parts.models.put(Broken())
            client.token = ROOT
            yield client


async def poison(client: Client) -> list[str]:
    """Hostile text wherever a stranger can put one; the paths of the pages that show it."""
    await client.say(MARKDOWN, key=KEY, sender_name=EVIL[:200])
    await client.say(f"{MARKDOWN} {WIDE}", key=KEY)
    await client.say(f"call:time {EVIL}", key=KEY)
    await client.say(f"/remember {EVIL}", key=KEY)
    await client.call("PATCH", f"/v1/sessions/{_path(KEY)}", {"title": EVIL[:200]})
    ids: list[str] = []
    for text in (EVIL, f"{EVIL} again {WIDE}"):
        fields = {"text": text, "properties": {EVIL[:60]: EVIL}}
        status, content = await client.call("POST", "/v1/memories", fields)
        assert status == 201, content
        ids.append(content["id"])
    await client.call("PATCH", f"/v1/memories/{ids[0]}", {"text": f"{EVIL} changed", "why": EVIL})
    status, content = await client.call(
        "POST", "/v1/topics", {"name": EVIL[:80], "description": EVIL, "leave_out": EVIL}
    )
    assert status == 201, content
    status, content = await client.call("POST", "/v1/projects", {"id": EVIL, "name": EVIL, "members": [EVIL]})
    assert status == 201, content
    job = {"name": "j", "every": "1h", "message": "{% raw %}" + EVIL + "{% endraw %}"}
    status, content = await client.call(
        "POST", "/v1/jobs", {**job, "deliver": {"url": "http://127.0.0.1:9/?q=<script>window.pwned=1</script>"}}
    )
    assert status == 201, content
    await client.call("POST", "/v1/jobs/j/run")
    body = b'{"text": "<script>window.pwned=1</script>"}'
    now = int(client.daemon.parts.clock.now().timestamp())
    signed = {"webhook-id": "<b>1", "webhook-timestamp": str(now)}
    secret = client.daemon.parts.jobs.hooks.hooks["h"].secret
    signed["webhook-signature"] = sign_standard(secret, "<b>1", now, body)
    status, content = await client.call("POST", "/hooks/h", body, headers=signed)
    assert status == 202, content
    await until_equal(lambda: _count(client, "/v1/deliveries?status=dead", "deliveries"), 1)
    runs = [*await _runs_of_jobs(client), *await _work_on_memory(client)]
    await _documents(client)
    chat, evil = f"/sessions/{_path(KEY)}", _path(EVIL[:180].translate(BRACES))
    return [
        *("", "/sessions", f"/sessions?q={evil}&agent={evil}&channel={evil}", chat, f"{chat}?q={evil}"),
        *("/memory", f"/memory?q={evil}&pool={_path('user:' + EVIL[:60])}", f"/memory/{ids[0]}", f"/memory/{ids[1]}"),
        *(
            f"/memory/merge?id={ids[0]}&id={ids[1]}",
            "/memory/map",
            "/memory/topics",
            "/memory/runs",
            f"/memory/runs?pool={_path('user:' + EVIL[:60])}",
            f"/memory/settings?pool={_path('user:' + EVIL[:60])}",
            f"/memory/runs/{evil}",
            f"/memory/topics?pool=user:{evil}",
        ),
        *(
            "/jobs",
            "/jobs/j",
            "/hooks/h",
            "/usage",
            "/settings",
            f"/jobs/{evil}",
            f"/sessions/{evil}",
            f"/memory/{evil}",
        ),
        *runs,
    ]


async def _runs_of_jobs(client: Client) -> list[str]:
    """A job whose runs fail, and say why in the words of others."""
    job = {"name": "fails", "every": "1h", "message": EVIL.translate(BRACES), "model": "broken"}
    status, content = await client.call("POST", "/v1/jobs", job)
    assert status == 201, content
    await client.call("POST", "/v1/jobs/fails/run")
    await until_equal(lambda: _last_status(client, "/v1/jobs/fails/runs"), "error")
    (run,) = (await client.get("/v1/jobs/fails/runs"))["runs"]
    assert EVIL[:20] in run["error"]
    return ["/jobs/fails", f"/sessions/{_path(run['key'])}"]


async def _work_on_memory(client: Client) -> list[str]:
    """What is learnt, tidied and sorted; and work that fails, in the words of others."""
    key = "agent:main:web:direct:eve"
    await client.say(f"I like {EVIL}", key=key)
    await learnt(client)
    lessons = (await client.get("/v1/learning-runs"))["runs"]
    assert any(run["created"] for run in lessons), lessons
    paths = [f"/memory/{created}" for run in lessons for created in run["created"]]
    for kind, pool in (("consolidate", "user:eve"), ("recategorize", "user:eve")):
        asked = {"kind": kind, "pool": pool, "all": True, "confirmed": True}
        status, run = await client.call("POST", "/v1/memory-runs", asked)
        assert status == 202, run
        address = f"/v1/memory-runs/{run['id']}"
        await until_equal(lambda address=address: _ended(client, address), True)
        paths.append(f"/memory/runs/{run['id']}")
        run = await client.get(address)
        assert EVIL[:20] in json.dumps([run["changes"], run["problem"]]), run
    return [*paths, "/memory/runs?pool=user:eve", "/memory?pool=user:eve", f"/sessions/{key}"]


async def _documents(client: Client) -> None:
    """A document is named in the chat whose turn it was shown to."""
    name = f"{EVIL[:60].translate(BRACES)}.md"
    document = {"name": name, "text": f"# {EVIL}\n\nThe kiln holds 1,200 degrees. {EVIL}", "agent": "main"}
    status, content = await client.call("POST", "/v1/documents", document)
    assert status == 201, content
    await client.daemon.parts.workspaces.files.settled()
    await client.say("How many degrees does the kiln hold?", key=KEY)
    shown = [entry["shown"]["files"] for entry in await client.transcript(_path(KEY)) if entry["type"] == "recall"]
    assert any("<script>" in file for files in shown for file in files), shown


async def _count(client: Client, path: str, name: str) -> int:
    return len((await client.get(path))[name])


async def _last_status(client: Client, path: str) -> str:
    runs = (await client.get(path))["runs"]
    return runs[0]["status"] if runs else ""


async def _ended(client: Client, path: str) -> bool:
    return (await client.get(path))["state"] != "running"


def _path(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


async def test_hostile_text_does_nothing_on_any_page(browser: Browser, watch: Watch, client: Client) -> None:
    watch.expected = ("400 (Bad Request)", "404 (Not Found)", "422 (Unprocessable Entity)")
    paths = await poison(client)
    context = await visitor(browser, watch)
    page = await context.new_page()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    await sign_in(page, ROOT)
    found: dict[str, object] = {}
    for path in paths:
        await open_whole(page, path)
        await page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        seen = await page.evaluate(FOREIGN)
        if seen != CLEAN:
            found[path] = {name: value for name, value in seen.items() if value != CLEAN[name]}
    await context.close()
    assert found == {}, "\n".join(f"{path[:60]}: {what}" for path, what in found.items())
    assert dialogs == []


async def test_a_reply_that_is_being_written_is_text_until_it_is_rendered(
    browser: Browser, watch: Watch, client: Client
) -> None:
    context = await visitor(browser, watch)
    page = await context.new_page()
    await sign_in(page, ROOT)
    await page.goto("/console/sessions/agent:main:web:direct:ana")
    await page.get_by_role("textbox", name="Message").fill(MARKDOWN)
    await page.keyboard.press("Enter")
    await page.locator("#items .message.theirs").wait_for()
    assert await page.evaluate(FOREIGN) == CLEAN
    await context.close()
