"""Figures and tables: what was spent, what was used today, and chats in the order that is asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.bench.standin import StandIn
from tests.browser.conftest import fixture

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Page

    from tests.journeys.daemon import Client

pytestmark = pytest.mark.browser

KEY = "agent:main:console:direct:me"
LINES = """(cell) => {
  const all = document.createRange();
  all.selectNodeContents(cell);
  return all.getClientRects().length;
}"""


@fixture
async def standin() -> AsyncIterator[StandIn]:
    async with StandIn() as model:
        yield model


async def test_usage_is_read_by_day_model_and_chat_and_taken_home_as_csv(page: Page, client: Client) -> None:
    for number in range(3):
        await client.say(f"Message {number}", key=KEY)
    (row,) = (await client.get("/v1/usage?by=model"))["rows"]
    await page.get_by_role("link", name="Usage").click()
    chart = page.get_by_role("img", name="Tokens per day")
    await expect(chart.locator("rect").first).to_be_visible()
    told = await chart.locator("title").last.text_content()
    assert told is not None
    assert re.match(r"\d{4}-\d\d-\d\d: Input outside the cache [\d.k]+, ", told)
    models = page.get_by_role("region", name="By model")
    cells = models.get_by_role("row").nth(1)
    await expect(cells.get_by_role("rowheader")).to_have_text(row["group"]["model"])
    await expect(cells.get_by_role("cell").first).to_have_text(str(row["calls"]))
    await expect(page.get_by_role("region", name="By person")).to_be_visible()
    await expect(page.get_by_role("row", name=re.compile("First call: nothing to read yet"))).to_contain_text("1")

    async with page.expect_download() as loading:
        await page.get_by_role("link", name="Download as CSV").click()
    download = await loading.value
    lines = (await download.path()).read_text("utf-8").splitlines()
    assert lines[0].startswith("day,model,calls")
    assert len(lines) == 2

    await page.get_by_role("link", name="7 Days").click()
    await expect(page.get_by_role("link", name="7 Days")).to_have_attribute("aria-current", "true")
    await page.get_by_role("region", name="By chat").get_by_role("link", name=KEY).click()
    await expect(page.get_by_text("echo: Message 2")).to_be_visible()


async def test_on_a_phone_the_first_cell_of_a_figure_is_read_in_one_line(page: Page, client: Client) -> None:
    await client.say("Hello", key=KEY)
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.goto("/console/usage")
    for name in ("By day", "By task"):
        first = page.get_by_role("region", name=name).get_by_role("rowheader")
        lines = await first.evaluate(LINES)
        assert lines == 1, name


async def test_the_overview_says_what_is_said_today_and_leads_there(page: Page, client: Client) -> None:
    await client.say("Hello", key=KEY)
    await page.goto("/console")
    used = page.locator(".figures div", has_text="Chats used today").locator("dd").first
    await expect(used).to_have_text("1")
    await page.get_by_role("link", name="Hello").first.click()
    await expect(page.get_by_text("echo: Hello")).to_be_visible()


async def test_chats_are_sorted_searched_and_put_into_the_archive_and_back(page: Page, client: Client) -> None:
    for number, count in ((1, 1), (2, 3), (3, 2)):
        for _ in range(count):
            await client.say("Hello", key=f"agent:main:web:direct:p{number}")
    await page.goto("/console/sessions")
    chats = page.locator("tbody .key")
    await page.get_by_role("link", name="Messages", exact=True).click()
    await expect(chats).to_have_text([f"agent:main:web:direct:p{number}" for number in (2, 3, 1)])
    await page.get_by_label("Order").select_option("idle")
    await page.get_by_role("button", name="Filter").click()
    await expect(chats).to_have_text([f"agent:main:web:direct:p{number}" for number in (1, 2, 3)])
    await page.get_by_label("Part of the key or title").fill("p2")
    await page.keyboard.press("Enter")
    await expect(chats).to_have_text(["agent:main:web:direct:p2"])
    await page.get_by_role("checkbox", name="Select all on this page").check()
    await page.get_by_role("button", name="Archive").click()
    await expect(page.get_by_role("status")).to_contain_text("Archived 1.")
    assert (await client.get("/v1/sessions?archived=true"))["sessions"][0]["key"] == "agent:main:web:direct:p2"
    await page.get_by_role("button", name="Undo").click()
    await expect(chats.first).to_be_visible()
    assert (await client.get("/v1/sessions?archived=true"))["sessions"] == []
