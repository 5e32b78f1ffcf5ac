"""A browser whose every complaint is kept: errors of scripts, of the console, and requests to other hosts."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.async_api import async_playwright

from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, BrowserContext, Page, Response

CHROMIUM = Path("/usr/bin/chromium")


@dataclass(slots=True)
class Watch:
    """What went wrong on the pages of a test. `expected`: pieces of complaints the test brings about itself."""

    origin: str
    complaints: list[str] = field(default_factory=list[str])
    expected: tuple[str, ...] = ()

    def follow(self, page: Page) -> None:
        page.on("console", lambda told: self._note(f"console: {told.text}") if told.type == "error" else None)
        page.on("pageerror", lambda error: self._note(f"page: {error}"))
        page.on("request", lambda request: self._check(request.url))
        page.on("websocket", lambda socket: self._note(f"websocket: {socket.url}"))

    def _check(self, url: str) -> None:
        if not url.startswith((f"{self.origin}/", "data:", "blob:")):
            self._note(f"request to another host: {url}")

    def _note(self, complaint: str) -> None:
        if not any(piece in complaint for piece in self.expected):
            self.complaints.append(complaint)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Debian's Chromium, without a window."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


async def visitor(browser: Browser, watch: Watch, **more: Any) -> BrowserContext:
    """A person with a browser of their own: own cookies, own storage."""
    context = await browser.new_context(base_url=watch.origin, **more)
    context.set_default_timeout(PATIENCE_S * 1000)
    context.on("page", lambda page: watch.follow(page))
    return context


async def sign_in(page: Page, token: str) -> None:
    """Through the form, as a person does."""
    await page.goto("/console/login")
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url("**/console")


async def open_whole(page: Page, path: str) -> Response:
    """Opens a page, and waits for the part that comes after it."""
    answer = await page.goto(f"/console{path}")
    assert answer is not None
    await page.locator("#drawn[aria-busy]").wait_for(state="detached")
    return answer
