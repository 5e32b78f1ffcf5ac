"""What was said is found by meaning, too: in a whole daemon, by those who may see it, until it is deleted."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from gateway.said_source import indexable
from memory.embed import HashEmbedder
from memory.index import point_of
from sessions.found import Said
from sessions.heard import Heard
from tests.journeys.daemon import KEY, Client, config, running
from tests.memory.leftovers import files_with_text, files_with_vector
from tests.patience import until_equal

if TYPE_CHECKING:
    from pathlib import Path

    from memory.embed import Vectors

TOKENS: list[dict[str, Any]] = [
    {"name": "root", "token": "root-token-1234567890", "role": "admin"},
    {"name": "ana", "token": "ana-token-1234567890", "role": "user", "user": "ana"},
    {"name": "bob", "token": "bob-token-1234567890", "role": "user", "user": "bob"},
    {
        "name": "bridge",
        "token": "bridge-token-123456",
        "role": "frontend",
        "key_prefixes": ["agent:main:web:direct:ana"],
    },
]
BOBS = "agent:main:web:direct:bob"
SAID = "The photographs of the wedding are in the attic"
NEAR = "photonics"  # shares no stem with what was said, and the first five letters, which the offline model compares
OTHERS = ("Green tea without sugar, please", "The train to Brno leaves at nine", "Invoices are due on Friday")
SAID_AND_ANSWERED = 2 * (1 + len(OTHERS) + 1)


def settings(**index: Any) -> Any:
    memory = {"index": {"check_s": 0.1, **index}, "search": {"relevance": 0.3}}
    return config(roles={"embedding": "offline"}, auth={"tokens": TOKENS}, memory=memory)


def speaks(client: Client, name: str) -> None:
    client.token = next(one["token"] for one in TOKENS if one["name"] == name)


async def until_served(client: Client, messages: int | None = None) -> None:
    """Until the index answers, and holds so many messages."""
    said = client.daemon.parts.said

    async def serves() -> bool:
        if said.status is None or said.status.state != "serving":
            return False
        await said.indexer.caught_up()  # type: ignore[union-attr]
        return messages in (None, said.status.total)

    await until_equal(serves, True)


async def found(client: Client, query: str, key: str | None = None) -> list[str]:
    path = "/v1/search" if key is None else f"/v1/sessions/{key}/search"
    return [hit["text"] for hit in (await client.get(f"{path}?q={query}"))["hits"]]


async def talked(client: Client) -> None:
    speaks(client, "ana")
    for text in (SAID, *OTHERS):
        await client.say(text)
    speaks(client, "bob")
    await client.say("The photographer of our wedding was late", key=BOBS)
    await until_served(client, SAID_AND_ANSWERED)


async def vector_of(text: str) -> Vectors:
    (row,) = await HashEmbedder().embed_passages([text])
    return row


async def test_those_who_may_see_a_message_find_it_by_meaning_and_nobody_else(tmp_path: Path) -> None:
    async with running(tmp_path, settings()) as client:
        await talked(client)
        for who in ("ana", "bridge"):
            speaks(client, who)
            assert (await found(client, NEAR))[0] == SAID
            assert (await found(client, NEAR, KEY))[0] == SAID
            assert "The photographer of our wedding was late" not in await found(client, NEAR)
        speaks(client, "bob")
        assert SAID not in await found(client, NEAR)
        speaks(client, "root")
        assert {SAID, "The photographer of our wedding was late"} <= set(await found(client, NEAR))
        speaks(client, "ana")
        status, memories = await client.call("POST", "/v1/memories/search", {"query": NEAR, "mode": "vector"})
        assert (status, memories["memories"]) == (200, [])
        assert (await client.get("/readyz"))["parts"]["messages"]["state"] == "ok"


async def test_a_restart_knows_what_was_said_and_takes_in_what_came_since(tmp_path: Path) -> None:
    async with running(tmp_path, settings()) as client:
        await talked(client)
    async with running(tmp_path, settings()) as client:
        await until_served(client, SAID_AND_ANSWERED)
        speaks(client, "ana")
        await client.say("The accordionist lives next door")
        await until_served(client, SAID_AND_ANSWERED + 2)
        assert (await found(client, "accordance"))[0] == "The accordionist lives next door"
        assert (await found(client, NEAR))[0] == SAID


async def test_no_vector_of_a_deleted_chat_is_in_any_file(tmp_path: Path) -> None:
    vector, other = await vector_of(f"ana: {SAID}"), await vector_of("bob: The photographer of our wedding was late")
    async with running(tmp_path, settings()) as client:
        await talked(client)
        assert files_with_vector(tmp_path / "index", vector)
        speaks(client, "ana")
        status, _ = await client.call("DELETE", f"/v1/sessions/{KEY}")
        assert status == 200
        for folder in (tmp_path / "index", tmp_path / "cache"):
            assert files_with_vector(folder, vector) == []
            assert files_with_text(folder, KEY) == []
        assert files_with_vector(tmp_path / "index", other)
        speaks(client, "root")
        assert SAID not in await found(client, NEAR)
    async with running(tmp_path, settings()) as client:
        await until_served(client, 2)
    assert files_with_vector(tmp_path, vector) == []


async def test_only_the_newest_messages_have_a_vector(tmp_path: Path) -> None:
    async with running(tmp_path, settings(messages=20)) as client:
        speaks(client, "ana")
        await client.say(SAID)
        await until_served(client)
        for number in range(30):
            await client.say(f"Number {number} of many")
        await until_served(client)
        await asyncio.sleep(1.2)
        await until_served(client)
        assert 15 <= client.daemon.parts.said.status.total <= 24  # type: ignore[union-attr]
        assert SAID not in await found(client, NEAR)
        assert SAID in await found(client, "photographs")
    async with running(tmp_path, settings(messages=20)) as client:
        await until_served(client)
        assert 15 <= client.daemon.parts.said.status.total <= 20  # type: ignore[union-attr]
    async with running(tmp_path, settings(messages=0)) as client:
        speaks(client, "ana")
        assert SAID in await found(client, "photographs")
        assert client.daemon.parts.said.status is None


@pytest.mark.parametrize("harm", ["vectors deleted", "vectors overwritten", "archive deleted"])
async def test_harmed_while_it_runs_it_is_made_anew_and_words_serve(tmp_path: Path, harm: str) -> None:
    async with running(tmp_path, settings()) as client:
        await talked(client)
        match harm:
            case "vectors deleted":
                shutil.rmtree(tmp_path / "index")
            case "vectors overwritten":
                for file in (tmp_path / "index" / "said").rglob("*.sqlite3"):
                    file.write_bytes(b"\0" * file.stat().st_size)
            case _:
                for file in tmp_path.glob("search.db*"):
                    file.unlink(missing_ok=True)
                client.daemon.parts.archive.check()
        speaks(client, "ana")
        await client.say("Is anybody there?")
        assert SAID in await found(client, "photographs")
        if harm == "vectors overwritten":
            client.daemon.parts.said.indexer.rebuild()  # type: ignore[union-attr]
        await until_served(client, SAID_AND_ANSWERED + 2)
        assert (await found(client, NEAR))[0] == SAID


def test_a_point_is_of_one_text_in_one_chat() -> None:
    def heard(text: str, key: str = KEY, name: str | None = None) -> Heard:
        from datetime import UTC, datetime

        said = Said(id=1, session="s", seq=1, at=datetime(2026, 1, 1, tzinfo=UTC), role="user", name=name, text=text)
        return Heard(said, key, None)

    items = [indexable(one) for one in (heard("a"), heard("b"), heard("a", BOBS), heard("a", name="Ana"))]
    assert len({point_of(item.id, item.pool, item.text) for item in items}) == 4
    assert len(indexable(heard("x" * 100_000)).text) < 5_000
