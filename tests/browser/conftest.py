from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.bench.standin import Pace, StandIn
from tests.browser.sample import sample_models
from tests.browser.watched import CHROMIUM, Watch, chromium, sign_in, visitor
from tests.journeys.daemon import Client, config, running
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, BrowserContext, Page

HERE = Path(__file__).parent
ROOT = "root-token-of-the-tests"
TOKENS = {"tokens": [{"name": "root", "token": ROOT, "role": "admin"}]}

expect.set_options(timeout=PATIENCE_S * 1000)

fixture = pytest_asyncio.fixture(loop_scope="package")
"""In the loop that the browser lives in, as the tests are."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.asyncio(loop_scope="package"), append=False)


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def browser() -> AsyncIterator[Browser]:
    """One for all tests, whose windows share nothing: starting it takes as long as many a test."""
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is missing; on Debian: apt-get install chromium")
    async with chromium() as started:
        yield started


@fixture
async def standin() -> AsyncIterator[StandIn]:
    """Writes word by word, so that what is being written can be seen."""
    async with StandIn(Pace(token_ms=25)) as model:
        yield model


@fixture
async def client(tmp_path: Path, standin: StandIn) -> AsyncIterator[Client]:
    """A daemon with tokens, memory by keywords and vectors, and the stand-in as its model."""
    models = sample_models(standin.base_url)
    async with running(tmp_path / "data", config(auth=TOKENS, **models)) as client:
        client.token = ROOT
        yield client


@fixture
async def watch(client: Client) -> AsyncIterator[Watch]:
    """Every test of the console ends with this: nothing complained, nothing left the host."""
    watch = Watch(client.url)
    yield watch
    assert watch.complaints == []


@fixture
async def visit(browser: Browser, watch: Watch) -> AsyncIterator[BrowserContext]:
    context = await visitor(browser, watch)
    yield context
    await context.close()


@fixture
async def page(visit: BrowserContext) -> Page:
    """A page that is signed in."""
    page = await visit.new_page()
    await sign_in(page, ROOT)
    return page
