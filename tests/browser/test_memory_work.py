"""Work on memory as a person watches it: runs with before and after and undo, what was learnt, and what they choose."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from tests.browser.conftest import ROOT, fixture
from tests.browser.watched import sign_in
from tests.journeys.daemon import Client, config, running
from tests.journeys.helpers import Helper
from tests.journeys.test_learning import learnt, repeats

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import BrowserContext, Page

pytestmark = pytest.mark.browser

KEY = "agent:main:console:direct:ana"
SETTINGS: dict[str, Any] = {
    "models": {"helper": {"provider": "offline", "model": "helper"}},
    "roles": {"helper": "helper", "chat": "offline", "embedding": "offline"},
    "auth": {
        "tokens": [
            {"name": "root", "token": ROOT, "role": "admin"},
            {"name": "ana", "token": "token-of-ana", "role": "user", "user": "ana"},
        ]
    },
}


def helps(question: dict[str, Any]) -> str:
    """Sorts under preferences what is to be sorted, and learns what begins with "I "."""
    if "facts" in question:
        return json.dumps(dict.fromkeys(question["facts"], "preferences"))
    return repeats(question)


@pytest.fixture
def helper() -> Helper:
    return Helper(helps)


@fixture
async def client(tmp_path: Path, helper: Helper) -> AsyncIterator[Client]:
    async with running(tmp_path / "data", config(**SETTINGS)) as client:
        client.token = "token-of-ana"
        client.daemon.parts.models.put(helper)
        yield client


@fixture
async def page(visit: BrowserContext, client: Client) -> Page:
    """Ana's, who sees her own and may start what concerns only her."""
    page = await visit.new_page()
    await sign_in(page, client.token or "")
    return page


async def test_a_run_is_started_watched_read_and_taken_back(page: Page, client: Client, helper: Helper) -> None:
    for number in range(3):
        await client.call("POST", "/v1/memories", {"text": f"Ana has seen mill {number}.", "topic": "decisions"})
    helper.going.clear()
    await page.goto("/console/memory")
    await page.get_by_role("link", name="Work and learning").click()
    page.once("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="Sort all again").click()
    runs = page.get_by_role("region", name="Runs")
    await expect(runs.get_by_text("running")).to_be_visible()
    helper.going.set()
    await expect(runs.get_by_text("done", exact=True)).to_be_visible()
    await expect(runs).to_contain_text("3 of 3")
    await runs.get_by_role("link", name="Sort into topics").click()
    changes = page.get_by_role("region", name="What it did to each memory")
    row = changes.get_by_role("row").nth(1)
    await expect(row.get_by_role("cell").nth(1)).to_contain_text("decisions")
    await expect(row.get_by_role("cell").nth(2)).to_contain_text("preferences")
    page.once("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="Undo all of it").click()
    await expect(page.get_by_role("status").last).to_contain_text("Taken back: 3.")
    found = (await client.get("/v1/memories"))["memories"]
    assert {memory["topic"] for memory in found} == {"decisions"}


async def test_a_run_that_goes_wrong_says_why_and_one_is_stopped(page: Page, client: Client, helper: Helper) -> None:
    await client.call("POST", "/v1/memories", {"text": "Ana has seen a mill.", "topic": "decisions"})
    helper.says = lambda _: "down"
    await page.goto("/console/memory/runs")
    page.on("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="Sort all again").click()
    runs = page.get_by_role("region", name="Runs")
    await expect(runs.get_by_text("incomplete")).to_be_visible()
    await expect(runs).to_contain_text("1 left out")
    await expect(runs).to_contain_text("down")
    helper.going.clear()
    await page.get_by_role("button", name="Sort all again").click()
    await runs.get_by_role("button", name="Stop").click()
    await expect(runs.get_by_text("stopped")).to_be_visible()


async def test_what_was_learnt_leads_to_the_chat_and_the_memory_and_is_taken_back(page: Page, client: Client) -> None:
    await page.goto("/console/memory/settings")
    await page.get_by_label("Learn after every reply").select_option("on")
    await page.get_by_label("Most memories at the start of a turn").fill("3")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status").last).to_contain_text("Saved.")
    chosen = await client.get("/v1/memory-settings")
    assert (chosen["learn"]["after_reply"], chosen["recall"]["limit"]) == (True, 3)
    assert (chosen["learn"]["own"], chosen["recall"]["own"]) == (["after_reply"], ["limit"])

    await client.say("I drink oat milk", key=KEY)
    await learnt(client)
    await page.goto("/console/memory/runs")
    lessons = page.get_by_role("region", name="What was learnt")
    row = lessons.get_by_role("row").nth(1)
    await expect(row).to_contain_text("after a reply")
    await row.get_by_role("link", name=KEY).click()
    await expect(page.locator("#items .message.mine")).to_contain_text("I drink oat milk")
    await page.go_back()
    await row.get_by_role("link", name="1", exact=True).click()
    await expect(page.get_by_role("textbox", name="What is remembered")).to_have_value("Ana: I drink oat milk")
    await page.go_back()
    await row.get_by_role("button", name="Undo").click()
    await expect(page.get_by_role("status").last).to_contain_text("Undone.")
    assert (await client.get("/v1/memories"))["memories"] == []

    await page.goto("/console/memory/settings")
    await expect(page.get_by_label("Most memories at the start of a turn")).to_have_value("3")
    page.once("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="All as configured").click()
    await expect(page.get_by_label("Most memories at the start of a turn")).to_have_value("")
    chosen = await client.get("/v1/memory-settings")
    assert (chosen["learn"]["own"], chosen["recall"]["own"]) == ([], [])


async def test_a_description_is_tried_on_sentences_and_nothing_is_written(page: Page, client: Client) -> None:
    await page.goto("/console/memory/topics")
    await page.get_by_role("heading", name="Try a description").click()
    form = page.locator("form[data-try-topic]")
    await form.get_by_label("What belongs to it").fill("What the person drinks.")
    await form.get_by_label("Sentences").fill("I drink oat milk\nThe weather is fine")
    await form.get_by_role("button", name="Try it").click()
    tried = form.get_by_role("status")
    await expect(tried.get_by_role("heading", name="Would be remembered")).to_be_visible()
    await expect(tried.get_by_role("listitem").first).to_contain_text("I drink oat milk")
    assert (await client.get("/v1/memories"))["memories"] == []
