"""A chat that was summarised: what the model sees now, what it covers, and how what was said is found again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.bench.standin import StandIn
from tests.browser.conftest import fixture
from tests.browser.sample import KEY, TALK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Page

    from tests.journeys.daemon import Client

pytestmark = pytest.mark.browser

CHAT = f"/console/sessions/{KEY}"
SCROLL = """(to) => {
  scrollTo(0, to);
  window.read = [...document.querySelectorAll("#items .message")].find((one) => one.getBoundingClientRect().bottom > 0);
  return { text: read.innerText, top: read.getBoundingClientRect().top };
}"""
WHERE = "() => ({ text: read.innerText, top: read.getBoundingClientRect().top })"


@fixture
async def standin() -> AsyncIterator[StandIn]:
    """Replies at once: what was said matters here, not how it comes."""
    async with StandIn() as model:
        yield model


async def talk(client: Client) -> None:
    for text in TALK:
        await client.say(text, key=KEY)
    for number in range(6):
        await client.say(f"Small talk {number} about the weather. " + "And on it goes. " * 10, key=KEY)


async def word_for_word(client: Client) -> list[str]:
    """What the model is sent as messages of people."""
    request = (await client.get(f"/v1/sessions/{KEY}/prompt"))["request"]
    return [message["content"] for message in request["messages"] if message["role"] == "user"]


async def test_a_chat_is_summarised_and_its_divider_says_what_the_model_sees_and_what_it_covers(
    page: Page, client: Client
) -> None:
    await talk(client)
    await page.goto(CHAT)
    await expect(page.locator("#items .message.mine")).to_have_count(10)
    await page.get_by_role("button", name="Summarise now").click()
    divider = page.locator("details.divider")
    await expect(divider.locator("summary")).to_contain_text("Summarised up to message")
    lists = divider.get_by_role("list")
    await expect(lists.first).to_be_hidden()
    await divider.locator("summary").click()
    await expect(lists.first).to_be_visible()
    await expect(divider).to_contain_text("the model sees this summary in their place")
    await expect(divider).to_contain_text(re.compile(r"\d+ tokens became \d+\."))
    assert "halibut seventeen" in await divider.inner_text()

    await divider.get_by_role("link", name="Read what it covers.").click()
    await expect(page.get_by_text("You are reading a part of the conversation.")).to_be_visible()
    await expect(page.locator("#items .message.mine").first).to_contain_text("best place to buy bread")
    await page.get_by_role("link", name="To the newest messages").click()
    await page.reload()
    await expect(page.locator("details.divider")).to_have_count(1)
    await expect(page.locator("#items .message.mine")).to_have_count(10)


async def test_a_sentence_that_was_summarised_away_is_found_in_its_place(page: Page, client: Client) -> None:
    await talk(client)
    status, told = await client.call("POST", f"/v1/sessions/{KEY}/compact", {})
    assert status == 200, told
    assert TALK[3] not in await word_for_word(client)
    await page.goto(CHAT)
    await page.get_by_role("searchbox", name="Find in this chat").fill("code word bakery")
    await page.keyboard.press("Enter")
    found = page.get_by_role("region", name="Found in this chat")
    await found.get_by_role("link").filter(has_text="halibut").first.click()
    await expect(page).to_have_url(re.compile(r"at=\d+#m\d+$"))
    seq = page.url.rpartition("#")[2]
    await expect(page.locator(f"#{seq}")).to_contain_text("halibut seventeen")
    await expect(page.locator(f"#{seq}")).to_be_in_viewport()


async def test_a_pinned_message_says_so_and_stays_word_for_word(page: Page, client: Client) -> None:
    await talk(client)
    await page.goto(CHAT)
    message = page.locator("#items .message.mine", has_text="halibut seventeen")
    await message.get_by_role("button", name="Pin").click()
    await expect(page.get_by_role("status").last).to_contain_text("Pinned")
    await expect(message.locator(".tag")).to_have_text("pinned")
    await page.get_by_role("button", name="Summarise now").click()
    await expect(page.locator("details.divider")).to_have_count(1)
    assert TALK[3] in await word_for_word(client)
    await page.reload()
    await expect(message.locator(".tag")).to_have_text("pinned")
    await message.get_by_role("button", name="Unpin").click()
    await expect(message.locator(".tag")).to_have_count(0)


async def test_older_messages_come_up_to_the_first_one_and_what_is_read_stays_in_its_place(
    page: Page, client: Client
) -> None:
    for number in range(70):
        await client.say(f"Number {number}. " + "It stands by the river. " * (number % 7), key=KEY)
    await page.goto(CHAT)
    messages, older = page.locator("#items .message"), page.locator("#items .older")
    await expect(messages).to_have_count(40)
    await expect(messages.last).to_be_in_viewport()
    for to, count in ((0, 80), (150, 120), (0, 140)):
        read = await page.evaluate(SCROLL, to)
        await expect(messages).to_have_count(count)
        now = await page.evaluate(WHERE)
        assert now["text"] == read["text"]
        assert abs(now["top"] - read["top"]) <= 2, (to, read, now)
    await expect(older).to_have_count(0)
    await expect(messages.first).to_contain_text("Number 0.")
    await page.evaluate(SCROLL, 0)
    await expect(messages.first).to_be_in_viewport()
