"""A day without a mouse: everything is reached by Tab in the order it is read, and what has the focus can be seen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.browser.conftest import ROOT

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

    from tests.journeys.daemon import Client

pytestmark = pytest.mark.browser

FOCUSED = """() => {
  const one = document.activeElement;
  const box = one.getBoundingClientRect();
  const style = getComputedStyle(one.closest("#map a") ? one.querySelector("circle") : one);
  return {
    name: one.getAttribute("aria-label") ?? one.labels?.[0]?.innerText ?? one.innerText ?? "",
    tag: one.tagName,
    seen: (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2) || style.stroke !== "none",
    inside: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
  };
}"""


async def tab_to(page: Page, name: str | re.Pattern[str]) -> None:
    """Presses Tab until something of this name has the focus; on the way everything shows that it has it."""
    wanted = re.compile(rf"^{re.escape(name)}") if isinstance(name, str) else name
    passed: list[str] = []
    for _ in range(80):
        await page.keyboard.press("Tab")
        focused = await page.evaluate(FOCUSED)
        if focused["tag"] == "BODY":
            continue
        assert focused["seen"], f"{focused} has the focus, and nothing shows it"
        assert focused["inside"], f"{focused} has the focus outside the window"
        if wanted.search(focused["name"].strip()):
            return
        passed.append(focused["name"].strip()[:40])
    raise AssertionError(f"Tab never comes to {name}: {passed}")


async def test_a_day_by_keyboard(visit: BrowserContext, client: Client) -> None:
    page = await visit.new_page()
    await page.goto("/console")
    await page.keyboard.type(ROOT)  # the field of the token has the focus
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")

    await tab_to(page, "Skip to content")
    await page.keyboard.press("Enter")
    await tab_to(page, "Key of the chat")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Nothing has been said in this chat yet")).to_be_visible()

    await tab_to(page, "Message")
    await page.keyboard.type("/rem")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("textbox", name="Message")).to_have_value("/remember ")
    await page.keyboard.type("Ana likes rye bread.")
    await page.keyboard.press("Enter")
    await expect(page.locator("#items .notice")).to_contain_text("/remember")
    await page.keyboard.type("Tell me a long story. " * 30)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator(".message.theirs .tag.warn")).to_have_text("stopped")

    await page.goto("/console/memory")
    await tab_to(page, "Ana likes rye bread.")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("A memory")
    await tab_to(page, "What is remembered")
    await page.keyboard.press("End")
    await page.keyboard.type(" And caraway.")
    await tab_to(page, "Save")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status")).to_contain_text("Saved.")
    await tab_to(page, "Undo")
    await page.keyboard.press("Enter")
    await expect(page.locator(".history b").first).to_have_text("Undone")

    await tab_to(page, "Sign out")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile("/console/login$"))


async def test_what_can_be_done_on_a_page_is_reached_by_tab_and_shows_its_focus(page: Page, client: Client) -> None:
    await client.say("Hello", key="agent:main:console:direct:me")
    for number in range(3):
        await client.call("POST", "/v1/memories", {"text": f"Fact {number}", "pool": "user:me"})
    for path in ("", "/sessions", "/sessions/agent:main:console:direct:me", "/memory", "/jobs", "/usage", "/settings"):
        await page.goto(f"/console{path}")
        names: list[str] = []
        for _ in range(60):
            await page.keyboard.press("Tab")
            focused = await page.evaluate(FOCUSED)
            if focused["tag"] == "BODY" or (names and focused["name"] == names[0]):
                break
            assert focused["seen"], f"{path}: {focused} has the focus, and nothing shows it"
            names.append(focused["name"])
        assert len(names) >= 9, f"{path}: only {names} can be reached"
