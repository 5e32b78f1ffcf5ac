"""Pictures of every page with sample data, in both themes and at phone width: `make screenshots`."""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from tests.bench.standin import StandIn
from tests.browser.conftest import ROOT, TOKENS
from tests.browser.sample import KEY, fill, reply_to, sample_models, sample_settings
from tests.browser.watched import Watch, chromium, open_whole, sign_in, visitor
from tests.journeys.daemon import config, running

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from tests.journeys.daemon import Client

PAGES = {
    "login": "/login",
    "overview": "",
    "sessions": "/sessions",
    "sessions-archived": "/sessions?state=archived",
    "chat": f"/sessions/{KEY}",
    "chat-new": "/sessions/agent:main:console:direct:nobody-yet",
    "chat-found": f"/sessions/{KEY}?q=halibut",
    "memory": "/memory",
    "memory-found": "/memory?q=rye+bread",
    "memory-trash": "/memory?state=trashed",
    "memory-map": "/memory/map",
    "memory-topics": "/memory/topics",
    "memory-runs": "/memory/runs",
    "memory-settings": "/memory/settings",
    "jobs": "/jobs",
    "job": "/jobs/every-hour",
    "hook": "/hooks/deploys",
    "usage": "/usage",
    "settings": "/settings",
}
LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1200, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1200, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}


async def draw(folder: Path, only: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    async with StandIn() as standin:
        standin.says = reply_to
        models = sample_models(standin.base_url)
        settings = config(auth=TOKENS, **models, **sample_settings())
        with tempfile.TemporaryDirectory() as data:
            async with running(Path(data), settings) as client, chromium() as browser:
                client.token = ROOT
                await fill(client)
                (memory,) = (await client.get("/v1/memories?limit=1"))["memories"]
                pages = {**PAGES, "memory-one": f"/memory/{memory['id']}"}
                wanted = {name: path for name, path in pages.items() if not only or name in only}
                for look in LOOKS:
                    await _draw_look(browser, client, look, folder, wanted)


async def _draw_look(browser: Browser, client: Client, look: str, folder: Path, pages: dict[str, str]) -> None:
    watch = Watch(client.url)
    context = await visitor(browser, watch, **LOOKS[look])
    page = await context.new_page()
    if "login" not in pages:
        await sign_in(page, ROOT)
    for name, path in pages.items():
        answer = await open_whole(page, path)
        await page.wait_for_timeout(200)
        if name == "chat":
            await page.locator("details.divider summary").click()
        await page.screenshot(path=folder / f"{name}-{look}.png", full_page=True)
        width = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        print(f"{name}-{look}: {answer.status}" + (f", {width} px too wide" if width > 0 else ""))
        if name == "login":
            await sign_in(page, ROOT)
    print(*watch.complaints, sep="\n")
    await context.close()


if __name__ == "__main__":
    asyncio.run(draw(Path(".screenshots"), sys.argv[1:]))
