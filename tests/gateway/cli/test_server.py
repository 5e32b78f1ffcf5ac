from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.journeys.daemon import KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.bench.standin import StandIn
    from tests.gateway.cli.conftest import CommandLine

ROOT = Path(__file__).parents[3]
HEAVY = ("aiohttp", "pydantic", "yaml", "openai", "anthropic", "tiktoken", "sqlalchemy", "uvloop", "rich", "mcp")


def test_help_loads_nothing_heavy() -> None:
    program = f"import sys, gateway.cli; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_daemon_loads_nothing_large_before_it_is_needed() -> None:
    late = ("openai", "anthropic", "chromadb", "mcp", "starlette")
    program = f"import sys, gateway.daemon; print([name for name in {late} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


class Process:
    """A daemon as a newcomer starts it: a process in an empty folder, with nothing configured."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url


async def start(cwd: Path, *words: str) -> asyncio.subprocess.Process:
    environ = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    command = (sys.executable, "-m", "gateway", "serve", "--port", "0", *words)
    return await asyncio.create_subprocess_exec(*command, cwd=cwd, env=environ, stderr=asyncio.subprocess.PIPE)


async def refused(cwd: Path, *words: str) -> str:
    """What a daemon that does not start says."""
    process = await start(cwd, *words)
    _, told = await process.communicate()
    assert process.returncode == 2
    return told.decode()


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Process]:
    started = await start(tmp_path)
    assert started.stderr is not None
    async for raw in started.stderr:
        event = json.loads(raw)
        if event["event"] == "ready":
            yield Process(started, event["url"])
            break
    if started.returncode is None:
        started.terminate()
        await started.wait()


async def test_an_address_that_is_taken_is_told_in_one_line(process: Process, tmp_path: Path) -> None:
    port = process.url.rpartition(":")[2]
    second = await start(tmp_path, "--port", port, "--data-dir", "other")
    _, told = await second.communicate()
    assert second.returncode == 1
    assert told.decode().splitlines()[-1] == (
        f"Cannot listen on 127.0.0.1:{port}: address already in use. Choose another --port."
    )
    assert "Traceback" not in told.decode()


async def test_a_daemon_starts_answers_and_stops_in_an_empty_folder(
    process: Process, alone: CommandLine, tmp_path: Path
) -> None:
    answer = await alone.run("send", KEY, "Hello! What are you?", "--url", process.url)
    assert "offline" in answer
    assert "Another sessiond" in await refused(tmp_path)
    process.process.terminate()
    assert await process.process.wait() == 0


async def test_an_open_address_without_a_token_is_refused(tmp_path: Path) -> None:
    assert "token" in await refused(tmp_path, "--host", "0.0.0.0")


async def test_check_shows_what_is_effective_and_hides_secrets(alone: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("server: {port: 9}\nmodels: {chat: {provider: openai, model: m, api_key: hidden-key}}\n")
    shown = await alone.run("check", "--config", str(file))
    assert yaml.safe_load(shown)["server"] == {"port": 9}
    assert "hidden-key" not in shown


async def test_check_names_every_problem(alone: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("server: {prot: 9}\nqueue: {cap: 0}\n")
    told = await alone.end("check", "--config", str(file))
    assert told.exit_code == 2
    assert "Did you mean server.port?" in told.stderr
    assert "queue.cap" in told.stderr


async def test_setup_writes_a_private_file_and_tries_the_model(
    alone: CommandLine, standin: StandIn, tmp_path: Path
) -> None:
    file = tmp_path / "s.yaml"
    words = ["--config", str(file), "--provider", "openai", "--base-url", standin.base_url, "--model", "m"]
    assert "The model answers: echo: Are you there?" in await alone.run("setup", *words, "--embedding", "e")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    settings = yaml.safe_load(file.read_text())
    assert settings["roles"] == {"chat": "chat", "embedding": "embedding"}
    assert "is fine" in (await alone.end("check", "--config", str(file))).stderr


async def test_setup_asks_what_no_flag_tells(alone: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    await alone.run("setup", "--config", str(file), "--no-try", typed="anthropic\n\nMY_KEY\n\n")
    assert yaml.safe_load(file.read_text())["models"]["chat"]["api_key_env"] == "MY_KEY"


async def test_setup_keeps_a_file_that_is_there_unless_told(alone: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("server: {port: 9}\n")
    file.chmod(0o644)
    words = ["setup", "--config", str(file), "--provider", "offline"]
    assert (await alone.end(*words)).exit_code == 2
    assert file.read_text() == "server: {port: 9}\n"
    await alone.run(*words, "--force")
    assert "offline" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_setup_says_when_the_model_does_not_answer(alone: CommandLine, standin: StandIn, tmp_path: Path) -> None:
    words = ["--provider", "openai", "--base-url", standin.base_url, "--model", "fault:401"]
    failed = await alone.end("setup", "--config", str(tmp_path / "s.yaml"), *words)
    assert failed.exit_code == 1
    assert "does not answer" in failed.stderr


async def test_doctor_says_what_to_do(alone: CommandLine, tmp_path: Path) -> None:
    told = await alone.end("doctor", "--data-dir", str(tmp_path))
    assert told.exit_code == 0
    assert "sessiond serve" in told.stdout
    file = tmp_path / "c.yaml"
    file.write_text("models: {chat: {provider: openai, model: m, api_key_env: NOT_THERE}}\n")
    broken = await alone.end("doctor", "--config", str(file), "--data-dir", str(tmp_path))
    assert broken.exit_code == 1
    assert "PROBLEM model chat" in broken.stdout


async def test_doctor_looks_at_a_running_daemon(line: CommandLine, tmp_path: Path) -> None:
    assert f"answers at {line.url}" in await line.run("doctor", "--data-dir", str(tmp_path))
