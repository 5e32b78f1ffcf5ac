"""Pictures of every page with sample data, in both themes and at phone width: `make screenshots`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.standin import StandIn
from tests.browser.sample import KEY, fill, sample_models, sample_settings
from tests.browser.watched import Watch, chromium, visitor
from tests.journeys.daemon import config, running

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from tests.journeys.daemon import Client

PAGES = {
    "overview": "",
    "sessions": "/sessions",
    "chat": f"/sessions/{KEY}",
    "chat-found": f"/sessions/{KEY}?q=halibut",
    "memory": "/memory",
    "memory-map": "/memory/map",
    "memory-topics": "/memory/topics",
    "jobs": "/jobs",
    "job": "/jobs/every-hour",
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
    async with StandIn() as standin:
        models = sample_models(standin.base_url)
        with tempfile.TemporaryDirectory() as data:
            async with running(Path(data), config(**models, **sample_settings())) as client, chromium() as browser:
                await fill(client)
                for look in LOOKS:
                    await _draw_look(browser, client, look, folder, only)


async def _draw_look(browser: Browser, client: Client, look: str, folder: Path, only: list[str]) -> None:
    watch = Watch(client.url)
    context = await visitor(browser, watch, **LOOKS[look])
    page = await context.new_page()
    for name, path in PAGES.items():
        if only and name not in only:
            continue
        answer = await page.goto(f"/console{path}")
        assert answer is not None
        await page.wait_for_timeout(200)
        await page.screenshot(path=folder / f"{name}-{look}.png", full_page=True)
        width = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        print(f"{name}-{look}: {answer.status}" + (f", {width} px too wide" if width > 0 else ""))
    print(*watch.complaints, sep="\n")
    await context.close()


if __name__ == "__main__":
    asyncio.run(draw(Path(".screenshots"), sys.argv[1:]))
