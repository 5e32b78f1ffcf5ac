from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.bench.standin import Pace, StandIn
from tests.browser.sample import sample_models
from tests.browser.watched import CHROMIUM, Watch, chromium, sign_in, visitor
from tests.journeys.daemon import Client, config, running
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import Browser, BrowserContext, Page

ROOT = "root-token-of-the-tests"
TOKENS = {"tokens": [{"name": "root", "token": ROOT, "role": "admin"}]}

expect.set_options(timeout=PATIENCE_S * 1000)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is missing; on Debian: apt-get install chromium")
    async with chromium() as started:
        yield started


@pytest.fixture
async def standin() -> AsyncIterator[StandIn]:
    """Writes word by word, so that what is being written can be seen."""
    async with StandIn(Pace(token_ms=25)) as model:
        yield model


@pytest.fixture
async def client(tmp_path: Path, standin: StandIn) -> AsyncIterator[Client]:
    """A daemon with tokens, memory by keywords and vectors, and the stand-in as its model."""
    models = sample_models(standin.base_url)
    async with running(tmp_path / "data", config(auth=TOKENS, **models)) as client:
        client.token = ROOT
        yield client


@pytest.fixture
async def watch(client: Client) -> AsyncIterator[Watch]:
    """Every test of the console ends with this: nothing complained, nothing left the host."""
    watch = Watch(client.url)
    yield watch
    assert watch.complaints == []


@pytest.fixture
async def visit(browser: Browser, watch: Watch) -> AsyncIterator[BrowserContext]:
    context = await visitor(browser, watch)
    yield context
    await context.close()


@pytest.fixture
async def page(visit: BrowserContext) -> Page:
    """A page that is signed in."""
    page = await visit.new_page()
    await sign_in(page, ROOT)
    return page
