"""Chats deleted together: taken back, or gone when the page is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.patience import until_equal

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.journeys.daemon import Client

pytestmark = pytest.mark.browser


async def test_chats_deleted_together_are_taken_back_and_are_gone_when_the_page_is_left(
    page: Page, client: Client
) -> None:
    keys = [f"agent:main:web:direct:{name}" for name in ("ana", "bob", "eve")]
    for key in keys:
        await client.say("hi", key=key)

    async def left() -> list[str]:
        return sorted(one["key"] for one in (await client.get("/v1/sessions"))["sessions"])

    page.on("dialog", lambda dialog: dialog.accept())
    row = page.locator("table.sessions tbody tr")
    for undo in (True, False):
        await page.goto("/console/sessions")
        for key in keys[:2]:
            await row.filter(has_text=key).get_by_role("checkbox").check()
        await page.get_by_role("button", name="Delete for good").click()
        await expect(page.locator("#toast")).to_contain_text("Deleted 2.")
        await expect(row.filter(visible=True)).to_have_count(1)
        if undo:
            await page.get_by_role("button", name="Undo").click()
            await expect(row.filter(visible=True)).to_have_count(3)
            assert await left() == keys
    await page.goto("/console/usage")
    await until_equal(left, keys[2:])
