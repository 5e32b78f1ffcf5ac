"""Every memory tool, called by a scripted model over a whole daemon; and what a conversation may not reach."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.bench.standin import StandIn
from tests.journeys.daemon import KEY, Client, config, model_settings, running
from tests.journeys.test_recall import TOKENS, remember, settings
from tests.memory.leftovers import files_with_text
from tests.patience import until_equal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ANA = TOKENS[0]["token"]
BRIDGE: dict[str, Any] = {"name": "bridge", "token": "bridge-token-1234567890", "role": "frontend"}


async def use(client: Client, tool: str, key: str = KEY, /, *, sender: str | None = None, **arguments: Any) -> Any:
    """What the tool said to the model: parsed, where it is JSON."""
    said = {} if sender is None else {"sender": sender}
    answer = await client.say(f"call:{tool} {json.dumps(arguments)}", key, **said)
    results = [entry for entry in answer["entries"] if entry["type"] == "tool_result"]
    assert results, tool
    text = results[-1]["text"]
    return json.loads(text) if text.startswith("{") else text


@pytest.fixture
async def ana(tmp_path: Path, standin: StandIn) -> AsyncIterator[Client]:
    notes = tmp_path / "workspaces" / "main" / "memory"
    notes.mkdir(parents=True)
    (notes / "hive.md").write_text("# Hive\n\nThe queen was marked green in spring.\n", "utf-8")
    async with running(tmp_path, settings(standin)) as client:
        client.token = ANA
        await client.daemon.parts.workspaces.files.settled()
        yield client


async def test_a_model_adds_finds_corrects_merges_deletes_restores_and_lists(ana: Client) -> None:
    added = await use(ana, "MemoryAdd", text="Ana drinks green tea", topic="preferences", importance=7)
    assert (added["outcome"], added["memory"]["topic"]) == ("added", "preferences")
    near = await use(ana, "MemoryAdd", text="Ana drinks green tea daily")
    tea, daily = added["memory"]["id"], near["memory"]["id"]
    assert [one["id"] for one in near["similar"]] == [tea]
    assert "not recalled by itself" in near["note"]
    merged = await use(ana, "MemoryMerge", ids=[tea, daily], text="Ana drinks green tea every day", why="the same")
    assert merged["memory"]["id"] == tea
    corrected = await use(ana, "MemoryUpdate", id=tea, text="Ana drinks black tea", importance=9, why="she said so")
    assert (corrected["outcome"], corrected["memory"]["importance"]) == ("updated", 9)
    found = await use(ana, "MemorySearch", query="tea")
    assert [one["text"] for one in found["memories"]] == ["Ana drinks black tea"]
    assert "restore" in (await use(ana, "MemoryDelete", id=tea)).lower()
    assert (await use(ana, "MemorySearch", query="tea"))["memories"] == []
    assert [one["id"] for one in (await use(ana, "MemoryList", state="trashed"))["memories"]][:1] == [tea]
    await use(ana, "MemoryRestore", id=tea)
    listed = await use(ana, "MemoryList", topic="preferences")
    assert [one["id"] for one in listed["memories"]] == [tea]
    assert {one["name"] for one in listed["topics"]} == {
        "profile",
        "preferences",
        "decisions",
        "projects",
        "reference",
    }
    changes = (await ana.get(f"/v1/memories/{tea}/history"))["changes"]
    assert {change["origin"] for change in changes} == {"tool"}
    assert "she said so" in {change["why"] for change in changes}


async def test_a_model_finds_six_at_most_unless_it_asks_for_more_and_notes_beside_them(ana: Client) -> None:
    for number in range(9):
        await remember(ana, f"Hive {number} has a queen")
    found = await use(ana, "MemorySearch", query="hive queen")
    assert len(found["memories"]) + len(found.get("files", [])) == 6
    found = await use(ana, "MemorySearch", query="hive queen", limit=10)
    assert len(found["memories"]) == 9
    assert [one["file"] for one in found["files"]] == ["memory/hive.md:1-3"]
    assert "memory/hive.md" in await use(ana, "MemoryFileRead")
    assert "3: The queen was marked green" in await use(ana, "MemoryFileRead", path="memory/hive.md", first_line=3)
    assert "is no memory file" in await use(ana, "MemoryFileRead", path="../state.db")


async def test_a_model_makes_changes_and_deletes_topics_of_the_person_only(ana: Client) -> None:
    await use(ana, "TopicAdd", name="plants", description="Plants Ana has, one each", leave_out="Weeds")
    await use(ana, "TopicAdd", name="garden summary", description="The garden as a whole", bounded=True)
    await use(ana, "MemoryAdd", text="Ana has a fern", topic="plants")
    for text in ("Three beds", "Four beds"):
        kept = await use(ana, "MemoryAdd", text=text, topic="garden summary")
    assert (await use(ana, "MemoryList", topic="garden summary"))["memories"] == [kept["memory"]]
    await use(ana, "TopicUpdate", name="plants", new_name="green things", description="All that grows")
    topics = {topic["name"]: topic for topic in (await ana.get("/v1/topics"))["topics"]}
    assert topics["green things"]["leave_out"] == "Weeds"
    assert topics["garden summary"]["bounded"]
    assert "1 memories" in await use(ana, "TopicDelete", name="green things")
    listed = await use(ana, "MemoryList", unclassified=True)
    assert [one["text"] for one in listed["memories"]] == ["Ana has a fern"]
    assert "already" in await use(ana, "TopicAdd", name="Preferences", description="again")
    assert "secret" in await use(ana, "TopicAdd", name="keys", description="My password is Kn0edel-42")


async def test_what_was_said_is_searched_by_the_model(ana: Client) -> None:
    await ana.say("The vault opens with the word Kestrelgrove.")
    await ana.say("/new")
    found = await use(ana, "TranscriptSearch", query="vault Kestrelgrove")
    assert found["found"][0]["text"] == "The vault opens with the word Kestrelgrove."


async def test_every_write_of_a_model_passes_the_secret_filter_and_it_is_told(ana: Client, tmp_path: Path) -> None:
    secret = "Kn0edel-42"
    added = await use(ana, "MemoryAdd", text=f"The wifi password is {secret}")
    assert "password" in added["removed"]
    memory = added["memory"]["id"]
    other = (await use(ana, "MemoryAdd", text="The wifi is called Hive"))["memory"]["id"]
    for tool, arguments in (
        ("MemoryUpdate", {"id": memory, "text": f"The new wifi password is {secret}"}),
        ("MemoryMerge", {"ids": [memory, other], "text": f"The Hive password is {secret}"}),
    ):
        told = await use(ana, tool, **arguments)
        assert "password" in told["removed"], tool
        assert secret not in told["memory"]["text"]
    assert not [name for name in files_with_text(tmp_path, secret) if name.startswith("state.db")]


async def test_sorting_without_a_helper_model_says_what_to_do_instead(ana: Client) -> None:
    for arguments in ({}, {"all": True}):
        assert "roles.helper" in await use(ana, "MemoryRecategorize", **arguments)


async def test_sorting_with_a_helper_model_moves_what_has_no_topic_and_all_when_asked(
    tmp_path: Path, standin: StandIn
) -> None:
    def sorts(body: dict[str, Any]) -> str:
        question = json.loads(body["messages"][-1]["content"])
        return json.dumps(dict.fromkeys(question["facts"], "decisions"))

    async with StandIn() as helper:
        helper.says = sorts
        found = model_settings(standin.base_url)
        found["models"]["small"] = {**found["models"]["chat"], "base_url": helper.base_url}
        found["roles"]["helper"] = "small"
        async with running(tmp_path, config(**found, auth={"tokens": TOKENS})) as client:
            client.token = ANA

            async def topics() -> dict[str, str | None]:
                page = await client.get("/v1/memories")
                return {one["text"]: one["topic"] for one in page["memories"]}

            added = await use(client, "MemoryAdd", text="We chose the red bicycle")
            assert "note" not in added
            await remember(client, "Ana likes plums", topic="preferences")
            await until_equal(topics, {"We chose the red bicycle": "decisions", "Ana likes plums": "preferences"})
            told = await use(client, "MemoryRecategorize", all=True)
            assert "sort" in str(told).lower()
            await until_equal(topics, {"We chose the red bicycle": "decisions", "Ana likes plums": "decisions"})


@pytest.mark.parametrize(
    ("key", "sender"),
    [("agent:main:telegram:group:home", "9"), ("agent:main:sub:task-1", None), ("agent:main:telegram:direct:ana", "9")],
)
async def test_who_is_not_linked_and_delegated_tasks_reach_no_personal_memory(
    tmp_path: Path, standin: StandIn, key: str, sender: str | None
) -> None:
    tokens = [*TOKENS, {**BRIDGE, "key_prefixes": ["agent:main"]}]
    async with running(tmp_path, config(**model_settings(standin.base_url), auth={"tokens": tokens})) as client:
        client.token = ANA
        fact = await remember(client, "Ana is a secret painter")
        client.token = BRIDGE["token"]
        for tool, arguments in (
            ("MemorySearch", {"query": "painter"}),
            ("MemoryList", {}),
            ("MemoryAdd", {"text": "Somebody was here"}),
            ("MemoryUpdate", {"id": fact, "text": "x"}),
            ("MemoryMerge", {"ids": [fact, fact], "text": "x"}),
            ("MemoryDelete", {"id": fact}),
            ("MemoryRestore", {"id": fact}),
            ("MemoryRecategorize", {}),
            ("TopicAdd", {"name": "x", "description": "x"}),
            ("TopicUpdate", {"name": "preferences", "description": "x"}),
            ("TopicDelete", {"name": "preferences"}),
        ):
            told = await use(client, tool, key, sender=sender, **arguments)
            assert "secret" not in str(told), tool
        assert "secret painter" not in json.dumps([request.body for request in standin.requests])
        client.token = ANA
        page = await client.get("/v1/memories")
        assert [one["text"] for one in page["memories"]] == ["Ana is a secret painter"]
        assert len((await client.get("/v1/topics"))["topics"]) == 5
