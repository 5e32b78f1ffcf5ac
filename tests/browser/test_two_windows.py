"""Two windows and a restart of the daemon: live parts come back, nothing is doubled, an unsent message is kept."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.bench.standin import Pace, StandIn
from tests.browser.conftest import ROOT, TOKENS
from tests.browser.watched import Watch, sign_in, visitor
from tests.journeys.daemon import config, model_settings, running

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Browser, BrowserContext, Locator, Page

    from tests.journeys.daemon import Client

pytestmark = pytest.mark.browser

CHAT = "/console/sessions/agent:main:console:direct:me"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def message(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Message")


async def chat_in_new_window(context: BrowserContext) -> Page:
    page = await context.new_page()
    await page.goto(CHAT)
    return page


async def kept(page: Page) -> int:
    return await page.evaluate("Object.keys(localStorage).filter((name) => name.startsWith('draft')).length")


async def test_both_windows_go_on_after_a_restart(browser: Browser, tmp_path: Path) -> None:
    port = free_port()
    watch = Watch(
        f"http://127.0.0.1:{port}", expected=("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED", "ERR_EMPTY")
    )
    async with StandIn(Pace(token_ms=20)) as standin:
        settings = config(auth=TOKENS, server={"port": port}, **model_settings(standin.base_url))
        async with running(tmp_path / "data", settings):
            context = await visitor(browser, watch)
            one, other = await context.new_page(), await context.new_page()
            await sign_in(one, ROOT)
            await one.goto(CHAT)
            await other.goto(CHAT)
            text = one.get_by_role("textbox", name="Message")
            await text.fill("First, " + "and more " * 20)
            await one.keyboard.press("Enter")
            for page in (one, other):
                await expect(page.locator("#items .message.theirs")).to_have_count(1)
                await expect(page.locator("#items .message.mine")).to_have_count(1)
            # its reply is being written when the daemon stops
            await text.fill("Second, " + "and more " * 60)
            await one.keyboard.press("Enter")
            await expect(other.locator("#running .text")).to_contain_text("echo: Second")
        await text.fill("Unsent")
        await one.keyboard.press("Enter")
        await expect(one.get_by_role("alert")).to_contain_text("Not sent: sessiond cannot be reached. The")
        await other.close()
        async with running(tmp_path / "data", settings):
            await expect(one.locator("#link")).to_be_empty(timeout=20_000)
            await expect(one.locator("#items .message.theirs")).to_have_count(2)
            await expect(text).to_have_value("Unsent")
            other = await context.new_page()
            await other.goto(CHAT)
            await expect(other.get_by_role("textbox", name="Message")).to_have_value("")
            await one.get_by_role("button", name="Send").click()
            await expect(one.locator("#items .message.theirs")).to_have_count(3)
            for page in (one, other):
                await expect(page.locator("#items .message.mine")).to_have_count(3)
                await expect(page.locator("#items").get_by_text("echo: Unsent")).to_have_count(1)
            await context.close()
    assert watch.complaints == []


async def test_each_window_keeps_its_own_unsent_message_and_the_next_window_finds_what_was_closed(
    page: Page, visit: BrowserContext
) -> None:
    await page.goto(CHAT)
    other = await chat_in_new_window(visit)
    await message(page).fill("Of the first window")
    await message(other).fill("Of the second window")
    await page.goto("/console")
    await page.goto(CHAT)
    await expect(message(page)).to_have_value("Of the first window")
    await other.reload()
    await expect(message(other)).to_have_value("Of the second window")
    await other.close()
    other = await chat_in_new_window(visit)
    await expect(message(other)).to_have_value("Of the second window")
    await message(other).press("Enter")
    await expect(message(other)).to_have_value("")
    third = await chat_in_new_window(visit)
    await expect(third.locator("#items .message.mine")).to_contain_text("Of the second window")
    await expect(message(third)).to_have_value("")
    for window in (page, other, third):
        await window.close()
    last = await chat_in_new_window(visit)
    await expect(message(last)).to_have_value("Of the first window")


async def test_an_unsent_message_goes_with_whoever_signs_out(
    page: Page, visit: BrowserContext, watch: Watch, client: Client
) -> None:
    watch.expected = ("401 (Unauthorized)", "ERR_ABORTED")
    await page.goto(CHAT)
    other = await chat_in_new_window(visit)
    for window in (page, other):
        await message(window).fill("My secret")
    await page.get_by_role("button", name="Sign out").click()
    for window in (page, other):
        await window.wait_for_url("**/console/login")
    assert await kept(page) == 0
    await sign_in(page, ROOT)
    await page.goto(CHAT)
    await expect(message(page)).to_have_value("")
    for window in (page, other):
        await window.go_back()
    await other.goto(CHAT)
    await other.go_back()
    for window in (page, other):
        assert "My secret" not in await window.evaluate(
            "document.body.innerText + [...document.querySelectorAll('textarea')].map((one) => one.value)"
        )


async def test_an_unsent_message_of_somebody_else_is_not_there_for_who_signs_in_later(
    browser: Browser, tmp_path: Path
) -> None:
    tokens = {"tokens": [*TOKENS["tokens"], {"name": "bob", "token": "token-of-bob", "role": "admin"}]}
    async with StandIn() as standin:
        settings = config(auth=tokens, **model_settings(standin.base_url))
        async with running(tmp_path / "data", settings) as client:
            watch = Watch(client.url)
            context = await visitor(browser, watch)
            page = await context.new_page()
            await sign_in(page, ROOT)
            await page.goto(CHAT)
            await message(page).fill("My secret")
            await page.goto("about:blank")
            for token, found, count in ((ROOT, "My secret", 1), ("token-of-bob", "", 0), (ROOT, "", 0)):
                await context.clear_cookies()
                await sign_in(page, token)
                await page.goto(CHAT)
                await expect(message(page)).to_have_value(found)
                assert await kept(page) == count
            await context.close()
    assert watch.complaints == []
