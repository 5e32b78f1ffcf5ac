"""A job is added with its next times in sight; a dead delivery is sent again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.browser.conftest import ROOT, TOKENS, fixture
from tests.browser.sample import sample_settings
from tests.journeys.daemon import Client, config, model_settings, running
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import Page

    from tests.bench.standin import StandIn
    from tests.browser.watched import Watch

pytestmark = pytest.mark.browser


@fixture
async def client(tmp_path: Path, standin: StandIn) -> AsyncIterator[Client]:
    settings = config(auth=TOKENS, **model_settings(standin.base_url), **sample_settings())
    async with running(tmp_path / "data", settings) as client:
        client.token = ROOT
        yield client


async def test_a_job_is_added_with_its_next_times_run_paused_and_removed(
    page: Page, client: Client, watch: Watch
) -> None:
    watch.expected = ("422 (Unprocessable Entity)",)
    await page.get_by_role("link", name="Jobs").click()
    await page.get_by_role("heading", name="Add a job").click()
    form = page.locator("form[data-job]")
    await form.get_by_label("Name").fill("morning")
    await form.get_by_label("Cron expression").fill("61 7 * * *")
    await expect(form.locator(".preview")).to_contain_text("61")
    await form.get_by_label("Cron expression").fill("30 7 * * 1-5")
    await expect(form.locator(".preview li")).to_have_count(5)
    await form.get_by_label("What is said").fill("Sum up the news.")
    await form.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("morning")
    await page.get_by_role("button", name="Run now").click()
    await expect(page.get_by_role("status").last).to_contain_text("Started")
    async with asyncio.timeout(PATIENCE_S):
        while (await client.get("/v1/jobs/morning/runs"))["runs"][0]["status"] != "ok":
            await asyncio.sleep(0.02)
    await page.reload()
    await expect(page.get_by_role("table").get_by_text("done")).to_be_visible()
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.on("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="Remove").click()
    await expect(page.get_by_role("link", name="morning")).to_have_count(0)


async def test_a_dead_delivery_is_told_on_the_overview_and_sent_again(page: Page, client: Client) -> None:
    job = {"name": "push", "every": "1h", "message": "hi", "deliver": {"url": "http://127.0.0.1:9/in"}}
    status, content = await client.call("POST", "/v1/jobs", job)
    assert status == 201, content
    await client.call("POST", "/v1/jobs/push/run")
    async with asyncio.timeout(PATIENCE_S):
        while not (dead := (await client.get("/v1/deliveries?status=dead"))["deliveries"]):
            await asyncio.sleep(0.02)
    await page.goto("/console")
    await page.get_by_role("alert").get_by_role("link", name="http://127.0.0.1:9/in").click()
    await page.get_by_role("button", name="Send again").click()
    await expect(page.get_by_role("status").last).to_contain_text("It is sent again.")
    async with asyncio.timeout(PATIENCE_S):
        while (await client.get(f"/v1/deliveries/{dead[0]['id']}"))["ended_at"] in (None, dead[0]["ended_at"]):
            await asyncio.sleep(0.02)


async def test_a_webhook_shows_a_line_that_works(page: Page, client: Client) -> None:
    await page.goto("/console/jobs")
    await page.get_by_role("link", name="deploys").click()
    line = await page.locator("pre.code").inner_text()
    done = await asyncio.create_subprocess_shell(f"{line} -s -o /dev/null -w '%{{http_code}}'", stdout=-1)
    out, _ = await done.communicate()
    assert out == b"202"
