from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Any

import pytest

from sessions.files import FaultyFiles, OsFiles, StorageFull
from tests.bench.standin import StandIn
from tests.journeys.daemon import KEY, Client, config, model_settings, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

WINDOW = 4000
SUMMARY = (
    '{"topics": ["bees"], "decisions": [], "user_context": [], "constraints": [], "facts": ["the hive is green"],'
    ' "open_asks": [], "superseded": [], "language": "en"}'
)


def small(standin: StandIn, **more: Any) -> dict[str, Any]:
    settings = model_settings(standin.base_url, window=WINDOW, max_output=500)
    return {**settings, "roles": {"chat": "chat", "summary": "offline"}, **more}


@pytest.fixture
async def client(tmp_path: Path, standin: StandIn) -> AsyncIterator[Client]:
    async with running(tmp_path / "data", config(**small(standin))) as client:
        yield client


def words(number: int, size: int = 60) -> str:
    return f"Message {number} about the green hive. " + " ".join(f"w{number}x{n}" for n in range(size))


async def settled(client: Client) -> None:
    """Waits for the compaction jobs that run."""
    jobs = list(client.daemon.parts.compactor._jobs.values())
    if jobs:
        await asyncio.wait(jobs)


async def test_a_long_conversation_is_compacted_and_goes_on(client: Client, standin: StandIn) -> None:
    said: list[str] = []
    for number in range(60):
        said.append(words(number))
        assert (await client.say(said[-1]))["state"] == "done"
        await settled(client)
    session = await client.get(f"/v1/sessions/{KEY}")
    assert 3 <= session["compactions"] <= 15
    sizes = [sum(len(str(m["content"])) for m in r.body["messages"]) // 3 for r in standin.requests]
    assert max(sizes) < WINDOW * 1.5
    entries = (await client.get(f"/v1/sessions/{KEY}/transcript?limit=1000"))["entries"]
    assert [e["text"] for e in entries if e["type"] == "user"] == said
    last = standin.requests[-1].body["messages"]
    assert last[-1]["content"] == said[-1]
    assert "Reference, not a request" in last[1]["content"]


async def test_what_a_compaction_frees_is_told_in_the_models_tokens(client: Client) -> None:
    for number in range(13):
        await client.say(words(number))
    before = (await client.get(f"/v1/sessions/{KEY}"))["context"]["tokens"]
    told: list[dict[str, Any]] = []
    client.daemon.parts.compactor.listeners.append(lambda _, fields: told.append(fields))
    await client.call("POST", f"/v1/sessions/{KEY}/compact", {})
    assert abs(told[-1]["before"] - before) < 20
    await client.say("go on")
    after = (await client.get(f"/v1/sessions/{KEY}"))["context"]["tokens"]
    assert 0.6 * after < told[-1]["after"] < 1.4 * after


async def test_every_message_of_the_file_is_in_the_summary_or_in_the_prompt(client: Client, standin: StandIn) -> None:
    for number in range(40):
        await client.say(words(number))
        await settled(client)
    entries = (await client.get(f"/v1/sessions/{KEY}/transcript?limit=1000"))["entries"]
    covers = [e["covers"] for e in entries if e["type"] == "summary"]
    anchor = max(c["to"] for c in covers)
    shown = {m["content"] for m in standin.requests[-1].body["messages"]}
    missing = [e["seq"] for e in entries if e["type"] == "user" and e["seq"] > anchor and e["text"] not in shown]
    assert missing == []


async def test_a_good_summary_of_a_model_is_used_and_a_bad_one_is_not(tmp_path: Path, standin: StandIn) -> None:
    async with StandIn() as writer:
        summary = {"provider": "openai", "base_url": writer.base_url, "model": "summary-model", "api_key": "x"}
        settings = small(standin)
        settings["models"]["summary"] = {**summary, "window": 32_000}
        settings["roles"]["summary"] = "summary"
        async with running(tmp_path, config(**settings)) as client:
            for number in range(12):
                await client.say(words(number, 20))
            status, told = await client.call("POST", f"/v1/sessions/{KEY}/compact", {"instructions": "the hive"})
            assert status == 200
            assert "failed" in told["outcome"], told
            assert told["generation"] == 1
            asked = writer.requests[-1].body["messages"][-1]["content"]
            assert "the hive" in asked
            assert "was not accepted" in asked
            failed = [e for e in await client.transcript() if e["type"] == "compaction_failed"]
            assert failed[0]["failures"] == 1
            assert (await client.say("still there?"))["state"] == "done"


async def test_messages_that_arrive_while_a_summary_is_written_are_all_there(tmp_path: Path, standin: StandIn) -> None:
    async with StandIn() as writer:
        summary = {"provider": "openai", "base_url": writer.base_url, "model": "summary-model", "api_key": "x"}
        settings = small(standin)
        settings["models"]["summary"] = {**summary, "window": 32_000}
        settings["roles"]["summary"] = "summary"
        writer.script("slow", "slow")
        async with running(tmp_path, config(**settings)) as client:
            for number in range(12):
                await client.say(words(number, 20))
            job = asyncio.create_task(client.call("POST", f"/v1/sessions/{KEY}/compact", {}))
            late = [await client.say(f"meanwhile {number}") for number in range(3)]
            await job
            assert all(turn["state"] == "done" for turn in late)
            texts = await client.texts()
            assert [t for t in texts if t.startswith("meanwhile")] == [f"meanwhile {n}" for n in range(3)]


async def test_a_summary_that_hangs_is_waited_for_once(tmp_path: Path, standin: StandIn) -> None:
    async with StandIn() as writer:
        summary = {"provider": "openai", "base_url": writer.base_url, "model": "fault:hang", "api_key": "x"}
        settings = small(standin, compaction={"wait_s": 0.05})
        settings["models"]["summary"] = {**summary, "window": 32_000}
        settings["roles"]["summary"] = "summary"
        async with running(tmp_path, config(**settings)) as client:
            for number in range(40):
                assert (await client.say(words(number)))["state"] == "done"
            assert len(writer.requests) == 1, "the next attempt is a minute later"
            session = await client.get(f"/v1/sessions/{KEY}")
            assert session["compactions"] >= 2
            assert session["compaction"]["failures"] == 1
            assert "by rules" in session["compaction"]["error"]
            assert not client.daemon.parts.compactor._jobs


async def test_a_provider_that_finds_the_prompt_too_long_gets_a_shorter_one(client: Client, standin: StandIn) -> None:
    for number in range(6):
        await client.say(words(number, 20))
    standin.script("overflow")
    answer = await client.say("and this one")
    assert answer["state"] == "done"
    assert (await client.get(f"/v1/sessions/{KEY}"))["generation"] == 2
    assert standin.requests[-1].body["messages"][-1]["content"] == "and this one"


async def test_the_command_answers_at_once_and_says_when_there_is_nothing_to_gain(client: Client) -> None:
    await client.say("short")
    assert "too little" in (await client.say("/compact"))["text"]
    for number in range(15):
        await client.say(words(number, 20))
    assert "background" in (await client.say("/compact"))["text"]
    await settled(client)
    session = await client.get(f"/v1/sessions/{KEY}")
    assert session["compactions"] == 1
    again = (await client.say("/compact"))["text"]
    assert "Nothing has been said" in again
    now = await client.get(f"/v1/sessions/{KEY}")
    assert (now["compactions"], now["compaction"]["failures"], now["compaction"]["retry_at"]) == (1, 0, None)
    assert not [e for e in await client.transcript() if e["type"] == "compaction_failed"]


async def test_a_turn_of_an_earlier_generation_is_still_found(client: Client) -> None:
    first = await client.say("the very first")
    for number in range(15):
        await client.say(words(number, 20))
    await client.call("POST", f"/v1/sessions/{KEY}/compact", {})
    client.daemon.parts.turns._lanes.forget(first["session"])
    again = await client.get(f"/v1/turns/{first['turn']}")
    assert (again["state"], again["text"]) == ("done", first["text"])


async def test_a_full_disk_at_the_commit_leaves_the_conversation_as_it_was(tmp_path: Path, standin: StandIn) -> None:
    files = FaultyFiles()
    async with running(tmp_path, config(**small(standin)), files=files) as client:
        for number in range(12):
            await client.say(words(number, 20))
        files.fail("write", errno.ENOSPC)
        status, told = await client.call("POST", f"/v1/sessions/{KEY}/compact", {})
        assert status == 200
        assert "could not be stored" in told["outcome"]
        files.heal()
        assert (await client.say("go on"))["state"] == "done"
        assert (await client.get(f"/v1/sessions/{KEY}"))["generation"] == 1


async def test_a_request_id_is_known_after_compactions_and_a_restart(tmp_path: Path, standin: StandIn) -> None:
    settings = config(**small(standin))
    async with running(tmp_path, settings) as client:
        first = await client.say(words(0), request_id="the-first")
        for number in range(1, 30):
            await client.say(words(number), request_id=f"no-{number}")
            await settled(client)
        assert (await client.get(f"/v1/sessions/{KEY}"))["generation"] > 2
    calls = len(standin.requests)
    async with running(tmp_path, settings) as client:
        again = await client.say(words(0), request_id="the-first")
        assert (again["turn"], again["text"]) == (first["turn"], first["text"])
        status, told = await client.call(
            "POST", f"/v1/sessions/{KEY}/messages", {"text": "another", "request_id": "no-3"}
        )
        assert (status, told["title"]) == (409, "Request id used before")
        assert len(standin.requests) == calls
        new = await client.say("something new", request_id="new")
        assert new["turn"] != first["turn"]
        entries = (await client.get(f"/v1/sessions/{KEY}/transcript?limit=1000"))["entries"]
        assert [e["text"] for e in entries if e["type"] == "user"].count(words(0)) == 1
        await client.say("next", key=KEY)
        await client.say("/new")
        assert (await client.say(words(0), request_id="the-first"))["turn"] == first["turn"]


class RefusesOutcome(OsFiles):
    """A disk that is full at the moment when a transcript is told where the session goes on."""

    refused = 0

    def append(self, path: Path, payload: bytes, *, expected_size: int, sync: bool) -> int:
        if b'"type":"compaction"' in payload and not self.refused:
            self.refused += 1
            raise StorageFull("no room")
        return super().append(path, payload, expected_size=expected_size, sync=sync)


class RefusesNewFile(OsFiles):
    """A folder in which nothing new can be made, as without inodes."""

    refused = 0

    def create(self, path: Path, payload: bytes, *, sync: bool) -> None:
        if path.name.endswith(".2.jsonl"):
            self.refused += 1
            raise StorageFull("no inode")
        super().create(path, payload, sync=sync)


@pytest.mark.parametrize("kind", [RefusesOutcome, RefusesNewFile])
async def test_a_commit_the_disk_refuses_costs_one_summary_and_no_reply(
    tmp_path: Path, standin: StandIn, kind: type[RefusesOutcome | RefusesNewFile]
) -> None:
    async with StandIn() as writer:
        writer.says = lambda _: SUMMARY
        settings = small(standin)
        summary = {"provider": "openai", "base_url": writer.base_url, "model": "summary-model", "api_key": "x"}
        settings["models"]["summary"] = {**summary, "window": 32_000}
        settings["roles"]["summary"] = "summary"
        files = kind()
        async with running(tmp_path, config(**settings), files=files) as client:
            for number in range(14):
                assert (await client.say(words(number)))["state"] == "done"
                await settled(client)
            session = await client.get(f"/v1/sessions/{KEY}")
            assert files.refused
            assert len(writer.requests) == 1, "the next attempt is a minute later"
            assert "could not be stored" in session["compaction"]["error"]
            assert session["compaction"]["failures"] == 1
            assert session["generation"] == (2 if kind is RefusesOutcome else 1)
