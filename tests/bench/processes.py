"""The processes that are measured, each started and stopped by its own id."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

READY_S = 120
POLL_S = 0.002
SETTLED_S = 3.0


class NotReady(RuntimeError):
    """The daemon ended, or did not get ready in time."""


class DaemonProcess:
    """`python -m gateway serve` over a data directory."""

    def __init__(self, data_dir: Path, config: Path) -> None:
        self._command = ["-m", "gateway", "serve", "--config", str(config), "--data-dir", str(data_dir)]
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> float:
        """Seconds from the start of the process until /readyz answers 200."""
        self._port = free_port()
        started = time.perf_counter()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *self._command, "--port", str(self._port), stderr=asyncio.subprocess.DEVNULL
        )
        while time.perf_counter() - started < READY_S:
            if await _is_ready(self._port):
                return time.perf_counter() - started
            if self._process.returncode is not None:
                raise NotReady(f"the daemon ended with {self._process.returncode} at its start")
            await asyncio.sleep(POLL_S)
        raise NotReady(f"the daemon was not ready after {READY_S} s")

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends it; a second time does nothing."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(how)
            await self._process.wait()

    async def resident_bytes(self) -> int:
        """Its memory, once what it loads behind its start is loaded: unchanged for three looks in a row."""
        seen = [resident_bytes(self.pid)]
        deadline = time.perf_counter() + 30
        while time.perf_counter() < deadline:
            await asyncio.sleep(SETTLED_S / 3)
            seen.append(resident_bytes(self.pid))
            if len(seen) > 3 and max(seen[-3:]) - min(seen[-3:]) < 500_000:
                break
        return seen[-1]


@asynccontextmanager
async def daemon(data_dir: Path, config: Path) -> AsyncIterator[DaemonProcess]:
    """A daemon from ready to stopped."""
    process = DaemonProcess(data_dir, config)
    try:
        await process.start()
        yield process
    finally:
        await process.stop()


@asynccontextmanager
async def server(module: str, *arguments: str) -> AsyncIterator[str]:
    """The address a module prints when it listens."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await process.wait()


def write_config(path: Path, model_url: str) -> Path:
    """The settings of every daemon here: the stand-in as its model, no limit on requests, and sessions that stay as
    they were sown (what ends many of them costs is measured by itself)."""
    chat = {"provider": "openai", "base_url": model_url, "model": "chat-model", "api_key": "x", "window": 100_000}
    settings = {
        "models": {"chat": chat},
        "server": {"rate_limit_per_minute": None},
        "sessions": {"reset": {"daily_at": None}},
        "logging": {"level": "warning"},
    }
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


async def _is_ready(port: int) -> bool:
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        line = await reader.readline()
        writer.close()
        return b" 200 " in line
    return False
