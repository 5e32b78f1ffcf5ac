from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from tests.journeys.daemon import Client, config, model_settings, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.bench.standin import StandIn
    from tests.gateway.cli.conftest import CommandLine

HOOK = {"name": "build", "secret": "whsec_c2VjcmV0", "template": "Build {{ body.id }} failed"}


@pytest.fixture
async def client(tmp_path: Path, standin: StandIn) -> AsyncIterator[Client]:
    settings = model_settings(standin.base_url)
    async with running(tmp_path / "data", config(hooks=[HOOK], **settings)) as client:
        yield client


async def test_a_job_from_its_beginning_to_its_end(line: CommandLine, client: Client) -> None:
    added = await line.run("jobs", "add", "brief", "What is new?", "--cron", "0 8 * * mon-fri", "--tz", "Europe/Prague")
    assert added.count("T08:00:00") == 5
    assert "brief" in await line.run("jobs", "list")
    run = (await line.run("jobs", "run", "brief")).strip()
    await client.daemon.parts.jobs.runs.ended(run)
    runs = await line.run("jobs", "runs", "brief")
    assert f"ok (manual) {run}" in runs
    assert "is paused" in await line.run("jobs", "pause", "brief")
    assert "next: paused" in await line.run("jobs", "show", "brief")
    assert "next 20" in await line.run("jobs", "resume", "brief")
    await line.run("jobs", "remove", "brief")
    assert "brief" not in await line.run("jobs", "list")


async def test_a_job_that_cannot_be_is_refused_with_what_to_do(line: CommandLine) -> None:
    result = await line.end("jobs", "add", "brief", "x", "--cron", "0 8 * *")
    assert result.exit_code == 4
    assert "five" in result.output


async def test_a_preview_needs_no_daemon_and_says_what_daylight_saving_does(alone: CommandLine) -> None:
    words = ["30 2 * * *", "--tz", "Europe/Prague", "--from", "2026-10-24", "--count", "5"]
    shown = await alone.run("jobs", "preview", *words)
    assert [text[4:23] for text in shown.splitlines()[:5]] == [f"2026-10-{day} 02:30:00" for day in range(24, 29)]
    assert "the clock shows 02:00 to 03:00 on 2026-10-25 in Europe/Prague twice" in shown
    refused = await alone.end("jobs", "preview", "soon")
    assert (refused.exit_code, "Value error" in refused.output) == (2, False)


async def test_the_printed_call_of_a_webhook_is_taken(line: CommandLine, client: Client) -> None:
    words = shlex.split(await line.run("hooks", "show", "build"))
    assert words[0] == "curl"
    headers = dict(words[n + 1].split(": ", 1) for n, word in enumerate(words) if word == "-H")
    body = words[words.index("-d") + 1].encode()
    assert words[-1] == f"{client.url}/hooks/build"
    status, _ = await client.call("POST", "/hooks/build", body, headers)
    assert status == 202
    assert "build" in await line.run("hooks", "list")
    assert "ID" in await line.run("deliveries", "list")
    assert (await line.end("deliveries", "resend")).exit_code == 2
