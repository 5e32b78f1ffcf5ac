"""Memories corrected, taken back, deleted for good, merged, and found on the map."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.browser.watched import open_whole
from tests.patience import until_equal

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.journeys.daemon import Client

pytestmark = pytest.mark.browser


async def remember(client: Client, *texts: str) -> list[str]:
    ids: list[str] = []
    for text in texts:
        status, content = await client.call("POST", "/v1/memories", {"text": text})
        assert status == 201, content
        ids.append(content["id"])
    return ids


async def test_a_memory_is_corrected_and_the_correction_taken_back(page: Page, client: Client) -> None:
    (one,) = await remember(client, "Ana lives in Brno.")
    await page.goto("/console/memory?q=Brno&mode=keyword")
    await page.get_by_role("link", name="Ana lives in Brno.").click()
    await page.get_by_role("textbox", name="What is remembered").fill("Ana lives in Olomouc.")
    await page.get_by_label("Why it is changed").fill("She moved.")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status")).to_contain_text("Saved.")
    await expect(page.locator(".history ins").first).to_have_text("Ana lives in Olomouc.")
    await expect(page.locator(".history q").first).to_have_text("She moved.")
    await page.get_by_role("button", name="Undo", exact=True).click()
    await expect(page.get_by_role("textbox", name="What is remembered")).to_have_value("Ana lives in Brno.")
    assert (await client.get(f"/v1/memories/{one}"))["text"] == "Ana lives in Brno."


async def test_the_trash_gives_back_and_deleting_for_good_asks_first(page: Page, client: Client) -> None:
    (one,) = await remember(client, "The kiln holds 1,200 degrees.")
    await page.goto(f"/console/memory/{one}")
    await page.get_by_role("button", name="Put into the trash").click()
    await expect(page.get_by_text("This memory is in the trash")).to_be_visible()
    await page.get_by_role("button", name="Restore").click()
    await expect(page.get_by_role("button", name="Put into the trash")).to_be_visible()

    asked: list[str] = []
    answers = iter([False, True])

    async def answer(dialog: object) -> None:
        asked.append(dialog.message)  # type: ignore[attr-defined]
        await (dialog.accept() if next(answers) else dialog.dismiss())  # type: ignore[attr-defined]

    page.on("dialog", answer)
    purge = page.get_by_role("button", name="Delete for good")
    await purge.click()
    await expect(purge).to_be_enabled()
    await client.get(f"/v1/memories/{one}")
    await purge.click()
    await expect(page).to_have_url(re.compile("/console/memory$"))
    assert len(asked) == 2
    assert "cannot be undone" in asked[0]
    status, _ = await client.call("GET", f"/v1/memories/{one}")
    assert status == 404


async def test_two_memories_become_one_and_two_again(page: Page, client: Client) -> None:
    await remember(client, "Ana likes rye bread.", "Ana's favourite bread is rye.")
    await page.goto("/console/memory")
    for box in await page.get_by_role("checkbox").all():
        await box.check()
    await page.get_by_role("button", name="Merge the chosen").click()
    await page.get_by_label("What is remembered instead").fill("Ana likes rye bread most.")
    await page.get_by_role("button", name="Merge the chosen").click()
    await expect(page.get_by_role("status")).to_contain_text("Merged.")
    assert [one["text"] for one in (await client.get("/v1/memories"))["memories"]] == ["Ana likes rye bread most."]
    await page.get_by_role("button", name="Undo", exact=True).click()
    await expect(page.locator(".history b").first).to_have_text("Undone")
    assert len((await client.get("/v1/memories"))["memories"]) == 2


async def test_a_map_of_nothing_says_where_to_begin(page: Page) -> None:
    await page.goto("/console/memory/map")
    await expect(page.get_by_text("Nothing is remembered here yet")).to_contain_text("Add a fact under List")


async def test_the_map_is_dragged_and_a_spot_opened(page: Page, client: Client) -> None:
    await remember(client, *(f"Fact {number} about bread, mills and {'abcdefgh'[number] * 4}." for number in range(8)))
    spots = page.locator("#map a")
    await open_whole(page, "/memory/map")
    while await spots.count() < 8:
        await open_whole(page, "/memory/map")
    plane = page.locator("#map")
    box = await plane.bounding_box()
    assert box is not None
    before = await plane.get_attribute("viewBox")
    spot = await spots.first.bounding_box()
    assert spot is not None
    await page.mouse.move(spot["x"] + spot["width"] / 2, spot["y"] + spot["height"] / 2)
    await expect(page.locator("#map-text")).to_contain_text("about bread")
    await page.mouse.down()
    await page.mouse.move(spot["x"] + 90, spot["y"] + 40, steps=5)
    await page.mouse.up()
    await expect(page).to_have_url(re.compile("/memory/map$"))
    assert await plane.get_attribute("viewBox") != before
    await page.get_by_role("button", name="All of it").click()
    await spots.first.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("A memory")


async def test_a_memory_is_given_properties_and_loses_them(page: Page, client: Client) -> None:
    await page.goto("/console/memory")
    await page.get_by_role("heading", name="Remember something").click()
    form = page.locator("form[data-call='POST /v1/memories']")
    await form.get_by_label("What is remembered").fill("Acme pays in euro.")
    await form.get_by_label("Properties").fill("customer = Acme\nrule = a = b")
    await form.get_by_role("button", name="Remember").click()
    await page.get_by_role("link", name="Acme pays in euro.").click()

    async def properties() -> object:
        (memory,) = (await client.get("/v1/memories"))["memories"]
        return memory["properties"]

    assert await properties() == {"customer": "Acme", "rule": "a = b"}
    await page.get_by_label("Properties").fill("")
    await page.get_by_role("button", name="Save").click()
    await until_equal(properties, {})


async def test_a_topic_is_made_changed_and_deleted(page: Page, client: Client) -> None:
    await client.call("POST", "/v1/projects", {"id": "bakery", "members": ["root", "owner"]})
    await page.goto("/console/memory/topics")
    await page.get_by_role("heading", name="Add a topic").click()
    form = page.locator("form[data-call='POST /v1/topics']")
    await form.get_by_label("Name", exact=True).fill("bread")
    await form.get_by_label("What belongs to it").fill("Everything about bread.")
    await form.get_by_label("Project").select_option("bakery")
    await form.get_by_label("For everybody").check()
    await form.get_by_role("button", name="Add a topic").click()
    card = page.locator("section.card", has=page.get_by_role("heading", name=re.compile("^bread")))
    await expect(card.get_by_text("only in bakery")).to_be_visible()
    await expect(card.get_by_text("for everybody")).to_be_visible()
    await card.get_by_text("Change").click()
    await card.get_by_label("What is left out").fill("Cakes.")
    await card.get_by_role("button", name="Save").click()
    await expect(card.get_by_text("Not: Cakes.")).to_be_visible()
    page.on("dialog", lambda dialog: dialog.accept())
    await card.get_by_text("Change").click()
    await card.get_by_role("button", name="Delete").click()
    await expect(card).to_have_count(0)
    assert "bread" not in [topic["name"] for topic in (await client.get("/v1/topics"))["topics"]]
