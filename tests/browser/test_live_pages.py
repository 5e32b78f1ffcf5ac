"""Pages that are read anew while they are open, and what somebody writes in them meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.bench.standin import StandIn
from tests.browser.conftest import fixture
from tests.patience import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Page

    from tests.journeys.daemon import Client

pytestmark = pytest.mark.browser

KEY = "agent:main:console:direct:me"


@fixture
async def standin() -> AsyncIterator[StandIn]:
    async with StandIn() as model:
        yield model


async def followed(client: Client) -> None:
    await until(lambda: client.daemon.parts.bus.readers > 0)


async def test_the_overview_shows_what_happens_while_it_is_open(page: Page, client: Client) -> None:
    chat = page.get_by_role("textbox", name="Key of the chat")
    await chat.fill("agent:main:console:direct:half-typed")
    await followed(client)
    await client.say("Hello", key=KEY)
    recent = page.get_by_role("link", name="Hello")
    await expect(recent.first).to_be_visible()
    await expect(chat).to_have_value("agent:main:console:direct:half-typed")
    await chat.fill("agent:main:console:direct:me")
    await page.get_by_role("heading", name="Overview").click()
    await client.say("Something else", key="agent:main:console:direct:other")
    await expect(page.get_by_role("link", name="Something else").first).to_be_visible()
    await expect(chat).to_have_count(0)
    await expect(page.locator(".figures dd").nth(1)).to_have_text("2")


async def test_a_title_that_is_being_typed_stays_when_a_reply_ends(page: Page, client: Client) -> None:
    await client.say("Hello", key=KEY)
    await page.goto(f"/console/sessions/{KEY}")
    await followed(client)
    await page.get_by_text("Settings of this chat").click()
    title = page.get_by_label("Title")
    await title.fill("A title that nobody has saved")
    await page.get_by_role("textbox", name="Message").fill("And now?")
    await page.keyboard.press("Enter")
    await expect(page.locator("#items .message.theirs")).to_have_count(2)
    await expect(page.locator("#piece-facts dd").nth(2)).to_have_text("4")
    await expect(title).to_have_value("A title that nobody has saved")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status").last).to_contain_text("Saved.")
    await page.locator("h1").click()
    await client.call("PATCH", f"/v1/sessions/{KEY}", {"title": "Named elsewhere"})
    await client.say("And then?", key=KEY)
    await expect(title).to_have_value("Named elsewhere")
