"""Conversations are learnt from, over a whole daemon: after replies, at the end, before a compaction, in the batch."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gateway.clock import ManualClock
from gateway.daemon import Daemon
from gateway.parts import Parts
from memory.records import user_pool
from tests.journeys.daemon import KEY, Client, config, running
from tests.journeys.helpers import Helper
from tests.journeys.test_memories import TOKENS, call
from tests.patience import PATIENCE_S, until, until_equal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from gateway.clock import Clock
    from memory.learning_store import LearningStore

START = datetime(2026, 5, 4, 12, tzinfo=UTC)


def repeats(question: dict[str, Any]) -> str:
    """Makes a fact of every message of the person that begins with "I "."""
    told = [one for one in question["conversation"] if one["who"] == "user" and one["text"].startswith("I ")]
    changes = [{"op": "add", "text": f"Ana: {one['text']}", "topic": "preferences", "from": [one["n"]]} for one in told]
    return json.dumps({"changes": changes})


def settings(**learn: Any) -> dict[str, Any]:
    return {
        "models": {
            "helper": {"provider": "openai", "model": "helper", "base_url": "http://127.0.0.1:9", "api_key": "x"}
        },
        "roles": {"helper": "helper", "chat": "offline"},
        "auth": {"tokens": TOKENS},
        "memory": {"learn": learn},
    }


@asynccontextmanager
async def learning(
    folder: Path, says: Callable[[dict[str, Any]], str] = repeats, *, clock: Clock | None = None, **learn: Any
) -> AsyncGenerator[tuple[Client, Helper]]:
    helper = Helper(says)
    async with running(folder / "data", config(**settings(**learn)), clock=clock) as client:
        client.daemon.parts.models.put(helper)
        client.token = "ana"
        await client.daemon.parts.memory.open()
        yield client, helper


async def learnt(client: Client) -> None:
    """Waits until nothing is left to learn from."""
    async with asyncio.timeout(PATIENCE_S):
        while not client.daemon.parts.remember.idle:
            await asyncio.sleep(0.005)


async def texts(client: Client, who: str = "ana") -> list[str]:
    _, found = await call(client, who, "GET", "/v1/memories")
    client.token = "ana"
    return sorted(memory["text"] for memory in found["memories"])


async def runs(client: Client, who: str = "ana") -> list[dict[str, Any]]:
    _, found = await call(client, who, "GET", "/v1/learning-runs")
    client.token = "ana"
    return found["runs"]


async def batches_until(learned: LearningStore, clock: ManualClock, until_at: datetime) -> None:
    """Lets time pass, until a batch has begun at that time or later."""
    async with asyncio.timeout(PATIENCE_S):
        while (last := await learned.batch_at()) is None or last < until_at:
            await clock.advance(300)
            await asyncio.sleep(0.002)


async def test_after_a_reply_only_those_are_learnt_from_who_want_it(tmp_path: Path) -> None:
    async with learning(tmp_path) as (client, helper):
        await client.say("I drink oat milk")
        await learnt(client)
        assert helper.asked == []
        status, chosen = await call(client, "ana", "PATCH", "/v1/memory-settings", {"learn": {"after_reply": True}})
        assert (status, chosen["learn"]) == (200, {"after_reply": True, "max_changes": 2, "own": ["after_reply"]})
        await client.say("I play the cello")
        await learnt(client)
        assert await texts(client) == ["Ana: I drink oat milk", "Ana: I play the cello"]
        assert [one["text"] for one in helper.asked[0]["conversation"] if one["who"] == "user"] == [
            "I drink oat milk",
            "I play the cello",
        ]
        await client.say("I live in Brno")
        await learnt(client)
        assert [one["text"] for one in helper.asked[1]["conversation"] if one["who"] == "user"] == ["I live in Brno"]
        (newest, first) = await runs(client)
        assert (newest["trigger"], newest["state"], len(newest["created"])) == ("reply", "done", 1)
        assert (first["first_seq"], len(first["created"])) == (1, 2)
        assert await runs(client, "bob") == []
        await call(client, "ana", "PATCH", "/v1/memory-settings", {"learn": {"max_changes": 0}})
        await client.say("I have a dog")
        await learnt(client)
        assert len(helper.asked) == 2


async def test_the_rest_is_learnt_when_a_session_ends_and_never_twice(tmp_path: Path) -> None:
    async with learning(tmp_path) as (client, helper):
        await client.say("I drink oat milk")
        await client.say("/new")
        await learnt(client)
        assert await texts(client) == ["Ana: I drink oat milk"]
        session = (await runs(client))[0]["session"]
        await client.call("POST", f"/v1/sessions/{KEY}/resume", {"session": session})
        await client.say("/new")
        await learnt(client)
        assert len(helper.asked) == 1


async def test_what_is_about_to_be_summarised_is_learnt_from(tmp_path: Path) -> None:
    async with learning(tmp_path) as (client, helper):
        for number in range(30):
            await client.say(f"I own house number {number} in a long street with many other houses " + "x " * 200)
        status, _ = await client.call("POST", f"/v1/sessions/{KEY}/compact", {})
        assert status == 200
        await learnt(client)
        (run,) = await runs(client)
        assert (run["trigger"], len(run["created"]), run["refused"].count("over the limit of changes")) == (
            "compaction",
            2,
            len(helper.asked[0]["conversation"]) // 2 - 2,
        )
        record = next(client.daemon.parts.store.index.all())
        assert record.generation == 2
        await client.say("/new")
        await learnt(client)
        heard = [one["n"] for question in helper.asked for one in question["conversation"]]
        assert len(heard) == len(set(heard)) == 60


async def test_without_a_helper_nothing_happens(tmp_path: Path) -> None:
    plain = {"auth": {"tokens": TOKENS}, "roles": {"chat": "offline"}, "memory": {"learn": {"after_reply": True}}}
    async with running(tmp_path / "data", config(**plain)) as client:
        client.token = "ana"
        await client.say("I drink oat milk")
        await client.say("/new")
        await learnt(client)
        _, found = await call(client, "ana", "GET", "/v1/learning-runs")
        assert found == {"runs": [], "learns": False}
        tried = {"description": "drinks", "sentences": ["I drink tea"]}
        status, refused = await call(client, "ana", "POST", "/v1/topics/try", tried)
        assert (status, "roles.helper" in refused["detail"]) == (409, True)


def heard_by(helper: Helper) -> list[str]:
    """What the person has said, of all the helper was asked about."""
    return [one["text"] for asked in helper.asked for one in asked["conversation"] if one["who"] == "user"]


async def test_what_is_said_while_a_person_has_learning_off_is_never_learnt(tmp_path: Path) -> None:
    off, on = {"learn": {"max_changes": 0}}, {"learn": {"max_changes": None}}
    async with learning(tmp_path, batch_messages=1) as (client, helper):
        await call(client, "ana", "PATCH", "/v1/memory-settings", off)
        for text in ("I was fired", "I have an illness"):
            await client.say(text)
            await client.call("POST", f"/v1/sessions/{KEY}/compact", {})
            await client.say("/new")
        await client.say("I am in debt")
        await learnt(client)
    async with learning(tmp_path, batch_messages=1) as (client, helper):
        await call(client, "ana", "PATCH", "/v1/memory-settings", on)
        await call(client, "ana", "PATCH", "/v1/memory-settings", on)
        await client.say("I play the cello")
        await client.call("POST", f"/v1/sessions/{KEY}/compact", {})
        await client.say("/new")
        await learnt(client)
        assert heard_by(helper) == ["I play the cello"]
    async with learning(tmp_path, batch_messages=1) as (client, helper):
        await learnt(client)
        _, run = await call(client, "ana", "POST", "/v1/memory-runs", {"kind": "batch"})

        async def ended() -> str:
            return (await call(client, "ana", "GET", "/v1/memory-runs"))[1]["runs"][0]["state"]

        await until_equal(ended, "done")
        assert (run["kind"], heard_by(helper)) == ("batch", [])
        assert await texts(client) == ["Ana: I play the cello"]


async def noted(client: Client) -> None:
    """Whoever is learnt from, this start has noted whether anything is learnt."""
    parts = client.daemon.parts
    await parts.remember.choices(await parts.memory.open(), user_pool("ana"))


async def test_a_new_helper_or_limit_learns_from_what_is_said_then(tmp_path: Path) -> None:
    only_replies = {"at_end": False, "before_compaction": False, "batch": None, "after_reply": True}
    offs = (
        {"roles": {"chat": "offline"}},
        {"memory": {"learn": {"max_changes": 0}}},
        {"memory": {"learn": only_replies}},
    )
    for number, before in enumerate(offs):
        folder = tmp_path / str(number)
        async with running(folder / "data", config(**(settings() | before))) as client:
            client.token = "ana"
            await call(client, "ana", "PATCH", "/v1/memory-settings", {"learn": {"after_reply": False}})
            await client.say("I have an illness")
            await noted(client)
        async with learning(folder) as (client, helper):
            await client.say("I play the cello")
            await noted(client)
        async with learning(folder) as (client, helper):
            await client.say("/new")
            await learnt(client)
            assert heard_by(helper) == ["I play the cello"], before


async def test_the_batch_takes_sessions_in_which_enough_was_said_and_each_once(tmp_path: Path) -> None:
    clock = ManualClock(START)
    async with learning(tmp_path, clock=clock, at_end=False, batch="30 * * * *") as (client, helper):
        for number in range(5):
            await client.say(f"I own house number {number} in this street")
        client.token = "bob"
        for number in range(4):
            await client.say(f"I own boat number {number} on this lake", key="agent:main:web:direct:bob")
        client.token = "ana"
        learned = (await client.daemon.parts.memory.open()).store.learning
        await batches_until(learned, clock, START + timedelta(hours=1))
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await runs(client)):
                await asyncio.sleep(0.01)
        assert [(run["trigger"], run["state"], len(run["created"])) for run in found] == [("batch", "done", 2)]
        assert await runs(client, "bob") == []
        _, jobs = await call(client, "ana", "GET", "/v1/memory-runs")
        assert [(job["kind"], job["automatic"]) for job in jobs["runs"]] == [("batch", True)]
        run = jobs["runs"][0]
        _, told = await call(client, "ana", "GET", f"/v1/memory-runs/{run['id']}")
        assert [(change["action"], change["before"]) for change in told["changes"]] == [("added", None)] * 2
        assert told["can_undo"]
        _, jobs = await call(client, "bob", "GET", "/v1/memory-runs")
        assert jobs["runs"] == []
        asked = len(helper.asked)
        await batches_until(learned, clock, clock.now() + timedelta(hours=1))
        _, jobs = await call(client, "ana", "GET", "/v1/memory-runs")
        assert (len(jobs["runs"]), len(helper.asked)) == (1, asked)
        _, undone = await call(client, "ana", "POST", f"/v1/memory-runs/{run['id']}/undo")
        assert (undone["back"], undone["left"]) == (2, 0)
        _, page = await call(client, "ana", "GET", "/v1/memories")
        assert page["memories"] == []


async def test_a_reply_does_not_wait_for_learning(tmp_path: Path) -> None:
    async with learning(tmp_path, after_reply=True) as (client, helper):
        helper.going.clear()
        await client.say("I drink oat milk")
        async with asyncio.timeout(PATIENCE_S):
            while not helper.asked:
                await asyncio.sleep(0.005)
            for number in range(20):
                await client.say(f"I own house number {number}")
        assert len(helper.asked) == 1
        helper.going.set()
        await learnt(client)
        assert len(helper.asked) == 2


async def test_a_description_is_tried_out_and_nothing_is_written(tmp_path: Path) -> None:
    def drinks(question: dict[str, Any]) -> str:
        assert [topic["name"] for topic in question["topics"]] == ["drinks"]
        return json.dumps(
            {"changes": [{"op": "add", "text": "The person drinks oat milk", "from": [2], "importance": 3}]}
        )

    async with learning(tmp_path, drinks) as (client, _):
        body = {"name": "drinks", "description": "What the person drinks.", "sentences": ["hello", "I drink oat milk"]}
        status, tried = await call(client, "ana", "POST", "/v1/topics/try", body)
        assert (status, tried["memories"]) == (
            200,
            [{"text": "The person drinks oat milk", "importance": 3, "sentences": [2]}],
        )
        assert await texts(client) == []
        assert await runs(client) == []


async def test_in_a_group_everybody_s_memory_learns_from_their_own_words(tmp_path: Path) -> None:
    group = "agent:main:web:group:g"
    given = settings(after_reply=True)
    given["sessions"] = {"identities": {"ana": ["web:a1"], "bob": ["web:b1"]}}
    given["auth"] = {"tokens": [*TOKENS, {"name": "web", "token": "web", "role": "frontend"}]}
    async with running(tmp_path / "data", config(**given)) as client:
        helper = Helper(repeats)
        client.daemon.parts.models.put(helper)
        client.token = "web"
        await client.say("I drink oat milk", key=group, sender="a1")
        await client.say("I play the cello", key=group, sender="b1")
        await client.say("I am a stranger here", key=group, sender="c1")
        await learnt(client)
        assert await texts(client, "ana") == ["Ana: I drink oat milk"]
        assert await texts(client, "bob") == ["Ana: I play the cello"]
        heard = [one["text"] for question in helper.asked for one in question["conversation"]]
        assert "I am a stranger here" not in heard


async def test_what_was_not_learnt_before_a_stop_is_after_the_next_start(tmp_path: Path) -> None:
    def away(_: dict[str, Any]) -> str:
        return "down"

    async with learning(tmp_path, away, after_reply=True) as (client, _):
        await client.say("I drink oat milk")
        await learnt(client)
        failed = {(run["state"], run["problem"]) for run in await runs(client)}  # the look back at the start may be one
        assert failed == {("failed", "The model is down.")}
        assert await texts(client) == []
    helper = Helper(repeats)
    parts = Parts(config(**settings(after_reply=True)), tmp_path / "data", environ={})
    parts.models.put(helper)
    daemon = Daemon(parts)
    task = asyncio.create_task(daemon.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not helper.asked or not parts.remember.idle:
                await asyncio.sleep(0.01)
    finally:
        daemon.stop()
        await task
    assert [one["text"] for one in helper.asked[0]["conversation"] if one["who"] == "user"] == ["I drink oat milk"]


async def test_a_deleted_session_is_not_learnt_from_and_leaves_no_trace_of_it(tmp_path: Path) -> None:
    async with learning(tmp_path, after_reply=True) as (client, helper):
        await client.say("I drink oat milk")
        await learnt(client)
        assert (await client.call("DELETE", f"/v1/sessions/{KEY}"))[0] == 200
        async with asyncio.timeout(PATIENCE_S):
            while (await runs(client))[0]["session"] is not None:
                await asyncio.sleep(0.02)
        memories = await client.daemon.parts.memory.open()
        assert await memories.store.learning.marks() == {}
        assert len(helper.asked) == 1


async def test_a_session_that_is_deleted_while_it_is_learnt_from_becomes_no_memory_and_leaves_no_trace(
    tmp_path: Path,
) -> None:
    async with learning(tmp_path, after_reply=True) as (client, helper):
        helper.going.clear()
        await client.say("I drink oat milk")
        await until(lambda: helper.asked)
        assert (await client.call("DELETE", f"/v1/sessions/{KEY}"))[0] == 200
        helper.going.set()
        await learnt(client)
        learned = (await client.daemon.parts.memory.open()).store.learning
        await until_equal(learned.sessions, set[str]())
        assert await texts(client) == []
        assert await learned.marks() == {}


async def test_a_start_forgets_what_is_kept_of_sessions_that_are_gone(tmp_path: Path) -> None:
    async with learning(tmp_path, after_reply=True) as (client, _):
        await client.say("I drink oat milk")
        await learnt(client)
        assert len(await runs(client)) == 1
    for name in ("sessions.json", "sessions.journal.jsonl"):
        (tmp_path / "data" / name).unlink(missing_ok=True)
    shutil.rmtree(tmp_path / "data" / "transcripts")
    async with learning(tmp_path, after_reply=True) as (client, _):
        learned = (await client.daemon.parts.memory.open()).store.learning
        await until_equal(learned.sessions, set[str]())
        assert [run["session"] for run in await runs(client)] == [None]
        assert await texts(client) == ["Ana: I drink oat milk"]


async def test_a_person_starts_their_own_batch(tmp_path: Path) -> None:
    async with learning(tmp_path, at_end=False) as (client, helper):
        for number in range(5):
            await client.say(f"I own house number {number} in this street")
        for kept in (2, 0):
            _, job = await call(client, "ana", "POST", "/v1/memory-runs", {"kind": "batch"})
            async with asyncio.timeout(PATIENCE_S):
                while job["state"] == "running":
                    await asyncio.sleep(0.01)
                    _, job = await call(client, "ana", "GET", f"/v1/memory-runs/{job['id']}")
            assert (job["state"], job["counts"].get("added", 0)) == ("done", kept)
        assert len(helper.asked) == 1
