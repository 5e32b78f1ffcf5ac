"""The memory tools, called as a model calls them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import orjson
import pytest

from gateway.agents import AgentPolicy
from gateway.clock import SystemClock
from gateway.memories import MemoryPart
from gateway.memory_opening import open_memories
from gateway.memory_tools import memory_tools
from gateway.tools import ToolContext, ToolRegistry
from gateway.vectors import VectorPart
from memory.policy import MemoryPolicy
from memory.records import Draft, ListQuery, Viewer
from sessions.entries import ToolCall
from sessions.keys import parse_key
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from gateway.clock import Clock
    from memory.memory import Memories

ROOT = Viewer(user="owner", author="owner", admin=True)
AGENTS = {"shop": AgentPolicy(project="shop"), "main": AgentPolicy()}


def no_vectors(path: Path, memory: MemoryPart, clock: Clock) -> VectorPart:
    """No embedding model."""
    return VectorPart(
        name=None, models={}, policy=MemoryPolicy(), environ={}, data_dir=path, memory=memory, clock=clock
    )


class Opened(MemoryPart):
    """Memory that is open already."""

    def __init__(self, path: Path, memories: Memories) -> None:
        super().__init__(path, SystemClock(), MemoryPolicy(), {}, {}, UTC)
        self.given = memories

    async def open(self) -> Memories:
        return self.given


class Model:
    """Calls tools in a conversation, for a person."""

    def __init__(self, tools: ToolRegistry) -> None:
        self._tools = tools

    async def call(self, key: str, user: str | None, tool: str, /, **arguments: Any) -> tuple[str, bool]:
        context = ToolContext(key=parse_key(key), user=user, now=SystemClock().now())
        result = await self._tools.run(ToolCall(id="c", name=tool, arguments=orjson.dumps(arguments).decode()), context)
        return result.text, result.is_error

    async def done(self, key: str, user: str | None, tool: str, /, **arguments: Any) -> Any:
        text, is_error = await self.call(key, user, tool, **arguments)
        assert not is_error, text
        return orjson.loads(text) if text.startswith("{") else text


@pytest.fixture
async def memories(tmp_path: Path) -> AsyncIterator[Memories]:
    engine, memories = await open_memories(tmp_path / "state.db", SystemClock(), MemoryPolicy(), ())
    yield memories
    await engine.dispose()


@pytest.fixture
def model(tmp_path: Path, memories: Memories) -> Model:
    tools = memory_tools(Opened(tmp_path / "state.db", memories), AGENTS, ZoneInfo("Europe/Prague"))
    return Model(ToolRegistry(tools, timeout_s=10))


ANA = "agent:main:web:direct:ana"
SHOP = "agent:shop:web:direct:ana"


async def test_a_model_remembers_finds_corrects_merges_and_forgets(model: Model) -> None:
    first = await model.done(ANA, "ana", "MemoryAdd", text="Ana drinks green tea", topic="preferences", importance=7)
    assert first["memory"]["topic"] == "preferences"
    near = await model.done(ANA, "ana", "MemoryAdd", text="Ana drinks green tea daily")
    assert [one["id"] for one in near["similar"]] == [first["memory"]["id"]]
    ids = [first["memory"]["id"], near["memory"]["id"]]
    await model.done(ANA, "ana", "MemoryMerge", ids=ids, text="Ana drinks green tea every day")
    found = await model.done(ANA, "ana", "MemorySearch", query="green tea")
    assert [one["text"] for one in found["memories"]] == ["Ana drinks green tea every day"]
    await model.done(ANA, "ana", "MemoryUpdate", id=ids[0], text="Ana drinks black tea", why="she said so")
    await model.done(ANA, "ana", "MemoryDelete", id=ids[0])
    assert (await model.done(ANA, "ana", "MemorySearch", query="tea"))["memories"] == []
    assert [m["id"] for m in (await model.done(ANA, "ana", "MemoryList", state="trashed"))["memories"]] == [ids[0]]
    await model.done(ANA, "ana", "MemoryRestore", id=ids[0])
    listed = await model.done(ANA, "ana", "MemoryList")
    assert [m["text"] for m in listed["memories"]] == ["Ana drinks black tea"]


async def test_the_past_is_asked_by_a_date_or_a_time_in_private_chats_only(model: Model, memories: Memories) -> None:
    ana = Viewer(user="ana", author="ana")
    moved = datetime(2026, 5, 1, 22, tzinfo=UTC)  # the beginning of the second of May in Prague
    since = datetime(2020, 1, 1, tzinfo=UTC)
    for text, at in (("Ana lives in Brno", since), ("Ana lives in Prague", moved)):
        await memories.add(ana, Draft(text=text, topic="profile", valid_from=at))

    async def lived(**at: str) -> list[str]:
        return [one["text"] for one in (await model.done(ANA, "ana", "MemorySearch", query="lives", **at))["memories"]]

    assert await lived() == ["Ana lives in Prague"]
    for before in ("2026-05-01", "2026-05-01T21:59:59Z"):
        assert await lived(as_of=before) == ["Ana lives in Brno"]
    for after in ("2026-05-02", "2026-05-02T00:00:00+02:00"):
        assert await lived(as_of=after) == ["Ana lives in Prague"]
    for wrong in ("yesterday", "2026-02-30", "2026-05-01T12:00"):
        text, is_error = await model.call(ANA, "ana", "MemorySearch", query="lives", as_of=wrong)
        assert is_error
        assert "as in 2026-05-01" in text
    text, is_error = await model.call(
        "agent:main:web:group:g", "ana", "MemorySearch", query="lives", as_of="2026-05-01"
    )
    assert is_error
    assert "private chat" in text


async def test_topics_of_the_person_only_can_be_made_changed_and_deleted(model: Model, memories: Memories) -> None:
    await memories.topics.put_project(ROOT, "shop", with_members=["ana"])
    await model.done(SHOP, "ana", "TopicAdd", name="plants", description="Plants Ana has, one each")
    await model.done(SHOP, "ana", "MemoryAdd", text="Ana has a fern", topic="plants")
    await model.done(SHOP, "ana", "TopicUpdate", name="plants", new_name="garden")
    assert "1 memories" in await model.done(SHOP, "ana", "TopicDelete", name="garden")
    for name in ("TopicUpdate", "TopicDelete"):
        text, is_error = await model.call(SHOP, "ana", name, name="details")
        assert is_error, text
    assert [t.name for t in await memories.topics.topics(ROOT, (await memories.store.pools(ROOT))[-1])]


async def test_a_model_keeps_facts_apart_by_properties_and_sets_what_is_always_on(
    model: Model, memories: Memories
) -> None:
    await model.done(
        *(ANA, "ana", "TopicAdd"),
        name="state",
        description="How it stands",
        bounded=True,
        scope_properties=["tenant"],
        always_on=True,
    )
    text, is_error = await model.call(ANA, "ana", "MemoryAdd", text="It runs", topic="state")
    assert (is_error, "tenant" in text) == (True, True)
    north = await model.done(ANA, "ana", "MemoryAdd", text="It runs", topic="state", properties={"tenant": "north"})
    south = await model.done(ANA, "ana", "MemoryAdd", text="It stands", topic="state", properties={"tenant": "south"})
    again = await model.done(ANA, "ana", "MemoryAdd", text="It rests", topic="state", properties={"tenant": "north"})
    ids = [one["memory"]["id"] for one in (north, south, again)]
    assert (ids[0], len(set(ids))) == (ids[2], 2)
    assert again["memory"]["properties"] == {"tenant": "north"}
    listed = await model.done(ANA, "ana", "MemoryList")
    assert [t["scope_properties"] for t in listed["topics"] if "scope_properties" in t] == [["tenant"]]
    await model.done(ANA, "ana", "MemoryUpdate", id=ids[0], properties={"tenant": "east"})
    await model.done(ANA, "ana", "TopicUpdate", name="state", always_on=False)
    (state,) = [t for t in await memories.topics.topics(Viewer(user="ana", author="ana")) if t.name == "state"]
    assert (state.always_on, state.project, state.scope_properties) == (False, None, ("tenant",))
    kept = await model.done(ANA, "ana", "MemoryAdd", text="x", properties={"password": "hunter2"})
    assert "hunter2" not in orjson.dumps(kept).decode()


async def test_a_model_moves_nothing_to_where_others_may_see_it(model: Model, memories: Memories) -> None:
    await memories.topics.put_project(ROOT, "shop", with_members=["ana"])
    fact = (await model.done(SHOP, "ana", "MemoryAdd", text="Ana drinks tea"))["memory"]["id"]
    for tool, given in (
        ("MemoryUpdate", {"id": fact, "shared": True}),
        ("MemoryUpdate", {"id": fact, "pool": "project:shop"}),
        ("MemoryAdd", {"text": "Ana drinks milk", "pool": "project:shop"}),
        ("TopicAdd", {"name": "x", "description": "x", "instance": True}),
        ("TopicAdd", {"name": "x", "description": "x", "pool": "project:shop"}),
        ("TopicUpdate", {"name": "preferences", "project": None}),
    ):
        text, is_error = await model.call(SHOP, "ana", tool, **given)
        assert (is_error, "not permitted" in text) == (True, True), (tool, given, text)


async def test_what_is_found_is_told_while_somebody_writes_for_long(model: Model, memories: Memories) -> None:
    await model.done(ANA, "ana", "MemoryAdd", text="Ana drinks tea")
    async with memories.store._records.writing(), asyncio.timeout(PATIENCE_S):
        found = await model.done(ANA, "ana", "MemorySearch", query="tea")
        assert [one["text"] for one in found["memories"]] == ["Ana drinks tea"]
        (tea,), _ = await memories.page(Viewer(user="ana", author="ana"))
        assert tea.recall_count == 0
    await model.done(ANA, "ana", "MemorySearch", query="tea")
    (tea,), _ = await memories.page(Viewer(user="ana", author="ana"))
    assert tea.recall_count == 1


async def test_a_project_is_reached_from_its_agent_by_its_members_only(model: Model, memories: Memories) -> None:
    await memories.topics.put_project(ROOT, "shop", with_members=["ana"])
    await model.done(SHOP, "ana", "MemoryAdd", text="The shop opens in May", shared=True)
    assert len((await model.done(SHOP, "ana", "MemorySearch", query="shop opens"))["memories"]) == 1
    assert (await model.done(ANA, "ana", "MemorySearch", query="shop opens"))["memories"] == []
    assert (await model.done(SHOP, "bob", "MemorySearch", query="shop opens"))["memories"] == []
    assert (await model.call(SHOP, "bob", "MemoryAdd", text="mine", shared=True))[1]


@pytest.mark.parametrize(
    ("key", "user"), [("agent:main:telegram:group:g", None), ("agent:main:sub:task", "ana"), ("hook:build", None)]
)
async def test_senders_nobody_knows_and_delegated_tasks_reach_no_personal_memory(
    model: Model, key: str, user: str | None
) -> None:
    fact = (await model.done(ANA, "ana", "MemoryAdd", text="Ana drinks tea"))["memory"]["id"]
    for name, arguments in [
        ("MemorySearch", {"query": "tea"}),
        ("MemoryList", {}),
        ("MemoryAdd", {"text": "x"}),
        ("MemoryUpdate", {"id": fact, "text": "x"}),
        ("MemoryDelete", {"id": fact}),
        ("MemoryRestore", {"id": fact}),
        ("TopicAdd", {"name": "x", "description": "x"}),
    ]:
        text, _ = await model.call(key, user, name, **arguments)
        assert "tea" not in text
    assert (await model.done(ANA, "ana", "MemorySearch", query="tea"))["memories"][0]["text"] == "Ana drinks tea"
    assert len((await model.done(ANA, "ana", "MemoryList"))["memories"]) == 1


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("MemorySearch", {}, "query: Field required"),
        ("MemorySearch", {"query": ["tea"]}, "query: Input should be a valid string"),
        ("MemorySearch", {"query": "tea", "limit": 51}, "limit: Input should be less"),
        ("MemorySearch", {"query": "tea", "limit": True}, "limit: is true or false"),
        ("MemorySearch", {"query": "tea", "topic": "nowhere"}, "no topic 'nowhere'"),
        ("MemorySearch", {"query": "tea", "as_of": "2026-13-45"}, "as_of: is neither a time"),
        ("MemoryAdd", {}, "text: Field required"),
        ("MemoryAdd", {"text": " "}, "text: is empty"),
        ("MemoryAdd", {"text": "x" * 8001}, "text: String should have at most 8000"),
        ("MemoryAdd", {"text": "a", "importance": 11}, "importance: Input should be less"),
        ("MemoryAdd", {"text": "a", "importance": True}, "importance: is true or false"),
        ("MemoryAdd", {"text": "a", "kind": "secret"}, "kind: Input should be"),
        ("MemoryAdd", {"text": "a", "properties": {"tenant": 1}}, "properties.tenant: Input should be a valid string"),
        ("MemoryAdd", {"text": "a", "properties": ["tenant"]}, "properties: Input should be a valid dictionary"),
        ("MemoryAdd", {"text": "a", "colour": "red"}, "colour: Extra inputs"),
        ("MemoryAdd", {"text": "a", "topic": "nowhere"}, "no topic 'nowhere'"),
        ("MemoryAdd", {"text": "a", "shared": True}, "belongs to no project"),
        ("MemoryUpdate", {"text": "a"}, "id: Field required"),
        ("MemoryUpdate", {"id": "nothing", "text": "a"}, "no memory"),
        ("MemoryUpdate", {"id": "TEA", "importance": True}, "importance: is true or false"),
        ("MemoryUpdate", {"id": "TEA", "text": ""}, "text: String should have at least 1"),
        ("MemoryUpdate", {"id": "TEA", "topic": "nowhere"}, "no topic 'nowhere'"),
        ("MemoryMerge", {"ids": ["TEA"], "text": "a"}, "ids: List should have at least 2"),
        ("MemoryMerge", {"ids": ["TEA", "TEA"], "text": "a"}, "ids: name at least two different"),
        ("MemoryMerge", {"ids": ["TEA", "nothing"], "text": "a"}, "no memory"),
        ("MemoryMerge", {"ids": "TEA", "text": "a"}, "ids: Input should be a valid list"),
        ("MemoryMerge", {"ids": ["TEA", "nothing"]}, "text: Field required"),
        ("MemoryDelete", {"id": ["TEA"]}, "id: Input should be a valid string"),
        ("MemoryDelete", {"id": "nothing"}, "no memory"),
        ("MemoryRestore", {"id": "nothing"}, "no memory"),
        ("MemoryList", {"state": "superseded"}, "state: Input should be 'active' or 'trashed'"),
        ("MemoryList", {"limit": 0}, "limit: Input should be greater"),
        ("MemoryList", {"topic": "preferences", "unclassified": True}, "not both"),
        ("MemoryRecategorize", {}, "set roles.helper"),
        ("MemoryRecategorize", {"all": "perhaps"}, "all: Input should be a valid boolean"),
        ("TopicAdd", {"name": "a"}, "description: Field required"),
        ("TopicAdd", {"name": "\n", "description": "a"}, "name: a topic's name has"),
        ("TopicAdd", {"name": "Preferences", "description": "a"}, "a topic 'Preferences' already"),
        (
            "TopicAdd",
            {"name": "a", "description": "a", "scope_properties": ["b", "b"]},
            "scope_properties: give at most",
        ),
        ("TopicUpdate", {"name": "nowhere", "description": "a"}, "no topic 'nowhere'"),
        ("TopicUpdate", {"name": "preferences", "new_name": "Decisions"}, "a topic 'Decisions' already"),
        ("TopicUpdate", {"name": "preferences", "bounded": True}, "bounded: Extra inputs"),
        ("TopicUpdate", {"name": "preferences"}, "Say what to change"),
        ("TopicDelete", {}, "name: Field required"),
        ("TopicDelete", {"name": "nowhere"}, "no topic 'nowhere'"),
    ],
)
async def test_a_wrong_argument_is_told_to_the_model_and_changes_nothing(
    model: Model, memories: Memories, name: str, arguments: dict[str, Any], told: str
) -> None:
    added = await model.done(ANA, "ana", "MemoryAdd", text="Ana drinks tea", topic="preferences")
    ana = Viewer(user="ana", author="ana")

    async def all_of_it() -> list[Any]:
        states = [await memories.page(ana, query=ListQuery(state=state)) for state in ("active", "trashed")]
        return [states, await memories.topics.topics(ana)]

    before = await all_of_it()
    given = orjson.loads(orjson.dumps(arguments).replace(b"TEA", added["memory"]["id"].encode()))
    text, is_error = await model.call(ANA, "ana", name, **given)
    assert (is_error, told in text) == (True, True), text
    assert await all_of_it() == before


async def test_a_model_is_told_that_nothing_but_a_secret_is_not_kept(model: Model) -> None:
    text, is_error = await model.call(ANA, "ana", "MemoryAdd", text="sk-abcdefghijklmnopqrstuvwx")
    assert is_error
    assert "nothing but a secret" in text
    assert "sk-" not in text


async def test_a_secret_a_model_wants_to_keep_is_taken_out_and_it_is_told(model: Model) -> None:
    kept = await model.done(ANA, "ana", "MemoryAdd", text="The API key is sk-abcdefghijklmnopqrstuvwx")
    assert "sk-" not in orjson.dumps(kept).decode()
    assert "placeholder" in kept["removed"]
