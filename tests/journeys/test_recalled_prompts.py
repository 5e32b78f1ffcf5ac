"""The prompts of long conversations with recall: where memories stand, how many, how often; in a whole daemon."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gateway.recall_sources import ALWAYS_LIMIT
from tests.bench.standin import Pace, StandIn
from tests.journeys.daemon import KEY, Client, config, model_settings, running
from tests.journeys.test_recall import TOKENS, elsewhere, remember, settings, trailing
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config import Config
    from tests.bench.standin import Recorded

TURNS = 200
SLOWER = Pace(first_token_ms=40, tokens=3)
ANA, BOB = (token["token"] for token in TOKENS)


def system(request: Recorded) -> str:
    first = request.body["messages"][0]
    assert first["role"] == "system"
    return first["content"]


def history(request: Recorded) -> list[Any]:
    """The messages of a request without the trailing block."""
    messages = request.body["messages"]
    return messages[:-1] if trailing(request) else messages


def ids(request: Recorded) -> list[str]:
    return [one["id"] for one in trailing(request)]


def times_shown(request: Recorded, text: str) -> int:
    return json.dumps(request.body["messages"], ensure_ascii=False).count(text)


async def recalls(client: Client, key: str = KEY) -> list[list[str]]:
    """The ids of each recall entry."""
    return [e["shown"]["memories"] for e in await client.transcript(key) if e["type"] == "recall"]


async def test_over_two_hundred_turns_memories_stand_behind_the_newest_message_only_and_the_prefix_stays(
    tmp_path: Path,
) -> None:
    async with StandIn(Pace(tokens=3)) as standin, running(tmp_path, settings(standin, window=1_000_000)) as client:
        client.token = ANA
        for number in range(40):
            await remember(client, f"Bed{number} of the garden: plant{number} grows there")
        for number in range(TURNS):
            match number % 10:
                case 3:
                    await client.say(f'call:MemorySearch {{"query": "plant{number % 40} garden"}}')
                case 6:
                    await client.say('call:current_time {"timezone": "Europe/Prague"}')
                case _:
                    await client.say(f"Tell me of the garden and of plant{number * 7 % 40}")
        requests = list(standin.requests)
        assert len(requests) == TURNS + 2 * TURNS // 10
        assert sum(1 for request in requests if trailing(request)) > TURNS // 2
        seen: set[str] = set()
        for request in requests:
            assert len(ids(request)) == len(set(ids(request))) <= 13
            seen |= set(ids(request))
            told = json.dumps([m for m in history(request) if m["role"] != "tool"], ensure_ascii=False)
            assert "grows there" not in told
            for one in trailing(request):
                assert times_shown(request, one["text"]) == 1, one
        assert len(seen) > 20
        for before, after in pairwise(requests):
            assert after.body["tools"] == before.body["tools"]
            assert history(after)[: len(history(before))] == history(before)


async def test_a_turn_begins_with_ten_memories_and_twenty_thousand_bytes_at_most(
    tmp_path: Path, standin: StandIn
) -> None:
    async with running(tmp_path, settings(standin)) as client:
        client.token = ANA
        for number in range(14):
            await remember(client, f"Harbour note {number}: the harbour has pier {number}")
        await client.say("What of the harbour?")
        assert len(ids(standin.requests[-1])) == 10
        for number in range(6):
            await remember(client, f"Lighthouse chapter {number}: " + f"lighthouse{number} keeper " * 220)
        await client.say("lighthouse chapter keeper")
        shown = trailing(standin.requests[-1])
        assert sum(len(one["text"].encode()) for one in shown) <= 20_000
        assert any("Lighthouse" in one["text"] for one in shown)


async def test_during_a_turn_what_tools_say_is_searched_three_at_a_time_and_what_is_shown_takes_nobodys_place(
    tmp_path: Path,
) -> None:
    (tmp_path / "workspaces/main/memory").mkdir(parents=True)
    (tmp_path / "workspaces/main/memory/trip.md").write_text("Zermatt\n", "utf-8")
    async with StandIn(SLOWER) as standin, running(tmp_path, settings(standin, limit=1)) as client:
        client.token = ANA
        shown = await remember(client, "Zermatt trip in one word: snow", importance=10)
        others = {await remember(client, f"Zermatt fact {n}, of a hut") for n in range(5)}
        await client.daemon.parts.workspaces.files.settled()
        rounds = "\n".join(['MemoryFileRead {"path": "memory/trip.md"}'] * 4)
        await client.say(f"calls: trip snow\n{rounds}")
        calls = list(standin.requests)[-5:]
        assert ids(calls[0]) == [shown]
        later = ids(calls[-1])
        assert len(later) == len(set(later))
        assert set(later) <= {shown, *others} | {one for one in later if one.startswith("chunk")}
        assert len(set(later) & others) == 5
        for before, after in pairwise(calls):
            assert len(set(ids(after)) - set(ids(before))) <= 3
        assert next(iter(await recalls(client))) == [shown]


async def test_searching_during_a_turn_ends_with_its_budget_and_begins_again_with_the_next_message(
    tmp_path: Path,
) -> None:
    async def shown_for(folder: str, **mid_turn: int) -> list[set[str]]:
        """What each turn was shown: every call asks for another subject."""
        async with (
            StandIn(SLOWER) as standin,
            running(tmp_path / folder, settings(standin, on_message=False, mid_turn=mid_turn)) as client,
        ):
            client.token = ANA
            for word in ("Oslo", "Rome", "Cairo"):
                await remember(client, f"{word} is where an aunt lives")
            rows = "\n".join(
                f'MemoryFileRead {{"path": "memory/{word}.md"}}' for word in ("Oslo", "Rome", "Cairo", "none")
            )
            found: list[set[str]] = []
            for _ in range(2):
                await client.say(f"calls:\n{rows}")
                found.append({one["text"].split()[0] for r in list(standin.requests)[-5:] for one in trailing(r)})
            return found

    assert await shown_for("all") == [{"Oslo", "Rome", "Cairo"}] * 2
    assert await shown_for("two", searches=2) == [{"Oslo", "Rome"}] * 2
    assert await shown_for("off", searches=0) == [set(), set()]
    assert await shown_for("empty", batch=0) == [set(), set()]


async def test_a_message_that_joins_a_running_turn_is_searched_too_and_gives_new_searches(
    tmp_path: Path,
) -> None:
    async with StandIn(Pace(first_token_ms=150)) as standin:
        memory = settings(standin, mid_turn={"searches": 1, "batch": 3})
        async with running(tmp_path, memory) as client:
            client.token = ANA
            words = ("Oslo", "Rome", "Cairo")
            known = {word: await remember(client, f"{word} is where an aunt lives") for word in words}
            rows = "\n".join(f'MemoryFileRead {{"path": "memory/{word}.md"}}' for word in ("Oslo", "Rome", "none"))
            first = await client.post(f"calls:\n{rows}", queue="steer")
            await asyncio.sleep(0.05)
            await client.post("and Cairo?", queue="steer")
            await client.events("GET", f"/v1/turns/{first['turn']}/events")
            assert set(ids(standin.requests[-1])) == set(known.values())


async def test_a_new_session_begins_with_what_the_one_before_was_about_behind_what_the_message_finds(
    tmp_path: Path, standin: StandIn
) -> None:
    async with running(tmp_path, settings(standin, limit=3)) as client:
        client.token = ANA
        hive = await remember(client, "The beehive stands at the orchard fence")
        await client.say("The beehive gets a new roof, says the orchard keeper.")
        await client.say("/new")
        boats = {await remember(client, f"Boat {n} lies at anchor") for n in range(2)}
        await client.say("Which boat is at anchor?")
        assert set(ids(standin.requests[-1])) == {hive, *boats}
        assert ids(standin.requests[-1])[-1] == hive
        await client.say("And the second boat?")
        assert hive not in ids(standin.requests[-1])


async def test_being_recalled_raises_vitality_once_a_day_and_so_does_standing_in_the_prefix(
    tmp_path: Path, standin: StandIn
) -> None:
    async with running(tmp_path, settings(standin)) as client:
        client.token = ANA
        fact = await remember(client, "Rex is our dog")
        profile = await remember(client, "Ana lives in Brno and keeps bees", topic="profile")

        async def counted(memory: str) -> tuple[int, float]:
            one = await client.get(f"/v1/memories/{memory}")
            return one["recall_count"], one["vitality"]

        assert await counted(fact) == (0, 50.0)
        for _ in range(3):
            await client.say("Our dog Rex?")
        async with asyncio.timeout(PATIENCE_S):
            while (await counted(fact))[0] == 0 or (await counted(profile))[0] == 0:
                await asyncio.sleep(0.02)
        for memory in (fact, profile):
            assert await counted(memory) == (1, 100.0)


async def test_what_is_always_on_changes_with_the_next_session_and_goes_at_once_when_it_is_deleted(
    tmp_path: Path, standin: StandIn
) -> None:
    async with running(tmp_path, settings(standin)) as client:
        client.token = ANA
        await client.call("POST", "/v1/topics", {"name": "rules", "description": "House rules", "always_on": True})
        shoes = await remember(client, "Shoes off at the door", topic="rules")
        smoke = await remember(client, "No smoking inside", topic="rules")
        await client.say("hello")
        before = system(standin.requests[-1])
        assert "Shoes off" in before
        await client.call("PATCH", f"/v1/memories/{shoes}", {"text": "Boots off at the door"})
        await client.say("boots at the door?")
        assert system(standin.requests[-1]) == before
        assert [one["text"] for one in trailing(standin.requests[-1])] == ["Boots off at the door"]
        await client.call("DELETE", f"/v1/memories/{smoke}")
        await client.say("and now?")
        assert "No smoking" not in json.dumps(standin.requests[-1].body)
        assert (await client.get(f"/v1/sessions/{KEY}/cache"))["last"]["section"] == "system"
        await client.say("/new")
        await client.say("hello again")
        assert "Boots off at the door" in system(standin.requests[-1])
        assert "Shoes off" not in json.dumps(standin.requests[-1].body)


async def test_of_what_is_always_on_the_most_important_is_shown_when_not_all_fits(
    tmp_path: Path, standin: StandIn
) -> None:
    async with running(tmp_path, settings(standin)) as client:
        client.token = ANA
        await client.call("POST", "/v1/topics", {"name": "rules", "description": "House rules", "always_on": True})
        await remember(client, "Never give Ana penicillin", topic="rules", importance=10)
        for number in range(ALWAYS_LIMIT):
            await remember(client, f"Rule {number} of the garden", topic="rules", importance=3)
        await client.say("hello")
        first = system(standin.requests[-1])
        assert "penicillin" in first
        assert "Rule 49 " in first
        assert "Rule 0 " not in first
        await client.say("/new")
        await client.say("hello")
        assert system(standin.requests[-1]) == first


GROUP = "agent:main:telegram:group:home"
BRIDGE: dict[str, Any] = {"name": "bridge", "token": "bridge-token-1234567890", "role": "frontend"}


def linked(standin: StandIn) -> Config:
    people = {"identities": {"ana": ["telegram:1"], "bob": ["telegram:2"]}}
    return config(**model_settings(standin.base_url), auth={"tokens": [*TOKENS, BRIDGE]}, sessions=people)


async def test_in_a_group_nobody_is_shown_what_belongs_to_another(tmp_path: Path) -> None:
    async with StandIn(SLOWER) as standin, running(tmp_path, linked(standin)) as client:
        for token, text in ((ANA, "Ana is a secret painter"), (BOB, "Bob is a secret singer")):
            client.token = token
            await remember(client, text, topic="profile")
            await remember(client, f"{text}: since 2020")
        client.token = BRIDGE["token"]
        for sender, own, others in (
            ("1", "painter", "singer"),
            ("2", "singer", "painter"),
            ("3", "", "secret painter"),
            ("1", "painter", "singer"),
        ):
            await client.say("Who is a secret what?", GROUP, sender=sender)
            request = standin.requests[-1]
            assert others not in json.dumps(request.body), sender
            assert "secret" not in elsewhere(request).replace("Who is a secret what?", "")
            assert [own in one["text"] for one in trailing(request)] == ([True, True] if own else [])


async def test_a_direct_chat_that_another_person_writes_in_shows_nothing_of_the_first(
    tmp_path: Path, standin: StandIn
) -> None:
    shared = "agent:main:telegram:direct:1"
    async with running(tmp_path, linked(standin)) as client:
        client.token = ANA
        await remember(client, "Ana is a secret painter", topic="profile")
        client.token = BRIDGE["token"]
        await client.say("hello", shared, sender="1")
        assert "secret painter" in system(standin.requests[-1])
        await client.say("hello", shared, sender="2")
        assert "secret painter" not in json.dumps(standin.requests[-1].body)
        await client.say("hello", shared, sender="1")
        assert "secret painter" in system(standin.requests[-1])


async def test_delegated_tasks_and_senders_nobody_knows_are_shown_no_personal_memory(
    tmp_path: Path, standin: StandIn
) -> None:
    daemon = config(**model_settings(standin.base_url), auth={"tokens": [*TOKENS, BRIDGE]})
    async with running(tmp_path, daemon) as client:
        client.token = ANA
        await remember(client, "Ana is a secret painter")
        await remember(client, "Ana, the secret painter of Brno", topic="profile")
        for key, sender, token in (
            ("agent:main:sub:task-1", None, BRIDGE["token"]),
            (GROUP, "1", BRIDGE["token"]),
            ("agent:main:telegram:direct:ana", "1", BRIDGE["token"]),
        ):
            client.token = token
            status, told = await client.call(
                "POST", f"/v1/sessions/{key}/messages", {"text": "Who is the painter?", "sender": sender}
            )
            if status == 404:
                continue
            assert status == 200, told
            assert "secret" not in json.dumps(standin.requests[-1].body), key
            for tool in ('MemorySearch {"query": "painter"}', "MemoryList {}"):
                await client.say(f"call:{tool}", key, sender=sender)
                assert "secret" not in json.dumps(standin.requests[-1].body), (key, tool)
