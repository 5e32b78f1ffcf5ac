"""Many windows of one browser: a browser has six connections to a host, and none of them may be missing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.bench.standin import Pace, StandIn
from tests.browser.conftest import ROOT, TOKENS, fixture
from tests.browser.watched import Watch, sign_in
from tests.journeys.daemon import Client, config, model_settings, running
from tests.patience import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import BrowserContext, Page

pytestmark = pytest.mark.browser

KEY = "agent:main:console:direct:me"
CHAT = f"/console/sessions/{KEY}"
STORY = "A long story, please. " + "And more of it. " * 300
HIDE = """(hidden) => {
  Object.defineProperty(document, "visibilityState", { value: hidden ? "hidden" : "visible", configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@fixture
async def standin() -> AsyncIterator[StandIn]:
    """Writes a story for a minute, unless somebody stops it."""
    async with StandIn(Pace(token_ms=50)) as model:
        yield model


@fixture
async def client(tmp_path: Path, standin: StandIn) -> AsyncIterator[Client]:
    """A daemon that notices soon when a stream was left."""
    settings = config(auth=TOKENS, server={"ping_s": 0.2}, **model_settings(standin.base_url))
    async with running(tmp_path / "data", settings) as client:
        client.token = ROOT
        yield client


def streams(client: Client) -> int:
    """How many event streams are open."""
    return client.daemon.parts.bus.readers


async def say(page: Page, text: str) -> None:
    await page.get_by_role("textbox", name="Message").fill(text)
    await page.keyboard.press("Enter")


async def test_eight_windows_of_one_chat_open_and_each_of_them_stops_the_reply(
    page: Page, visit: BrowserContext, client: Client
) -> None:
    pages = [page, *[await visit.new_page() for _ in range(7)]]
    for one in pages:
        await one.goto(CHAT)
    await say(pages[0], STORY)
    for one in pages:
        await expect(one.get_by_role("button", name="Stop")).to_be_visible()
    assert streams(client) <= 3
    await pages[4].reload()
    await pages[4].get_by_role("button", name="Stop").click()
    for one in pages:
        await expect(one.locator("#running")).to_be_hidden()
        await expect(one.locator("#items .message.theirs")).to_contain_text("echo: A long story")
        await expect(one.locator("#items .message.theirs .tag.warn")).to_have_text("stopped")
    await asyncio.gather(*(one.close() for one in pages))
    await until(lambda: streams(client) == 0)


async def test_a_place_that_is_left_is_taken_by_the_next_window(
    page: Page, visit: BrowserContext, client: Client
) -> None:
    pages = [page, *[await visit.new_page() for _ in range(3)]]
    for one in pages:
        await one.goto(CHAT)
    await until(lambda: streams(client) == 3)
    for one in pages[:3]:
        await one.goto("/console/usage")
    await until(lambda: streams(client) == 1)
    await say(pages[3], STORY)
    await expect(pages[3].locator("#running .text")).to_contain_text("echo: A long story")


async def test_a_hidden_window_follows_nothing_and_catches_up_when_it_is_seen(page: Page, client: Client) -> None:
    await page.goto(CHAT)
    await say(page, "Hello")
    await expect(page.locator("#items .message.theirs")).to_have_count(1)
    await until(lambda: streams(client) == 1)
    await page.evaluate(HIDE, True)
    await until(lambda: streams(client) == 0)
    await client.say("Are you there?", key=KEY)
    await client.post(STORY, key=KEY)
    await page.evaluate(HIDE, False)
    await expect(page.locator("#running .text")).to_contain_text("echo: A long story")
    await expect(page.locator("#items .message")).to_have_count(5)
    await page.evaluate(HIDE, True)
    await until(lambda: streams(client) == 0)
    await page.evaluate(HIDE, False)
    await expect(page.locator("#running .text")).to_contain_text("echo: A long story")
    await expect(page.locator("#running article")).to_have_count(1)
    written = await page.locator("#running .text").inner_text()
    assert written.count("echo:") == 1
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator("#items .message")).to_have_count(6)
    await expect(page.locator("#running")).to_be_hidden()
    assert [
        text.partition(" ")[0] for text in await page.locator("#items .message.theirs .text").all_inner_texts()
    ] == ["echo:"] * 3


async def test_a_window_in_which_nobody_is_signed_in_any_more_leads_to_the_form(
    page: Page, visit: BrowserContext, watch: Watch
) -> None:
    watch.expected = ("401 (Unauthorized)",)
    for path in (CHAT, "/console"):
        await sign_in(page, ROOT)
        await page.goto(path)
        await page.evaluate(HIDE, True)
        await visit.clear_cookies()
        await page.evaluate(HIDE, False)
        await page.wait_for_url("**/console/login")
