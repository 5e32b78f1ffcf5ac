"""Engram's API, with its published client as it is: synchronous and asynchronous, against a whole daemon."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from engram import (
    APIError,
    AsyncEngramClient,
    AuthenticationError,
    BM25Retrieval,
    ConversationInput,
    EngramClient,
    FetchRetrieval,
    HybridRetrieval,
    MessageInput,
    PreExtractedInput,
    PreExtractedItem,
    StringInput,
    Topic,
    VectorRetrieval,
)

from tests.journeys.daemon import Client, config, running
from tests.journeys.test_recall import until_vectors_serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

TOKENS: list[dict[str, Any]] = [
    {"name": "root", "token": "root", "role": "admin"},
    {"name": "shop", "token": "eng_shop", "role": "frontend"},
    {"name": "bank", "token": "eng_bank", "role": "frontend"},
    {"name": "bridge", "token": "bridge", "role": "frontend"},
    {"name": "ana", "token": "ana", "role": "user", "user": "ana"},
]
SUPPORT: list[dict[str, Any]] = [
    {
        "name": "summary",
        "description": "What the conversation is about.",
        "bounded": True,
        "scope_properties": ["conversation_id"],
        "group": "support",
    },
    {"name": "facts", "description": "Facts about the person.", "group": "support"},
    {"name": "preferences", "description": "How the person wants to be helped.", "group": "support"},
    {"name": "procedures", "description": "How things are done here.", "user_scoped": False, "group": "house"},
]
PROJECTS = [{"token": "shop", "project": "shop", "topics": SUPPORT}, {"token": "bank", "project": "bank"}]


def settings(**more: Any) -> Any:
    return config(auth={"tokens": TOKENS}, engram={"projects": PROJECTS}, **more)


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Client]:
    async with running(tmp_path / "data", settings()) as client:
        yield client


def sync_client(daemon: Client, key: str = "eng_shop") -> EngramClient:
    return EngramClient(base_url=f"{daemon.url}/engram", api_key=key)


async def synchronously(daemon: Client, work: Callable[[EngramClient], Any], key: str = "eng_shop") -> Any:
    """Runs the synchronous client beside the daemon, which lives in this loop."""
    with sync_client(daemon, key) as client:
        return await asyncio.to_thread(work, client)


def facts(*items: tuple[str, str]) -> PreExtractedInput:
    return PreExtractedInput(items=[PreExtractedItem(content=content, topic=topic) for topic, content in items])


async def refusal(work: Any) -> tuple[int, str]:
    with pytest.raises(APIError) as refused:
        await work
    return refused.value.status_code, str(refused.value)


@pytest.fixture
async def shop(daemon: Client) -> AsyncIterator[AsyncEngramClient]:
    async with AsyncEngramClient(base_url=f"{daemon.url}/engram", api_key="eng_shop") as client:
        yield client


@pytest.fixture
async def bank(daemon: Client) -> AsyncIterator[AsyncEngramClient]:
    async with AsyncEngramClient(base_url=f"{daemon.url}/engram", api_key="eng_bank") as client:
        yield client


def a_first_day(client: EngramClient) -> None:
    """The flows of the client's quickstart and guides."""
    run = client.memories.add("Alice prefers async Python and avoids Java.", user_id="Alice@Example.com")
    status = client.runs.wait(run.run_id, interval=0.05)
    assert (status.status, status.input_type, status.error) == ("completed", "string", None)
    assert (len(status.memories_created), status.memories_updated, status.memories_deleted) == (1, [], [])
    run = client.memories.add(
        [
            {"role": "user", "content": "I just moved to Berlin and I am looking for a good coffee shop."},
            {"role": "assistant", "content": "Welcome to Berlin! Here are some popular coffee shops in the city..."},
            {"role": "user", "content": "I prefer specialty coffee, not chains."},
        ],
        user_id="alice@example.com",
        properties={"conversation_id": "session-abc123"},
    )
    assert len(client.runs.wait(run.run_id).memories_created) == 2
    run = client.memories.add(facts(("preferences", "Alice wants short answers.")), user_id="alice@example.com")
    (created,) = client.runs.get(run.run_id).memories_created
    for retrieval in (
        None,
        "hybrid",
        "vector",
        BM25Retrieval(limit=5),
        HybridRetrieval(limit=5),
        VectorRetrieval(limit=5),
        FetchRetrieval(limit=None),
    ):
        results = client.memories.search(
            query="short answers", user_id="ALICE@example.com", retrieval_config=retrieval, group="default"
        )
        assert len(results) == results.total > 0
        assert "Alice wants short answers." in [memory.content for memory in results]
    found = client.memories.search(query="coffee Berlin", user_id="alice@example.com")
    assert {memory.topic for memory in found} == {"preferences"}
    again = client.memories.search(query="coffee", user_id="alice@example.com", topics=[found[0].topic])
    assert len(again) >= 1
    memory = client.memories.get(created.memory_id, user_id="alice@example.com")
    assert (memory.content, memory.topic, memory.group) == ("Alice wants short answers.", "preferences", "default")
    assert (memory.user_id, memory.score) == ("alice@example.com", None)
    client.memories.delete(created.memory_id, user_id="alice@example.com")
    with pytest.raises(APIError) as gone:
        client.memories.get(created.memory_id, user_id="alice@example.com")
    assert gone.value.status_code == 404


async def test_the_quickstart_runs_with_the_synchronous_client(daemon: Client) -> None:
    await synchronously(daemon, a_first_day)


async def test_the_same_with_the_asynchronous_client(shop: AsyncEngramClient) -> None:
    run = await shop.memories.add("Alice prefers async Python and avoids Java.", user_id="alice")
    status = await shop.runs.wait(run.run_id, interval=0.05)
    assert (status.status, len(status.memories_created)) == ("completed", 1)
    said = [MessageInput(role="user", content="I moved to Berlin."), MessageInput(role="assistant", content="Nice.")]
    run = await shop.memories.add(ConversationInput(messages=said), user_id="alice")
    assert len((await shop.runs.wait(run.run_id)).memories_created) == 1
    results = await shop.memories.search(query="Who is in Berlin?", user_id="alice")
    assert [memory.content for memory in results] == ["I moved to Berlin."]
    memory = await shop.memories.get(results[0].id, user_id="alice")
    assert memory.content == "I moved to Berlin."
    await shop.memories.delete(memory.id, user_id="alice")
    assert (await shop.memories.search(query="Berlin", user_id="alice")).total == 0


async def test_a_run_tells_what_was_created_and_what_was_updated(shop: AsyncEngramClient) -> None:
    async def operations(*items: tuple[str, str]) -> tuple[list[str], list[str], list[str]]:
        run = await shop.memories.add(facts(*items), user_id="alice")
        status = await shop.runs.get(run.run_id)
        done = status.committed_operations
        assert done is not None
        assert status.status == "completed"
        created, updated, deleted = done.created, done.updated, done.deleted
        return [o.memory_id for o in created], [o.memory_id for o in updated], [o.memory_id for o in deleted]

    (tea, bio), updated, deleted = await operations(("preferences", "Likes tea."), ("profile", "Alice, 40, Berlin."))
    assert (updated, deleted) == ([], [])
    assert await operations(("preferences", "likes tea")) == ([], [], [])
    for age in range(41, 46):
        assert await operations(("profile", f"Alice, {age}, Berlin.")) == ([], [bio], [])
    assert (await shop.memories.get(bio, user_id="alice")).content == "Alice, 45, Berlin."
    kept = await shop.memories.search(query="x", user_id="alice", retrieval_config=FetchRetrieval(limit=None))
    assert {memory.id for memory in kept} == {tea, bio}
    found = await shop.memories.search(query="Alice 42 Berlin", user_id="alice")
    assert [memory.content for memory in found] == ["Alice, 45, Berlin."]


async def test_vectors_are_searched_where_there_are_some(tmp_path: Path) -> None:
    async with (
        running(tmp_path / "data", settings(roles={"embedding": "offline"})) as daemon,
        AsyncEngramClient(base_url=f"{daemon.url}/engram", api_key="eng_shop") as client,
    ):
        await client.memories.add(facts(("preferences", "Likes green tea."), ("decisions", "Sails.")), user_id="a")
        await until_vectors_serve(daemon)
        found = await client.memories.search(query="green tea", user_id="a", retrieval_config=VectorRetrieval())
        assert found[0].content == "Likes green tea."
        assert found[0].score


async def test_a_run_is_told_for_ninety_days(daemon: Client, shop: AsyncEngramClient) -> None:
    run = await shop.memories.add(facts(("preferences", "Likes tea.")), user_id="alice")
    parts = daemon.daemon.parts
    await parts.engram_book.forget_old(parts.clock.now() + timedelta(days=89))
    assert (await shop.runs.get(run.run_id)).status == "completed"
    await parts.engram_book.forget_old(parts.clock.now() + timedelta(days=91))
    assert (await refusal(shop.runs.get(run.run_id)))[0] == 404


async def test_scopes_are_asked_of_writes_and_filter_searches(daemon: Client, shop: AsyncEngramClient) -> None:
    support: dict[str, Any] = {"user_id": "alice", "group": "support"}
    status, told = await refusal(shop.memories.add(facts(("summary", "About a refund.")), **support))
    assert (status, "conversation_id" in told) == (400, True)
    status, told = await refusal(shop.memories.add("A refund is wanted.", **support))
    assert (status, "conversation_id" in told) == (400, True)
    status, told = await refusal(shop.memories.add("A refund is wanted.", group="support"))
    assert (status, "user_id" in told) == (400, True)
    for chat, text in (("c1", "About a refund."), ("c2", "About a lost parcel."), ("c1", "About a refund, done.")):
        both = facts(("summary", text), ("facts", f"Wrote in {chat}."))
        await shop.memories.add(both, properties={"conversation_id": chat}, **support)

    async def found(**more: Any) -> set[str]:
        results = await shop.memories.search(query="x", retrieval_config="fetch", **{**support, **more})
        assert {memory.group for memory in results} <= {"support"}
        return {memory.content for memory in results}

    wrote = {"Wrote in c1.", "Wrote in c2."}
    assert await found() == {"About a refund, done.", "About a lost parcel.", *wrote}
    assert await found(properties={"conversation_id": "c2"}) == {"About a lost parcel.", *wrote}
    assert await found(properties={"conversation_id": "c2"}, topics=["summary"]) == {"About a lost parcel."}
    assert await found(properties={"conversation_id": "c9"}, topics=["summary"]) == set()
    cleared = Topic(name="summary", properties={"conversation_id": None})
    assert await found(properties={"conversation_id": "c2"}, topics=[cleared]) == {
        "About a refund, done.",
        "About a lost parcel.",
    }
    own = Topic(name="summary", properties={"conversation_id": "c1"})
    assert await found(topics=[own, "facts"]) == {"About a refund, done.", *wrote}
    assert await found(group="default") == set()
    people = await shop.memories.search(query="parcel refund", user_id="bob", group="support")
    assert people.total == 0


async def test_an_unknown_topic_property_or_group_never_finds_everything(shop: AsyncEngramClient) -> None:
    await shop.memories.add(facts(("preferences", "Likes tea."), ("decisions", "Takes the train.")), user_id="alice")
    for wrong, word in [
        ({"topics": ["hobbies"]}, "hobbies"),
        ({"topics": ["preferences", "hobbies"]}, "hobbies"),
        ({"topics": []}, "topics"),
        ({"topics": ["summary"]}, "summary"),
        ({"properties": {"conversation_id": "c1"}}, "conversation_id"),
        ({"topics": [Topic(name="preferences", properties={"colour": "red"})]}, "colour"),
        ({"group": "nothing"}, "nothing"),
    ]:
        status, told = await refusal(shop.memories.search(query="tea", **{"user_id": "alice", **wrong}))
        assert (status, word in told) == (400, True), (wrong, told)
    status, told = await refusal(shop.memories.search(query="tea"))
    assert (status, "user_id" in told) == (400, True)
    status, told = await refusal(shop.memories.add(facts(("hobbies", "Sails.")), user_id="alice"))
    assert (status, "hobbies" in told) == (400, True)


async def test_topics_that_are_shared_need_no_user(shop: AsyncEngramClient, bank: AsyncEngramClient) -> None:
    run = await shop.memories.add(facts(("procedures", "Refunds need a receipt.")), group="house")
    (created,) = (await shop.runs.get(run.run_id)).memories_created
    found = await shop.memories.search(query="refund receipt", group="house")
    assert [(memory.content, memory.user_id, memory.topic) for memory in found] == [
        ("Refunds need a receipt.", None, "procedures")
    ]
    assert (await shop.memories.get(created.memory_id, group="house")).group == "house"
    assert (await refusal(shop.memories.get(created.memory_id)))[0] == 404
    assert (await refusal(bank.memories.get(created.memory_id, user_id="alice")))[0] == 404
    await shop.memories.delete(created.memory_id, group="house")
    assert (await shop.memories.search(query="refund receipt", group="house")).total == 0


async def test_another_key_never_sees_the_memories_of_this_one(
    daemon: Client, shop: AsyncEngramClient, bank: AsyncEngramClient
) -> None:
    run = await shop.memories.add(facts(("preferences", "Hush: the safe is behind the clock.")), user_id="alice")
    (created,) = (await shop.runs.get(run.run_id)).memories_created
    assert (await bank.memories.search(query="safe clock", user_id="alice")).total == 0
    assert (await bank.memories.search(query="x", user_id="alice", retrieval_config="fetch")).total == 0
    assert (await refusal(bank.runs.get(run.run_id)))[0] == 404
    for user in ("alice", "shop:alice", "bob"):
        assert (await refusal(bank.memories.get(created.memory_id, user_id=user)))[0] == 404
        assert (await refusal(bank.memories.delete(created.memory_id, user_id=user)))[0] == 404
    assert (await refusal(shop.memories.get(created.memory_id, user_id="bob")))[0] == 404
    assert (await shop.memories.get(created.memory_id, user_id="alice")).content.startswith("Hush")
    for key in ("bridge", "ana", "root"):
        async with AsyncEngramClient(base_url=f"{daemon.url}/engram", api_key=key) as other:
            assert (await refusal(other.memories.search(query="safe", user_id="alice")))[0] == 404
    async with AsyncEngramClient(base_url=f"{daemon.url}/engram", api_key="unknown") as stranger:
        with pytest.raises(AuthenticationError, match=r"auth\.tokens"):
            await stranger.memories.search(query="safe", user_id="alice")
    daemon.token = "ana"
    assert (await daemon.call("POST", "/v1/memories/search", {"query": "safe clock"}))[1]["memories"] == []


async def test_when_it_was_said_is_kept(shop: AsyncEngramClient) -> None:
    at = datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC)
    await shop.memories.add(StringInput(content=["Likes tea.", "Hates coffee."], created_at=at), user_id="alice")
    said = [
        MessageInput(role="user", content="Plays chess on Mondays.", created_at="2023-01-01T00:00:00Z"),
        MessageInput(role="system", content="You are a helpful clerk."),
        MessageInput(role="user", content="Owns a parrot."),
    ]
    await shop.memories.add(ConversationInput(messages=said, created_at=at), user_id="alice")
    found = await shop.memories.search(query="x", user_id="alice", retrieval_config=FetchRetrieval(limit=None))
    assert {memory.content: memory.created_at for memory in found} == {
        "Likes tea.": "2024-02-03T04:05:06.000Z",
        "Hates coffee.": "2024-02-03T04:05:06.000Z",
        "Plays chess on Mondays.": "2023-01-01T00:00:00.000Z",
        "Owns a parrot.": "2024-02-03T04:05:06.000Z",
    }
    early = StringInput(content="x", created_at=datetime(1601, 1, 1, tzinfo=UTC))
    assert (await refusal(shop.memories.add(early, user_id="alice")))[0] == 400


async def test_a_secret_is_not_kept_and_what_is_too_long_fails_visibly(shop: AsyncEngramClient) -> None:
    key = "sk-ant-api03-" + "Ab1" * 30
    await shop.memories.add(facts(("preferences", f"The deploy key is {key}")), user_id="alice")
    found = await shop.memories.search(query="deploy key", user_id="alice")
    assert len(found) == 1
    assert key not in found[0].content
    run = await shop.memories.add(facts(("preferences", "long " * 3000)), user_id="alice")
    status = await shop.runs.get(run.run_id)
    assert (run.status, status.status, status.memories_created) == ("failed", "failed", [])
    assert status.error is not None
    assert "8000 characters" in status.error


async def test_what_is_nothing_but_a_secret_is_left_out_of_what_somebody_said(shop: AsyncEngramClient) -> None:
    said = [MessageInput(role="user", content=text) for text in ("sk-ant-api03-" + "Ab1" * 30, "Owns a parrot.")]
    run = await shop.memories.add(ConversationInput(messages=said), user_id="alice")
    found = await shop.memories.search(query="x", user_id="alice", retrieval_config=FetchRetrieval(limit=None))
    assert [memory.content for memory in found] == ["Owns a parrot."]
    assert (await shop.runs.get(run.run_id)).status == "completed"


async def test_a_conversation_in_which_nobody_said_anything_is_refused(shop: AsyncEngramClient) -> None:
    for messages in ([MessageInput(role="system", content="Be kind.")], [MessageInput(role="assistant", content="Hi")]):
        assert (await refusal(shop.memories.add(ConversationInput(messages=messages), user_id="alice")))[0] == 400


async def test_lists_come_in_pages_and_groups_tell_their_topics(daemon: Client, shop: AsyncEngramClient) -> None:
    for number in range(0, 45, 15):
        items = [("reference", f"Shelf {n} holds box {n}.") for n in range(number, number + 15)]
        await shop.memories.add(facts(*items), user_id="alice")
    daemon.token = "eng_shop"
    seen: list[str] = []
    body: dict[str, Any] = {"user_id": "alice", "limit": 20}
    while True:
        status, page = await daemon.call("POST", "/engram/v1/memories/list", body)
        assert status == 200, page
        seen += [memory["content"] for memory in page["memories"]]
        if "next" not in page:
            break
        body["cursor"] = page["next"]
    assert sorted(seen) == sorted(f"Shelf {n} holds box {n}." for n in range(45))
    status, content = await daemon.call("GET", "/engram/v1/groups")
    groups = {group["name"]: group for group in content["groups"]}
    assert set(groups) == {"default", "support", "house"}
    names = {topic["topic_name"] for topic in groups["default"]["topics"]}
    assert names == {"profile", "preferences", "decisions", "projects", "reference"}
    assert groups["support"]["scoping"] == {"user_scoped": True, "scope_properties": ["conversation_id"]}
    assert groups["house"]["scoping"] == {"user_scoped": False, "scope_properties": []}
    assert (await daemon.call("GET", "/engram/v1/auth/verify"))[0] == 204
    for wrong in ("x", "9.", "0.zzz", "-1.a"):
        assert (await daemon.call("POST", "/engram/v1/memories/list", {**body, "cursor": wrong}))[0] == 400


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        ("memories", {"input": {}, "user_id": "a"}, "exactly one"),
        ("memories", {"input": {"string": {"content": ["x"]}}, "user_id": "a", "root": "step"}, "root"),
        ("memories", {"input": {"string": {"content": [" "]}}, "user_id": "a"}, "no text"),
        ("memories", {"input": {"string": {"content": ["x"]}}}, "user_id"),
        ("memories", {"input": {"string": {"content": ["x"]}}, "user_id": "a\nb"}, "user_id"),
        ("memories/search", {"query": "", "user_id": "a"}, "query"),
        ("memories/search", {"query": "x", "user_id": "a", "retrieval_config": {"retrieval_type": "magic"}}, "bm25"),
        ("memories/search", {"query": "x", "user_id": "a", "colour": "red"}, "colour"),
        ("memories/list", {"user_id": "a", "limit": 101}, "limit"),
    ],
)
async def test_errors_are_worded_as_these_clients_read_them(
    daemon: Client, path: str, body: dict[str, Any], word: str
) -> None:
    daemon.token = "eng_shop"
    status, content = await daemon.call("POST", f"/engram/v1/{path}", body)
    assert status == 400, content
    assert content["message"] == content["detail"]
    assert word in content["detail"] + str(content["errors"])


ALICE = "user=bank:alice"
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
TOOL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "MemorySearch", "arguments": {"query": "account"}},
}


@pytest.mark.parametrize("token", ["eng_shop", "bridge", "ana"])
async def test_the_users_of_a_project_are_out_of_reach_for_every_token_but_its_own(daemon: Client, token: str) -> None:
    daemon.token = "eng_bank"
    given = {"pre_extracted": {"items": [{"content": "Alice's account is 4711", "topic": "reference"}]}}
    assert (await daemon.call("POST", "/engram/v1/memories", {"user_id": "alice", "input": given}))[0] == 200
    (memory,) = (await daemon.get(f"/v1/memories?{ALICE}"))["memories"]
    assert "4711" in str(await daemon.call("POST", f"/mcp?{ALICE}", TOOL, JSON))
    chat = "agent:main:bank:direct:alice"
    daemon.token = token
    for method, path, body in (
        ("GET", f"/v1/memories?{ALICE}", None),
        ("GET", "/v1/memories?pool=user:bank:alice", None),
        ("GET", "/v1/memories/export?pool=user:bank:alice", None),
        ("GET", f"/v1/memories/{memory['id']}?{ALICE}", None),
        ("POST", f"/v1/memories/search?{ALICE}", {"query": "account"}),
        ("POST", f"/v1/memories/{memory['id']}/purge?{ALICE}", None),
        ("GET", f"/v1/topics?{ALICE}", None),
        ("GET", f"/v1/memory-settings?{ALICE}", None),
        ("GET", f"/console/memory?{ALICE}", None),
        ("POST", f"/mcp?{ALICE}", TOOL),
        ("POST", f"/v1/sessions/{chat}/messages", {"text": "/memory account"}),
    ):
        answer = await daemon.call(method, path, body, JSON)
        assert "4711" not in str(answer), path
        assert answer[0] == 404 or path.startswith(("/console", "/v1/sessions")), (path, answer)
    daemon.token = "root"
    assert [one["id"] for one in (await daemon.get(f"/v1/memories?{ALICE}"))["memories"]] == [memory["id"]]


async def test_the_token_of_a_project_speaks_for_no_other_people(daemon: Client) -> None:
    daemon.token = "ana"
    status, made = await daemon.call("POST", "/v1/memories", {"text": "Ana's account is 4711", "topic": "reference"})
    assert status == 201, made
    daemon.token = "eng_bank"
    for path in ("/v1/memories?user=ana", "/v1/memories?pool=user:ana", "/v1/memories?user=bridge:7"):
        assert (await daemon.call("GET", path))[0] == 404
    assert (await daemon.call("POST", "/mcp?user=ana", TOOL, JSON))[0] == 404
    assert (await daemon.call("GET", "/v1/memories?user=bank:ana"))[1]["memories"] == []
