from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import pytest
import yaml

from tests.crash.kills import Victim, failed, free_port, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(300)
async def test_a_daemon_killed_under_load_loses_and_doubles_nothing() -> None:
    figures = await run(kills=6, sessions=16, seed=7)
    print(figures)
    assert figures["acknowledged"] >= 30
    assert not failed(figures), figures


@pytest.mark.timeout(300)
async def test_a_daemon_killed_while_it_commits_a_summary_is_before_it_or_after() -> None:
    figures = await run(kills=5, sessions=3, seed=11, commits=True)
    print(figures)
    assert figures["compactions"] >= 1
    assert not failed(figures), figures


async def test_killed_before_the_index_was_written_a_persons_chat_is_still_theirs(tmp_path: Path) -> None:
    token = {"name": "ana", "token": "ana-secret", "role": "user", "user": "ana"}
    settings = tmp_path / "config.yaml"
    settings.write_text(yaml.safe_dump({"auth": {"tokens": [token]}}), encoding="utf-8")
    victim = Victim(tmp_path / "data", settings, free_port())
    headers = {"Authorization": "Bearer ana-secret"}
    message = {"text": "hello", "request_id": "once"}
    await victim.start()
    async with aiohttp.ClientSession(headers=headers) as client:
        address = f"{victim.url}/v1/sessions/agent:main:web:direct:ana"
        async with client.post(f"{address}/messages?wait=0", json=message) as response:
            assert response.status == 202
            turn = (await response.json())["turn"]
        await victim.kill()
        for index in ("sessions.json", "sessions.journal.jsonl"):
            (tmp_path / "data" / index).unlink(missing_ok=True)
        await victim.start()
        async with client.post(f"{address}/messages", json=message) as response:
            assert response.status == 200
            assert (await response.json())["turn"] == turn
    await victim.kill()
