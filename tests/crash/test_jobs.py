"""A daemon that is killed while a webhook or a job runs, and before its reply is delivered."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from gateway.config import dump_yaml
from gateway.jobs.signatures import sign_standard
from tests.bench.standin import StandIn
from tests.crash.job_kills import failed, run
from tests.crash.kills import Victim
from tests.journeys.daemon import model_settings
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "whsec_" + base64.b64encode(b"killed").decode()


async def ask(victim: Victim, method: str, path: str, **more: Any) -> Any:
    async with aiohttp.ClientSession() as client, client.request(method, victim.url + path, **more) as response:
        content = await response.json(content_type=None)
        assert response.status < 300, content
        return content


async def call_hook(victim: Victim, number: int) -> dict[str, Any]:
    body, at, name = f'{{"id": {number}}}'.encode(), int(time.time()), f"m{number}"
    headers = {
        "webhook-id": name,
        "webhook-timestamp": str(at),
        "webhook-signature": sign_standard(SECRET, name, at, body),
    }
    return await ask(victim, "POST", "/hooks/build", data=body, headers=headers)


async def ended(victim: Victim, path: str) -> list[dict[str, Any]]:
    """All runs, when none is open any more."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            runs = (await ask(victim, "GET", path))["runs"]
            if runs and all(run["status"] not in ("waiting", "running") for run in runs):
                return runs
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(("missed", "expected"), [("once", ["ok", "interrupted"]), ("skip", ["interrupted"])])
async def test_killed_while_it_runs(tmp_path: Path, unused_tcp_port: int, missed: str, expected: list[str]) -> None:
    """An acknowledged call runs to its end; a job follows its rule; every delivery arrives, under one id."""
    got: list[str] = []

    async def take(request: web.Request) -> web.Response:
        got.append(request.headers["webhook-id"])
        return web.Response()

    app = web.Application()
    app.router.add_post("/", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    target = {"url": f"http://127.0.0.1:{runner.addresses[0][1]}/"}
    async with StandIn() as model:
        settings = {
            **model_settings(model.base_url),
            "hooks": [{"name": "build", "secret": SECRET, "template": "{{ body.id }}", "deliver": target}],
            "deliver": {"allow": ["127.0.0.1"]},
        }
        path = tmp_path / "config.yaml"
        path.write_text(dump_yaml(settings))
        victim = Victim(tmp_path / "data", path, unused_tcp_port)
        await victim.start()
        model.script("hang", "hang")
        job = {"name": "job", "schedule": "0 0 1 1 *", "message": "x", "missed": missed, "deliver": target}
        await ask(victim, "POST", "/v1/jobs", json=job)
        taken = await call_hook(victim, 1)
        await ask(victim, "POST", "/v1/jobs/job/run")
        async with asyncio.timeout(PATIENCE_S):
            while len(model.requests) < 2:
                await asyncio.sleep(0.02)
        await victim.kill()
        await victim.start()
        hooks = await ended(victim, "/v1/hooks/build/runs")
        assert [(run["id"], run["status"]) for run in hooks] == [(taken["run"], "ok")]
        assert await call_hook(victim, 1) == taken
        jobs = await ended(victim, "/v1/jobs/job/runs")
        assert [run["status"] for run in jobs] == expected
        async with asyncio.timeout(PATIENCE_S):
            while len(set(got)) < expected.count("ok") + 1:
                await asyncio.sleep(0.02)
        said = (await ask(victim, "GET", f"/v1/sessions/{taken['key']}/transcript"))["entries"]
        assert [entry["type"] for entry in said].count("user") == 1
        assert [entry["type"] for entry in said].count("assistant") == 1
        await victim.stop()
    await runner.cleanup()


@pytest.mark.timeout(300)
async def test_killed_again_and_again_no_call_and_no_due_time_is_lost_or_doubled_and_every_reply_is_delivered() -> None:
    figures = await run(kills=4, seed=3)
    print(figures)
    assert figures["calls"] >= 10
    assert figures["delivered"] >= figures["calls"] - figures["given_up"]
    assert not failed(figures), figures


async def test_killed_between_the_end_of_a_run_and_its_delivery_it_is_delivered_under_the_same_id(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    """The receiver has it in its hands when the daemon dies, and does not answer: it comes again, and only it."""
    got: list[str] = []
    answers = asyncio.Event()

    async def take(request: web.Request) -> web.Response:
        got.append(request.headers["webhook-id"])
        await answers.wait()
        return web.Response()

    app = web.Application()
    app.router.add_post("/", take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    target = {"url": f"http://127.0.0.1:{runner.addresses[0][1]}/"}
    settings = {
        "hooks": [{"name": "build", "secret": SECRET, "template": "{{ body.id }}", "deliver": target}],
        "deliver": {"allow": ["127.0.0.1"]},
    }
    path = tmp_path / "config.yaml"
    path.write_text(dump_yaml(settings))
    victim = Victim(tmp_path / "data", path, unused_tcp_port)
    await victim.start()
    taken = await call_hook(victim, 1)
    async with asyncio.timeout(PATIENCE_S):
        while not got:
            await asyncio.sleep(0.01)
    await victim.kill()
    answers.set()
    await victim.start()
    async with asyncio.timeout(PATIENCE_S):
        while not (await ask(victim, "GET", "/v1/deliveries?status=delivered"))["deliveries"]:
            await asyncio.sleep(0.05)
    (run_told,) = await ended(victim, "/v1/hooks/build/runs")
    assert (run_told["id"], run_told["status"], run_told["delivery"]) == (taken["run"], "ok", "delivered")
    assert len(got) == 2
    assert len(set(got)) == 1
    await victim.stop()
    await runner.cleanup()
