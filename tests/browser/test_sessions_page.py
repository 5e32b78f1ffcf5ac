"""Chats deleted together: taken back, or gone when the page is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.browser.conftest import fixture
from tests.patience import until_equal

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

    from tests.browser.watched import Watch
    from tests.journeys.daemon import Client

pytestmark = pytest.mark.browser

KEYS = [f"agent:main:web:direct:{name}" for name in ("ana", "bob", "eve")]


@fixture
async def table(page: Page, client: Client) -> Page:
    """The page of sessions, with three chats on it."""
    for key in KEYS:
        await client.say("hi", key=key)
    page.on("dialog", lambda dialog: dialog.accept())
    await page.clock.install()
    await page.goto("/console/sessions")
    return page


def rows(table: Page) -> Locator:
    return table.locator("table.sessions tbody tr").filter(visible=True)


async def delete(table: Page, *keys: str, said: int | None = None) -> None:
    for key in keys:
        await rows(table).filter(has_text=key).get_by_role("checkbox").check()
    await table.get_by_role("button", name="Delete for good").click()
    await expect(table.locator("#toast")).to_contain_text(f"Deleted {said or len(keys)}.")


async def left(client: Client) -> list[str]:
    return sorted(one["key"] for one in (await client.get("/v1/sessions"))["sessions"])


async def test_chats_deleted_together_are_taken_back_and_are_gone_when_the_page_is_left(
    table: Page, client: Client
) -> None:
    await delete(table, *KEYS[:2])
    await expect(rows(table)).to_have_count(1)
    await table.get_by_role("button", name="Undo").click()
    await expect(rows(table)).to_have_count(3)
    assert await left(client) == KEYS
    await delete(table, *KEYS[:2])
    await table.goto("/console/usage")
    await until_equal(lambda: left(client), KEYS[2:])


async def test_what_was_deleted_is_gone_when_somebody_signs_out_at_once(table: Page, client: Client) -> None:
    await delete(table, *KEYS[:2])
    await table.get_by_role("button", name="Sign out").click()
    await table.wait_for_url("**/console/login")
    assert await left(client) == KEYS[2:]


async def test_what_is_deleted_one_after_the_other_is_taken_back_together(table: Page, client: Client) -> None:
    await delete(table, KEYS[0])
    await table.clock.run_for(6_000)
    await delete(table, KEYS[1], said=2)
    await table.clock.run_for(6_000)
    await table.get_by_role("button", name="Undo").click()
    await expect(rows(table)).to_have_count(3)
    await table.goto("/console/usage")
    assert await left(client) == KEYS


async def test_a_chat_that_somebody_else_has_deleted_keeps_no_other_from_being_deleted(
    table: Page, client: Client, watch: Watch
) -> None:
    watch.expected = ("404 (Not Found)",)
    await client.call("DELETE", f"/v1/sessions/{KEYS[0]}")
    await delete(table, *KEYS)
    await table.clock.run_for(11_000)
    await until_equal(lambda: left(client), [])
