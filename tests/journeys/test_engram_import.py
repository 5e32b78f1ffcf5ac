"""A project of Engram is copied: whole, each memory once, whatever is killed meanwhile; against a stand-in."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from engram import AsyncEngramClient, FetchRetrieval

from tests.crash.kills import Victim, free_port
from tests.journeys.daemon import Client, running
from tests.journeys.engram_standin import KEY, EngramStandIn, memory, topic
from tests.journeys.test_engram import PROJECTS, TOKENS, settings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

GROUPS: list[dict[str, Any]] = [
    {
        "group_id": "1",
        "name": "default",
        "topics": [
            topic("UserKnowledge"),
            topic("ConversationSummary", bounded=True, by=("conversation_id",)),
            topic("Rules", user_scoped=False),
        ],
    },
    {"group_id": "2", "name": "support", "topics": [topic("notes")]},
]

USERS = 200 if os.environ.get("SOAK") else 60
"""With fifty memories each."""


def of_users(count: int, each: int) -> list[dict[str, Any]]:
    """`each` memories of so many users: half of them about one thing, some summaries, some of another group."""
    out: list[dict[str, Any]] = []
    for user in range(count):
        for n in range(each):
            number, who = user * each + n, f"user{user}@example.com"
            if n % 10 == 0:
                out.append(
                    memory(number, f"Chat {n} of {who}.", "ConversationSummary", who, conversation_id=f"chat{n}")
                )
            elif n % 10 == 1:
                out.append(memory(number, f"Note {n} about {who}.", "notes", who, group="support"))
            else:
                out.append(memory(number, f"Fact {n} about {who}.", "UserKnowledge", who))
    return out


class Importer:
    """`sessiond import engram` as a process of its own."""

    def __init__(self, source: EngramStandIn, daemon: str, *words: str, token: str = "eng_shop") -> None:
        self._token = token
        self._words = ["import", "engram", "--url", source.url, "--key", KEY, "--to", daemon, *words]
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        environ = {"PATH": os.environ["PATH"], "SESSIOND_TOKEN": self._token}
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gateway",
            *self._words,
            env=environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def ended(self) -> tuple[int, str, str]:
        assert self.process is not None
        out, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, out.decode(), err.decode()

    async def run(self) -> tuple[int, str, str]:
        await self.start()
        return await self.ended()


@asynccontextmanager
async def both(
    folder: Path, memories: list[dict[str, Any]], groups: list[dict[str, Any]] = GROUPS, **more: Any
) -> AsyncGenerator[tuple[Client, EngramStandIn, AsyncEngramClient]]:
    async with (
        EngramStandIn(groups, memories, **more) as source,
        running(folder / "data", settings()) as daemon,
        AsyncEngramClient(base_url=f"{daemon.url}/engram", api_key="eng_shop") as client,
    ):
        yield daemon, source, client


async def kept(daemon: str, token: str = "root") -> list[dict[str, Any]]:
    """Every active memory of the daemon."""
    import aiohttp

    found: list[dict[str, Any]] = []
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        cursor = ""
        while True:
            async with session.get(f"{daemon}/v1/memories?limit=200{cursor}") as response:
                page = await response.json()
            found += page["memories"]
            if page["next"] is None:
                return found
            cursor = f"&cursor={page['next']}"


async def test_a_project_is_copied_with_its_topics_ids_and_times(tmp_path: Path) -> None:
    memories = [
        memory(1, "Ana prefers trains.", "UserKnowledge", "ana"),
        memory(2, "About a refund.", "ConversationSummary", "ana", conversation_id="c1"),
        memory(3, "About a parcel.", "ConversationSummary", "ana", conversation_id="c2"),
        memory(4, "Refunds need a receipt.", "Rules", None),
        memory(5, "Bob shouts.", "notes", "bob", group="support"),
    ]
    async with both(tmp_path, memories, fails=3) as (_, source, client):
        code, out, err = await Importer(source, client_url(client), "--user", "ana", "--user", "bob").run()
        assert code == 0, err
        assert "5 memories of 2 users read: 5 added" in out
        for one in memories:
            found = await client.memories.get(one["id"], user_id=one.get("user_id"), group=one["group"])
            shown = (found.content, found.topic, found.group, found.user_id, found.properties)
            assert shown == (
                one["content"],
                one["topic"],
                one["group"],
                one.get("user_id"),
                one.get("properties"),
            )
            assert found.created_at == one["created_at"].replace("Z", ".000Z")
        hits = await client.memories.search(query="trains", user_id="ana", topics=["UserKnowledge"])
        assert [hit.id for hit in hits] == [memories[0]["id"]]
        fresh = await client.memories.search(query="trains", user_id="somebody new", topics=["UserKnowledge"])
        assert fresh.total == 0
        again = await Importer(source, client_url(client), "--user", "ana", "--user", "bob").run()
        assert "0 added, 5 here already" in again[1]


@pytest.mark.timeout(400)
async def test_an_import_of_many_that_is_interrupted_twice_brings_each_once(tmp_path: Path) -> None:
    memories = of_users(USERS, 50)
    users = tmp_path / "users.txt"
    users.write_text("\n".join(f"user{n}@example.com" for n in range(USERS)))
    (tmp_path / "sessiond.yaml").write_text(
        yaml.safe_dump(
            {"auth": {"tokens": TOKENS}, "engram": {"projects": PROJECTS}, "server": {"rate_limit_per_minute": None}}
        )
    )
    victim = Victim(tmp_path / "data", tmp_path / "sessiond.yaml", free_port())
    await victim.start()
    async with EngramStandIn(GROUPS, memories) as source:
        importer = Importer(source, victim.url, "--users", str(users))
        limit = 0

        async def kill_the_importer() -> None:
            if source.requests == limit and importer.process is not None:
                importer.process.kill()

        source.before = kill_the_importer
        limit = USERS * 5 // 4
        assert (await importer.run())[0] == -9
        first = len(await kept(victim.url))
        assert 0 < first < len(memories)
        source.before = None

        async def kill_the_daemon() -> None:
            if source.requests == limit:
                await victim.kill()

        limit = source.requests + USERS
        source.before = kill_the_daemon
        code, _, err = await importer.run()
        assert (code, "Begin again" in err) == (3, True), err
        source.before = None
        await victim.start()
        second = len(await kept(victim.url))
        assert first < second < len(memories)
        before = source.requests
        code, _, err = await importer.run()
        assert code == 0, err
        assert source.requests - before < USERS * 5 // 2
        found = await kept(victim.url)
        assert len(found) == len({one["id"] for one in found}) == len(memories)
        assert sorted(one["text"] for one in found) == sorted(one["content"] for one in memories)
    await victim.stop()


@pytest.mark.parametrize("fetches_all", [True, False])
async def test_what_is_longer_than_one_answer_is_copied_whole(tmp_path: Path, fetches_all: bool) -> None:
    memories = [
        memory(n, f"Shelf {n % 30} of room {n // 30} holds box{n}.", "UserKnowledge", "ana") for n in range(450)
    ]
    memories += [
        memory(1000 + n, f"Chat {n} about thing {n % 25}.", "ConversationSummary", "ana", conversation_id=f"c{n}")
        for n in range(130)
    ]
    async with both(tmp_path, memories, fetches_all=fetches_all) as (daemon, source, client):
        code, out, err = await Importer(source, client_url(client), "--user", "ana").run()
        assert "580 memories of 1 users read: 580 added" in out, err
        assert len(await kept(daemon.url)) == 580
        assert (code, "There may be more" in err) == ((0, False) if fetches_all else (1, True))


async def test_users_a_server_shows_need_not_be_named_and_others_must(tmp_path: Path) -> None:
    memories = of_users(3, 10)
    async with both(tmp_path, memories, shows_anybody=True) as (daemon, source, client):
        code, out, err = await Importer(source, client_url(client)).run()
        assert (code, "30 memories of 3 users read: 30 added" in out) == (0, True), out + err
        assert len(await kept(daemon.url)) == 30
    async with both(tmp_path / "closed", memories) as (daemon, source, client):
        code, _, err = await Importer(source, client_url(client)).run()
        assert (code, "--user" in err) == (2, True)


async def test_what_was_deleted_or_corrected_here_stays_so(tmp_path: Path) -> None:
    memories = [memory(n, f"Fact {n} about Ana.", "UserKnowledge", "ana") for n in range(4)]
    memories.append(memory(9, "About a refund.", "ConversationSummary", "ana", conversation_id="c1"))
    async with both(tmp_path, memories) as (daemon, source, client):
        importer = Importer(source, client_url(client), "--user", "ana")
        assert (await importer.run())[0] == 0
        await client.memories.delete(memories[0]["id"], user_id="ana")
        daemon.token = "root"
        found = {one["text"]: one["id"] for one in await kept(daemon.url)}
        assert (await daemon.call("DELETE", f"/v1/memories/{found['Fact 1 about Ana.']}"))[0] == 200
        for text in ("Fact 2 about Ana.", "About a refund."):
            status, _ = await daemon.call("PATCH", f"/v1/memories/{found[text]}", {"text": f"{text} Mended."})
            assert status == 200
        code, out, _ = await importer.run()
        assert (code, "0 added, 3 here already, 2 deleted here before" in out) == (0, True), out
        expected = {"Fact 2 about Ana. Mended.", "Fact 3 about Ana.", "About a refund. Mended."}
        assert {one["text"] for one in await kept(daemon.url)} == expected


async def test_one_that_cannot_be_kept_keeps_no_other_out_and_is_told(tmp_path: Path) -> None:
    memories = [memory(n, f"Fact {n} about Ana.", "UserKnowledge", "ana") for n in range(5)]
    memories[2]["content"] = "long " * 3000
    memories[3]["content"] = ""
    memories[4]["content"] = "The key is sk-ant-api03-" + "Ab1" * 30
    async with both(tmp_path, memories) as (daemon, source, client):
        code, out, err = await Importer(source, client_url(client), "--user", "ana").run()
        assert (code, "3 added, 0 here already, 0 deleted here before, 2 refused" in out) == (1, True), out + err
        assert memories[2]["id"] in err
        assert memories[3]["id"] in err
        assert "1 held secrets" in err
        assert "Ab1Ab1" not in str(await kept(daemon.url))


async def test_another_project_of_the_same_ids_keeps_its_own(tmp_path: Path) -> None:
    memories = [memory(1, "Ana prefers trains.", "UserKnowledge", "ana")]
    async with both(tmp_path, memories) as (daemon, source, client):
        assert (await Importer(source, client_url(client), "--user", "ana").run())[0] == 0
        body = {"groups": GROUPS, "memories": [{**memories[0], "content": "Other words."}]}
        daemon.token = "eng_bank"
        status, told = await daemon.call("POST", "/engram/v1/import", body)
        assert (status, told["added"], told["there"]) == (200, 1, 0)
        async with AsyncEngramClient(base_url=f"{daemon.url}/engram", api_key="eng_bank") as bank:
            found = await bank.memories.search(query="x", user_id="ana", retrieval_config=FetchRetrieval())
            assert [one.content for one in found] == ["Other words."]
        mine = await client.memories.get(memories[0]["id"], user_id="ana")
        assert mine.content == "Ana prefers trains."


async def test_an_administrator_names_the_project_and_nobody_fills_that_of_another(tmp_path: Path) -> None:
    memories = [memory(1, "Ana prefers trains.", "UserKnowledge", "ana")]
    async with both(tmp_path, memories) as (_, source, client):
        words = ("--user", "ana", "--project", "shop")
        for token, given, expected, word in [
            ("root", words[:2], 4, "shop, bank"),
            ("bridge", words, 4, "engram.projects"),
            ("eng_bank", words, 4, "no project 'shop'"),
            ("eng_shop", (*words, "--key", "wrong"), 4, "invalid API key"),
            ("root", words, 0, "1 added"),
        ]:
            code, out, err = await Importer(source, client_url(client), *given, token=token).run()
            assert (code, word in out + err) == (expected, True), (token, given, out, err)
        assert (await client.memories.search(query="trains", user_id="ana")).total == 1


def client_url(client: AsyncEngramClient) -> str:
    return client._config.base_url.removesuffix("/engram")
