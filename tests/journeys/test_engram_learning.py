"""What Engram's clients send is learnt from by a helper model, behind their requests, once, and told truly."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from engram import AsyncEngramClient, ConversationInput, FetchRetrieval, MessageInput, StringInput

from tests.journeys.daemon import Client, config, running
from tests.journeys.helpers import Helper
from tests.journeys.test_engram import PROJECTS, TOKENS, facts
from tests.memory.leftovers import files_with_text
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from engram import RunStatus


def changes(*given: dict[str, Any]) -> str:
    return json.dumps({"changes": list(given)})


def sentences(question: dict[str, Any]) -> str:
    """Makes a fact of every sentence a user said."""
    said = [(one["n"], part) for one in question["conversation"] if one["who"] == "user" for part in cut(one["text"])]
    topic = next((one["name"] for one in question["topics"] if not one.get("one_summary")), None)
    return changes(*({"op": "add", "text": part, "topic": topic, "from": [n]} for n, part in said))


def cut(text: str) -> list[str]:
    return [f"{part.strip()}." for part in text.split(".") if part.strip()]


@asynccontextmanager
async def shop(
    folder: Path, says: Callable[[dict[str, Any]], str] = sentences
) -> AsyncGenerator[tuple[Client, AsyncEngramClient, Helper]]:
    """A daemon with a helper, and a client of it."""
    models = {"helper": {"provider": "openai", "model": "helper", "base_url": "http://127.0.0.1:9", "api_key": "x"}}
    settings = config(
        models=models,
        roles={"helper": "helper", "chat": "offline"},
        auth={"tokens": TOKENS},
        engram={"projects": PROJECTS},
    )
    helper = Helper(says)
    async with running(folder / "data", settings) as daemon:
        daemon.daemon.parts.models.put(helper)
        async with AsyncEngramClient(base_url=f"{daemon.url}/engram", api_key="eng_shop") as client:
            yield daemon, client, helper


async def ended(client: AsyncEngramClient, given: Any, user: str | None = "alice", **more: Any) -> RunStatus:
    run = await client.memories.add(given, user_id=user, **more)
    assert run.status == "running"
    return await client.runs.wait(run.run_id, interval=0.02, timeout=20)


async def contents(client: AsyncEngramClient, user: str | None = "alice", **more: Any) -> list[str]:
    found = await client.memories.search(query="x", user_id=user, retrieval_config=FetchRetrieval(limit=100), **more)
    return sorted(memory.content for memory in found)


async def test_single_facts_are_taken_from_a_text_and_told(tmp_path: Path) -> None:
    async with shop(tmp_path) as (_, client, helper):
        done = await ended(client, "The user prefers dark mode. The user works in Python.")
        assert (done.status, len(done.memories_created), done.error) == ("completed", 2, None)
        assert await contents(client) == ["The user prefers dark mode.", "The user works in Python."]
        assert {topic["name"] for topic in helper.asked[0]["topics"]} >= {"profile", "preferences"}
        assert (await ended(client, "The user prefers dark mode. The user works in Python.")).memories_created == []
        memory = await client.memories.get(done.memories_created[0].memory_id, user_id="alice")
        assert (memory.topic, memory.user_id) == ("preferences", "alice")


async def test_a_correction_is_told_as_an_update_and_a_retraction_as_a_deletion(tmp_path: Path) -> None:
    said: list[Callable[[dict[str, Any]], str]] = [
        sentences,
        lambda q: changes(
            {"op": "update", "id": q["remembered"][0]["id"], "text": "The user lives in Prague.", "from": [1]}
        ),
        lambda q: changes({"op": "delete", "id": q["remembered"][0]["id"], "from": [1]}),
    ]
    async with shop(tmp_path, lambda question: said.pop(0)(question)) as (_, client, _helper):
        (created,) = (await ended(client, "The user lives in Berlin.")).memories_created
        done = await ended(client, "The user lives in Prague now, not in Berlin.")
        assert [one.memory_id for one in done.memories_updated] == [created.memory_id]
        assert (done.memories_created, done.memories_deleted) == ([], [])
        assert await contents(client) == ["The user lives in Prague."]
        done = await ended(client, "Forget that the user lives in Prague.")
        assert [one.memory_id for one in done.memories_deleted] == [created.memory_id]
        assert await contents(client) == []


async def test_a_conversation_is_learnt_in_its_scope(tmp_path: Path) -> None:
    def summary(question: dict[str, Any]) -> str:
        text = "About " + " and ".join(one["text"].split()[-1] for one in question["conversation"])
        known = [one["id"] for one in question["remembered"] if one["topic"] == "support/summary"]
        if known:
            return changes({"op": "update", "id": known[0], "text": text, "from": [1]})
        return changes({"op": "add", "text": text, "topic": "support/summary", "from": [1]})

    async with shop(tmp_path, summary) as (_, client, helper):
        scope = {"group": "support", "properties": {"conversation_id": "c1"}}
        (created,) = (
            await ended(client, [{"role": "user", "content": "It is about refunds"}], **scope)
        ).memories_created
        other = {**scope, "properties": {"conversation_id": "c2"}}
        assert (
            len((await ended(client, [{"role": "user", "content": "It is about parcels"}], **other)).memories_created)
            == 1
        )
        again = await ended(
            client,
            [{"role": "user", "content": "It is about refunds"}, {"role": "user", "content": "also receipts"}],
            **scope,
        )
        assert [one.memory_id for one in again.memories_updated] == [created.memory_id]
        memory = await client.memories.get(created.memory_id, user_id="alice", group="support")
        assert (memory.topic, memory.properties) == ("summary", {"conversation_id": "c1"})
        assert {topic["name"] for topic in helper.asked[0]["topics"]} == {
            "support/summary",
            "support/facts",
            "support/preferences",
        }
        found = await contents(client, group="support", topics=["summary"], properties={"conversation_id": "c2"})
        assert found == ["About parcels"]


async def test_facts_of_a_conversation_keep_when_it_was(tmp_path: Path) -> None:
    async with shop(tmp_path) as (_, client, helper):
        at = datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC)
        said = [
            MessageInput(role="system", content="Never tell the password."),
            MessageInput(role="user", content="Ana moved to Brno."),
            MessageInput(role="assistant", content="Congratulations!"),
            MessageInput(role="tool", content="weather: rain", tool_call_id="t", name="weather"),
        ]
        await ended(client, ConversationInput(messages=said, created_at=at))
        assert [one["text"] for one in helper.asked[0]["conversation"]] == ["Ana moved to Brno.", "Congratulations!"]
        found = await client.memories.search(query="Brno", user_id="alice")
        assert [(memory.content, memory.created_at) for memory in found] == [
            ("Ana moved to Brno.", "2024-02-03T04:05:06.000Z")
        ]


async def test_what_is_shared_is_learnt_without_a_user(tmp_path: Path) -> None:
    async with shop(tmp_path) as (_, client, helper):
        done = await ended(client, "Refunds need a receipt.", None, group="house")
        assert (done.status, len(done.memories_created), done.user_id) == ("completed", 1, None)
        assert {topic["name"] for topic in helper.asked[0]["topics"]} == {"house/procedures"}
        assert await contents(client, None, group="house") == ["Refunds need a receipt."]
        assert await contents(client, "alice") == []


@pytest.mark.parametrize("answer", ["down", "I have learnt a lot today.", '{"changes": [{"op": "ad'])
async def test_a_helper_that_gives_nothing_usable_fails_the_run(tmp_path: Path, answer: str) -> None:
    async with shop(tmp_path, lambda _: answer) as (_, client, _helper):
        done = await ended(client, "The user prefers dark mode.")
        assert (done.status, done.memories_created) == ("failed", [])
        assert done.error
        assert await contents(client) == []
        run = await client.memories.add(facts(("preferences", "Likes tea.")), user_id="alice")
        assert (run.status, await contents(client)) == ("completed", ["Likes tea."])


async def test_a_helper_that_has_nothing_to_keep_completes_the_run_with_nothing(tmp_path: Path) -> None:
    async with shop(tmp_path, lambda _: changes()) as (_, client, _helper):
        done = await ended(client, "Hello there.")
        assert (done.status, done.memories_created, done.memories_updated) == ("completed", [], [])


async def test_a_secret_is_shown_to_no_helper_and_kept_nowhere(tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "Ab1" * 30
    async with shop(tmp_path) as (_, client, helper):
        helper.going.clear()
        run = await client.memories.add(f"The deploy key is {key}.", user_id="alice")
        assert files_with_text(tmp_path / "data", "deploy key")
        assert files_with_text(tmp_path / "data", key) == []
        helper.going.set()
        await client.runs.wait(run.run_id, interval=0.02)
        assert key not in str(helper.asked)
        assert key not in str(await contents(client))


async def test_all_of_a_long_text_is_shown_to_the_helper(tmp_path: Path) -> None:
    async with shop(tmp_path, lambda _: changes()) as (_, client, helper):
        words = [f"word{n}" for n in range(9000)]
        await ended(client, StringInput(content=[" ".join(words), "and the end"]))
        shown = " ".join(one["text"] for question in helper.asked for one in question["conversation"])
        assert shown.split() == [*words, "and", "the", "end"]
        assert len(helper.asked) > 1


async def test_a_run_that_was_cut_short_is_ended_after_a_restart_and_once(tmp_path: Path) -> None:
    async with shop(tmp_path) as (_, client, helper):
        helper.going.clear()
        runs = [(await client.memories.add(f"Alice likes fruit number {n}.", user_id="alice")).run_id for n in range(3)]
        assert {(await client.runs.get(run)).status for run in runs} == {"running"}
    async with shop(tmp_path) as (_, client, helper):
        statuses = [await client.runs.wait(run, interval=0.02, timeout=20) for run in runs]
        assert [(one.status, len(one.memories_created)) for one in statuses] == [("completed", 1)] * 3
        assert await contents(client) == [f"Alice likes fruit number {n}." for n in range(3)]
        assert len(helper.asked) == 3
    assert not [name for name in files_with_text(tmp_path / "data", '"said"') if name.startswith("state.db")]


async def test_runs_of_one_user_follow_each_other_and_others_do_not_wait(tmp_path: Path) -> None:
    async with shop(tmp_path) as (_, client, helper):
        helper.going.clear()
        first = await client.memories.add("Alice likes apples.", user_id="alice")
        second = await client.memories.add("Alice likes pears.", user_id="alice")
        other = await client.memories.add("Bob likes plums.", user_id="bob")
        async with asyncio.timeout(PATIENCE_S):
            while len(helper.asked) < 2:
                await asyncio.sleep(0.005)
        asked = [question["conversation"][0]["text"] for question in helper.asked]
        assert asked == ["Alice likes apples.", "Bob likes plums."]
        helper.going.set()
        for run in (first, second, other):
            assert (await client.runs.wait(run.run_id, interval=0.02)).status == "completed"
        assert await contents(client, "bob") == ["Bob likes plums."]
