"""Passwords and keys in addresses: no page, no answer, no file of others and no line of the log shows one."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.bench.standin import StandIn
from tests.journeys.daemon import config, model_settings, running
from tests.patience import until_equal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[2]
WORD = "p4ss"
KEY = "agent:main:web:direct:ana"
PAGES = ("", "/sessions", f"/sessions/{KEY}", "/memory", "/memory/topics", "/jobs", "/usage", "/settings")
ENVIRON = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}


def settings(port: int) -> dict[str, Any]:
    """Every address that can be configured, each with a secret in it; nobody listens there."""
    at = f"127.0.0.1:{port}"
    target = {"url": f"http://{at}/services/T00/{WORD}XXXXXXXXXXXXXXXX9/in?token={WORD}&{WORD}"}
    model = {"provider": "openai", "model": "m", "base_url": f"http://ana:{WORD}@{at}/v1", "api_key": WORD}
    job = {"name": "morning", "schedule": "0 7 * * *", "message": "Good morning", "deliver": target, "model": "offline"}
    return {
        "models": {"chat": model, "vectors": model},
        "roles": {"chat": "chat", "embedding": "vectors"},
        "memory": {"index": {"url": f"http://ana:{WORD}@{at}"}},
        "jobs": {"scheduled": [job], "spread_s": 0},
        "hooks": [{"name": "build", "secret": "whsec_c2VjcmV0IG9mIHRoaXMgdGVzdCBpcyBsb25n", "deliver": target}],
        "deliver": {"sessions": {"agent:main:web": target}},
        "auth": {"tokens": []},
    }


class Daemon:
    """One of its own process, so that its whole log can be read."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, session: aiohttp.ClientSession) -> None:
        self.process = process
        self.url = url
        self.log = b""
        self._session = session

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        async with self._session.request(method, f"{self.url}{path}", json=body) as answer:
            return answer.status, await answer.read()

    async def read(self, path: str) -> Any:
        return json.loads((await self.call("GET", path))[1])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration, and a port where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path / "sessiond.yaml"
    file.write_text(json.dumps(settings(port)))
    return file


@pytest.fixture
async def daemon(file: Path) -> AsyncIterator[Daemon]:
    command = (sys.executable, "-m", "gateway", "serve", "--port", "0", "--config", str(file))
    process = await asyncio.create_subprocess_exec(
        *command, cwd=file.parent, env=ENVIRON, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    log = b""
    async for raw in process.stderr:
        log += raw
        if b'"event": "ready"' in raw:
            break
    async with aiohttp.ClientSession() as session:
        daemon = Daemon(process, json.loads(log.splitlines()[-1])["url"], session)
        daemon.log = log
        yield daemon
    if process.returncode is None:
        process.kill()
        await process.wait()


async def test_no_page_answer_or_line_of_the_log_shows_a_password_of_an_address(daemon: Daemon) -> None:
    seen = [await daemon.call("POST", f"/v1/sessions/{KEY}/messages", {"text": "hi"})]
    assert b"cannot be reached" in seen[0][1]
    seen.append(await daemon.call("POST", "/v1/memories", {"text": "Ana keeps bees."}))
    seen.append(await daemon.call("POST", "/v1/jobs/morning/run"))

    async def deliveries() -> set[str]:
        return {one["status"] for one in (await daemon.read("/v1/deliveries"))["deliveries"]}

    await until_equal(deliveries, {"dead"})
    described = await daemon.read("/openapi.json")
    routes = [path for path, methods in described["paths"].items() if "get" in methods and path != "/v1/events"]
    filled = [path.replace("{key}", KEY).replace("{id}", "morning").replace("{name}", "build") for path in routes]
    # a stream of events has no end
    paths = [path for path in filled if not path.endswith("/events")] + [f"/console{page}" for page in PAGES]
    job = (await daemon.read("/v1/jobs/morning"))["id"]
    paths += [f"/console/jobs/{job}", "/console/hooks/build", "/console/search?q=bees"]
    for path in paths:
        seen.append(await daemon.call("GET", path))
        assert WORD.encode() not in seen[-1][1], path
    assert all(WORD.encode() not in content for _, content in seen)
    assert sum(status == 200 for status, _ in seen) > 30
    daemon.process.terminate()
    _, rest = await daemon.process.communicate()
    log = daemon.log + rest
    assert b"turn.model_error" in log
    assert WORD.encode() not in log


def test_neither_check_nor_doctor_nor_what_they_refuse_shows_one(file: Path) -> None:
    def said(*words: str) -> str:
        command = [sys.executable, "-m", "gateway", *words, "--config", str(file)]
        done = subprocess.run(command, cwd=file.parent, env=ENVIRON, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    shown = said("check")
    assert "http://***@127.0.0.1" in shown
    assert WORD not in shown
    assert WORD not in said("doctor")
    bad = {"provider": "openai", "model": "m", "base_url": f"https://ana:{WORD}/x@host"}
    allow = [f"https://ana:{WORD}@host"]
    file.write_text(json.dumps({"models": {"chat": bad}, "memory": {"index": {"url": f"ana:{WORD}@host"}}}))
    assert WORD not in said("check")
    file.write_text(json.dumps({"deliver": {"allow": allow}}))
    refused = said("check")
    assert "deliver.allow" in refused
    assert WORD not in refused


async def test_a_model_is_asked_with_the_user_and_password_of_its_address(tmp_path: Path) -> None:
    async with StandIn() as model:
        url = model.base_url.replace("://", f"://ana:{WORD}@")
        async with running(tmp_path / "data", config(**model_settings(url))) as client:
            await client.say("hi")
        assert model.requests[-1].headers["Authorization"] == f"Basic {base64.b64encode(b'ana:p4ss').decode()}"
