"""A person's day in the console."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.browser.watched import Watch, sign_in, visitor
from tests.journeys.daemon import config, running

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Browser, BrowserContext, Page, Route

    from tests.journeys.daemon import Client

pytestmark = pytest.mark.browser

KEY = "agent:main:console:direct:me"
CHAT = f"/console/sessions/{KEY}"
COUNT_REPLIES = """(text) => {
  window.mostAtOnce = 0;
  new MutationObserver(() => {
    const now = [...document.querySelectorAll(".text")].filter((one) => one.textContent.trim() === text).length;
    window.mostAtOnce = Math.max(window.mostAtOnce, now);
  }).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""


async def say(page: Page, text: str) -> None:
    box = page.get_by_role("textbox", name="Message")
    await box.wait_for()
    await page.wait_for_load_state()  # until the scripts run, Enter is only a new line
    await box.fill(text)
    await page.keyboard.press("Enter")


async def test_a_wrong_token_is_refused_in_words_and_a_right_one_opens_the_console(
    visit: BrowserContext, watch: Watch, client: Client
) -> None:
    watch.expected = ("401 (Unauthorized)",)
    page = await visit.new_page()
    await page.goto("/console")
    await expect(page).to_have_url(re.compile("/console/login$"))
    await page.get_by_label("Token").fill("not-a-token")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("No token is like that")
    await sign_in(page, client.token or "")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


async def test_a_conversation_is_streamed_stopped_begun_anew_and_left(page: Page) -> None:
    await page.get_by_role("button", name="Open").click()
    await expect(page.get_by_text("Nothing has been said in this chat yet")).to_be_visible()
    await say(page, "Where is the **best** place to buy bread in Brno on a Sunday? " + "And tell me more. " * 40)
    await expect(page.locator("#running .text")).to_contain_text("echo: Where is")
    await expect(page.get_by_role("complementary").get_by_role("button", name="Summarise now")).to_be_visible()
    stop = page.get_by_role("button", name="Stop")
    await expect(stop).to_be_visible()
    await stop.click()
    await expect(page.locator(".message.theirs .tag.warn")).to_have_text("stopped")
    await expect(page.locator(".message.mine strong")).to_have_text("best")
    await expect(stop).to_be_hidden()

    await say(page, "And on a Monday?")
    await expect(page.locator("#items .message.theirs").nth(1)).to_contain_text("echo: And on a Monday?")
    await say(page, "/new")
    await expect(page.get_by_text("This session ended (new)")).to_be_visible()
    await page.evaluate(COUNT_REPLIES, "echo: A new beginning")
    await say(page, "A new beginning")
    await expect(page.locator("#items").get_by_text("echo: A new beginning")).to_be_visible()
    await expect(page.locator("#running")).to_be_hidden()
    assert await page.evaluate("window.mostAtOnce") == 1, "the reply was on the page twice for a moment"

    await page.get_by_role("button", name="Sign out").click()
    await expect(page).to_have_url(re.compile("/console/login$"))
    await page.goto(CHAT)
    await expect(page).to_have_url(re.compile("/console/login$"))


async def test_a_message_that_waits_is_edited_and_one_removed(page: Page, client: Client) -> None:
    await page.goto(CHAT)
    box = page.get_by_role("textbox", name="Message", exact=True)
    for text in ("First. " + "And more. " * 60, "Second, with a mistkae", "Third, not needed"):
        await box.fill(text)
        await page.keyboard.press("Enter")
        await expect(box).to_have_value("")
    queue = page.get_by_role("region", name="Waiting messages")
    await expect(queue.get_by_role("listitem")).to_have_count(2)
    await queue.get_by_role("listitem").filter(has_text="Third").get_by_role("button", name="Remove").click()
    await expect(queue.get_by_role("listitem")).to_have_count(1)
    await queue.get_by_role("button", name="Edit").click()
    await expect(box).to_have_value("Second, with a mistkae")
    await box.fill("Second, without a mistake")
    await page.keyboard.press("Enter")
    await expect(page.locator("#items .message.theirs").last).to_contain_text("without a mistake")
    texts = await client.texts(KEY)
    assert not any("Third" in text or "mistkae" in text for text in texts if text.startswith("echo:"))


async def test_what_is_typed_while_a_message_is_on_its_way_is_the_next_one(page: Page) -> None:
    await page.goto(CHAT)
    box = page.get_by_role("textbox", name="Message", exact=True)

    async def slowly(route: Route) -> None:
        await box.press_sequentially(" And then")
        await route.continue_()

    await page.route("**/messages?wait=0", slowly)
    await box.fill("First.")
    await page.keyboard.press("Enter")
    await expect(page.locator("#items .message.theirs")).to_contain_text("echo: First.")
    await expect(box).to_have_value("And then")


async def test_a_person_is_answered_in_the_first_chat_that_is_offered(browser: Browser, tmp_path: Path) -> None:
    tokens = [{"name": "ana", "token": "token-of-ana", "role": "user", "user": "ana", "agents": ["cook"]}]
    settings = config(auth={"tokens": tokens}, agents={"cook": {}})
    async with running(tmp_path / "data", settings) as client:
        watch = Watch(client.url)
        context = await visitor(browser, watch)
        page = await context.new_page()
        await sign_in(page, "token-of-ana")
        await page.get_by_role("button", name="Open").click()
        await say(page, "Hello")
        await expect(page.locator("#items .message.theirs")).to_contain_text("Hello")
        await context.close()
    assert watch.complaints == []
