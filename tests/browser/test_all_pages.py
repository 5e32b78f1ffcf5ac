"""What must hold on every page: accessible in both themes, small, and as wide as the window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.async_playwright import Axe

from tests.bench.standin import StandIn
from tests.browser.conftest import ROOT, TOKENS, fixture
from tests.browser.sample import KEY, fill, sample_models, sample_settings
from tests.browser.watched import Watch, open_whole, sign_in, visitor
from tests.journeys.daemon import Client, config, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import Browser, Page

pytestmark = pytest.mark.browser

MAX_BYTES = 300_000
TOO_WIDE = """() => document.documentElement.scrollWidth <= innerWidth ? [] :
  [...document.querySelectorAll("main *")].filter((one) => one.getBoundingClientRect().right > innerWidth)
  .map((one) => one.outerHTML.slice(0, 100)).slice(0, 5)"""
COLOURS = ("color-contrast", "link-in-text-block")
SERIOUS = ("serious", "critical")


@fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A daemon with something on every page."""
    async with StandIn() as standin:
        models = sample_models(standin.base_url)
        async with running(tmp_path / "data", config(auth=TOKENS, **models, **sample_settings())) as client:
            client.token = ROOT
            await fill(client)
            yield client


async def every_page(client: Client) -> list[str]:
    memories = (await client.get("/v1/memories?limit=2"))["memories"]
    session = (await client.get(f"/v1/sessions/{KEY}"))["session"]
    one, other = (memory["id"] for memory in memories)
    chat = f"/sessions/{KEY}"
    return [
        *("", "/sessions", "/sessions?state=archived", chat, f"{chat}?q=halibut", f"{chat}?session={session}&at=3"),
        "/sessions/agent:main:console:direct:nobody-yet",
        *(
            "/memory",
            "/memory?q=bread",
            "/memory?state=trashed",
            f"/memory/{one}",
            f"/memory/merge?id={one}&id={other}",
        ),
        *(
            "/memory/map",
            "/memory/topics",
            "/memory/runs",
            "/memory/settings",
            "/jobs",
            "/jobs/every-hour",
            "/jobs/evening-note",
            "/hooks/deploys",
        ),
        *("/usage", "/settings", "/sessions/not-a-key"),
    ]


async def test_no_serious_finding_of_the_accessibility_engine_in_either_theme(
    browser: Browser, watch: Watch, client: Client
) -> None:
    watch.expected = ("400 (Bad Request)",)
    context = await visitor(browser, watch)
    page = await context.new_page()
    await page.goto("/console/login")
    found = [f"/login {told}" for told in await findings(page)]
    await sign_in(page, ROOT)
    for path in await every_page(client):
        await open_whole(page, path)
        await page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        found += [f"{path} {told}" for told in await findings(page)]
    await context.close()
    assert found == []


async def findings(page: Page) -> list[str]:
    """Of every rule in the light theme; of those about colours in the dark one, which changes nothing else."""
    await page.emulate_media(color_scheme="light")
    found = await serious(page, {})
    await page.emulate_media(color_scheme="dark")
    return found + [f"dark {told}" for told in await serious(page, {"runOnly": COLOURS})]


async def serious(page: Page, options: dict[str, Any]) -> list[str]:
    results = await Axe().run(page, options={"resultTypes": ["violations"], **options})
    return [
        f"{one['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for one in results.response["violations"]
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]


async def test_every_page_is_small_and_fits_a_phone(browser: Browser, watch: Watch, client: Client) -> None:
    watch.expected = ("400 (Bad Request)",)
    context = await visitor(browser, watch, viewport={"width": 390, "height": 844})
    page = await context.new_page()
    await sign_in(page, ROOT)
    wrong: list[str] = []
    for path in await every_page(client):
        size = len(await (await open_whole(page, path)).body())
        wide = await page.evaluate(TOO_WIDE)
        if size > MAX_BYTES or wide:
            wrong.append(f"{path}: {size} bytes, too wide: {wide}")
    await context.close()
    assert wrong == []
