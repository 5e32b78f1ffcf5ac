from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.gateway.cli.conftest import CommandLine
from tests.journeys.daemon import config, running
from tests.journeys.helpers import Helper
from tests.journeys.test_learning import learnt
from tests.journeys.test_memory_runs import ended

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tests.journeys.daemon import Client

HELPED: dict[str, Any] = {
    "models": {"helper": {"provider": "openai", "model": "helper", "base_url": "http://127.0.0.1:9"}},
    "roles": {"helper": "helper", "chat": "offline"},
    "sessions": {"identities": {"ana": ["web:ana"]}},
}


def drinks(question: dict[str, Any]) -> str:
    """Takes every drink that is mentioned."""
    told = [one for one in question["conversation"] if one["text"].startswith("I drink")]
    return json.dumps({"changes": [{"op": "add", "text": f"Ana: {one['text']}", "from": [one["n"]]} for one in told]})


@pytest.fixture
async def helped(tmp_path: Path) -> AsyncGenerator[tuple[CommandLine, Client]]:
    async with running(tmp_path / "data", config(**HELPED)) as client:
        client.daemon.parts.models.put(Helper(drinks))
        yield CommandLine(client.url, tmp_path), client


async def test_a_description_is_tried_out_from_the_command_line(helped: tuple[CommandLine, Client]) -> None:
    line, _ = helped
    shown = await line.run("memory", "try-topic", "What Ana drinks.", "hello", "I drink tea")
    assert "Ana: I drink tea" in shown
    told = json.loads(await line.run("memory", "try-topic", "Drinks.", "--json", typed="hello\nI drink milk\n"))
    assert told["memories"] == [{"text": "Ana: I drink milk", "importance": None, "sentences": [2]}]
    assert "Ana" not in await line.run("memory", "list", "--user", "ana")
    assert (await line.end("memory", "try-topic", "Drinks.", typed="")).exit_code == 2


async def test_what_was_learnt_is_listed_and_taken_back(helped: tuple[CommandLine, Client]) -> None:
    line, client = helped
    await line.run("memory", "settings", "learn.after_reply", "true", "--user", "ana")
    await client.say("I drink tea")
    await learnt(client)
    assert "reply" in await line.run("memory", "learned", "--user", "ana")
    found = json.loads(await line.run("memory", "learned", "--user", "ana", "--json"))
    assert [(run["state"], len(run["created"])) for run in found["runs"]] == [("done", 1)]
    memory = found["runs"][0]["created"][0]
    await line.run("memory", "undo", memory)
    assert "I drink tea" not in await line.run("memory", "list", "--user", "ana")


async def test_the_list_of_jobs_says_why_one_failed(helped: tuple[CommandLine, Client]) -> None:
    line, client = helped
    client.daemon.parts.models.put(Helper(lambda _: "nonsense"))
    await line.run("memory", "add", "Ana drinks tea", "--user", "ana", "--topic", "decisions")
    run = (await line.run("memory", "jobs", "start", "recategorize", "--all", "--yes", "--user", "ana")).split()[0]
    assert "no JSON" in (await ended(client, "", {"id": run}))["problem"]
    header, listed = (await line.run("memory", "jobs", "list", "--user", "ana")).splitlines()
    assert header.endswith("PROBLEM")
    assert "no JSON" in listed


async def test_without_a_helper_the_command_says_what_to_do(line: CommandLine) -> None:
    refused = await line.end("memory", "try-topic", "What Ana drinks.", "I drink tea")
    assert (refused.exit_code, "roles.helper" in refused.stderr) == (4, True)
    assert "roles.helper" in (await line.end("memory", "learned")).stderr
    refused = await line.end("memory", "jobs", "start", "recategorize")
    assert (refused.exit_code, "roles.helper" in refused.stderr) == (4, True)
