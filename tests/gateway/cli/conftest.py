from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from typer.testing import CliRunner, Result

from gateway.cli import app
from tests.bench.standin import StandIn
from tests.journeys.daemon import Client, config, model_settings, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


class CommandLine:
    """Runs commands beside a daemon, without a terminal."""

    def __init__(self, url: str, cwd: Path) -> None:
        self.url = url
        self.cwd = cwd
        self.environ: dict[str, str | None] = {"SESSIOND_URL": url, "SESSIOND_TOKEN": None, "SESSIOND_CONFIG": None}

    async def end(self, *words: str, typed: str | None = None) -> Result:
        """How a command ended, whatever its exit code."""
        return await asyncio.to_thread(CliRunner().invoke, app, list(words), input=typed, env=self.environ)

    async def run(self, *words: str, typed: str | None = None) -> str:
        """What a command that succeeds prints."""
        result = await self.end(*words, typed=typed)
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture
async def standin() -> AsyncIterator[StandIn]:
    async with StandIn() as model:
        yield model


@pytest.fixture(autouse=True)
def _no_log() -> Iterator[None]:
    """The daemon is in this process: its log would be among what a command prints."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


@pytest.fixture
async def client(tmp_path: Path, standin: StandIn) -> AsyncIterator[Client]:
    settings: dict[str, Any] = model_settings(standin.base_url)
    async with running(tmp_path / "data", config(**settings)) as client:
        yield client


@pytest.fixture
def line(client: Client, tmp_path: Path) -> CommandLine:
    return CommandLine(client.url, tmp_path)


@pytest.fixture
def alone(tmp_path: Path, unused_tcp_port: int) -> CommandLine:
    """No daemon answers."""
    return CommandLine(f"http://127.0.0.1:{unused_tcp_port}", tmp_path)
