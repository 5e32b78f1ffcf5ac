"""Processes a benchmark measures: the stand-in, the bare proxy, the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import yaml

from tests.crash.kills import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

START_S = 60
DEVNULL = asyncio.subprocess.DEVNULL


@dataclass(frozen=True, slots=True)
class Running:
    """A process that answers at `url`, and how long it took until it did."""

    url: str
    pid: int
    ready_s: float

    def rss_mib(self) -> float:
        """Resident memory now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / 2**20


@contextlib.asynccontextmanager
async def process(*arguments: str, port: int, path: str) -> AsyncIterator[Running]:
    """A Python process, from its start until `path` answers, to its end."""
    started = time.perf_counter()
    child = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=DEVNULL, stderr=DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        async with aiohttp.ClientSession() as client:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with client.get(url + path) as response:
                        if response.status < 500:
                            break
                if child.returncode is not None or time.perf_counter() - started > START_S:
                    raise RuntimeError(f"{arguments} did not start")
                await asyncio.sleep(0.005)
        yield Running(url, child.pid, time.perf_counter() - started)
    finally:
        if child.returncode is None:
            child.terminate()
        await child.wait()


def standin(first_token_ms: float, tokens: int, token_ms: float = 0) -> contextlib.AbstractAsyncContextManager[Running]:
    port = free_port()
    pace = ("--first-token-ms", str(first_token_ms), "--tokens", str(tokens), "--token-ms", str(token_ms))
    return process("-m", "tests.bench.standin", "--port", str(port), *pace, port=port, path="/v1/models")


def proxy(upstream: Running) -> contextlib.AbstractAsyncContextManager[Running]:
    port = free_port()
    target = f"{upstream.url}/v1/chat/completions"
    return process("-m", "tests.bench.proxy", "--port", str(port), "--upstream", target, port=port, path="/nothing")


def daemon(
    folder: Path, model_url: str | None, *, name: str = "data"
) -> contextlib.AbstractAsyncContextManager[Running]:
    """A daemon on `folder`/`name`; with the offline model when no model is given."""
    settings: dict[str, object] = {"server": {"rate_limit_per_minute": None}, "logging": {"level": "warning"}}
    if model_url is not None:
        chat = {"provider": "openai", "base_url": f"{model_url}/v1", "model": "m", "api_key": "x", "window": 1_000_000}
        settings["models"] = {"chat": chat}
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(settings))
    port = free_port()
    where = ("--config", str(config), "--data-dir", str(folder / name), "--port", str(port))
    return process("-m", "gateway", "serve", *where, port=port, path="/readyz")
