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

    from playwright.async_api import Browser

pytestmark = pytest.mark.browser

CHAT = "/console/sessions/agent:main:console:direct:me"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


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
        await expect(one.get_by_role("alert")).to_contain_text("Not sent")
        await other.close()
        async with running(tmp_path / "data", settings):
            await expect(one.locator("#link")).to_be_empty(timeout=20_000)
            await expect(one.locator("#items .message.theirs")).to_have_count(2)
            await expect(text).to_have_value("Unsent")
            other = await context.new_page()
            await other.goto(CHAT)
            await expect(other.get_by_role("textbox", name="Message")).to_have_value("Unsent")
            await one.get_by_role("button", name="Send").click()
            await expect(one.locator("#items .message.theirs")).to_have_count(3)
            for page in (one, other):
                await expect(page.locator("#items .message.mine")).to_have_count(3)
                await expect(page.locator("#items").get_by_text("echo: Unsent")).to_have_count(1)
            await context.close()
    assert watch.complaints == []
