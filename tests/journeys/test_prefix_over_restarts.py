"""The prefix after a restart, and after the session has left memory: the same bytes, without what was deleted."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from tests.journeys.daemon import KEY, Client, running
from tests.journeys.test_recall import remember, settings, trailing
from tests.journeys.test_recalled_prompts import ANA, GROUP, history, linked, system
from tests.memory.leftovers import files_with_text
from tests.patience import until, until_equal

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config import Config
    from tests.bench.standin import StandIn


class Days:
    """One data directory, over restarts and evictions."""

    def __init__(self, data_dir: Path, standin: StandIn) -> None:
        self.data_dir = data_dir
        self.standin = standin
        self.notes = data_dir / "workspaces" / "main" / "MEMORY.md"
        self.notes.parent.mkdir(parents=True)
        self.notes.write_text("The garden gate squeaks.\n", "utf-8")

    def settings(self) -> Config:
        return settings(self.standin)

    async def told(self, client: Client, text: str) -> str:
        """The system text of the call a message led to."""
        await client.say(text)
        return system(self.standin.requests[-1])


@pytest.fixture
def days(tmp_path: Path, standin: StandIn) -> Days:
    return Days(tmp_path, standin)


async def rules(client: Client) -> dict[str, str]:
    client.token = ANA
    await client.call("POST", "/v1/topics", {"name": "rules", "description": "House rules", "always_on": True})
    texts = ("Shoes off at the door", "No smoking inside", "Feed the cat at six")
    return {text.split()[0]: await remember(client, text, topic="rules") for text in texts}


async def change_everything(client: Client, days: Days, known: dict[str, str]) -> None:
    """What the next session will begin with is another prefix altogether."""
    days.notes.write_text("The gate is silent now.\n", "utf-8")
    await client.call("PATCH", f"/v1/memories/{known['Shoes']}", {"text": "Boots off at the door"})
    await client.call("PATCH", f"/v1/memories/{known['No']}", {"importance": 9})
    await remember(client, "Water the ferns on Monday", topic="rules")
    topics = (await client.get("/v1/topics"))["topics"]
    (topic,) = [one for one in topics if one["name"] == "rules"]
    assert (await client.call("PATCH", f"/v1/topics/{topic['id']}", {"name": "house rules"}))[0] == 200


async def evicted(client: Client) -> None:
    """The session leaves memory, as it does when others need the room."""
    store = client.daemon.parts.store
    session = (await client.get(f"/v1/sessions/{KEY}"))["session"]
    store._kept.drop(session)  # pyright: ignore[reportPrivateUsage]

    def gone() -> bool:
        gc.collect()
        return session not in store._live  # pyright: ignore[reportPrivateUsage]

    await until(gone)


async def test_the_prefix_is_the_same_after_a_restart_whatever_has_changed_meanwhile(
    days: Days, standin: StandIn
) -> None:
    async with running(days.data_dir, days.settings()) as client:
        known = await rules(client)
        before = await days.told(client, "hello")
        assert "squeaks" in before
        assert "Shoes off" in before
        await change_everything(client, days, known)
        assert await days.told(client, "and?") == before
    async with running(days.data_dir, days.settings()) as client:
        client.token = ANA
        assert await days.told(client, "after a restart") == before
        assert (await client.get(f"/v1/sessions/{KEY}/cache"))["last"]["section"] != "system"
    async with running(days.data_dir, days.settings()) as client:
        client.token = ANA
        assert await days.told(client, "and after another one") == before
        earlier, later = list(standin.requests)[-2:]
        assert later.body["tools"] == earlier.body["tools"]
        assert history(later)[: len(history(earlier))] == history(earlier)
        await client.say("/new")
        fresh = await days.told(client, "hello again")
        assert "silent now" in fresh
        assert "Boots off" in fresh
        assert "Shoes off" not in fresh
        assert "house rules" in fresh


async def test_the_prefix_is_the_same_after_the_session_has_left_memory(days: Days) -> None:
    async with running(days.data_dir, days.settings()) as client:
        known = await rules(client)
        before = await days.told(client, "hello")
        await change_everything(client, days, known)
        await evicted(client)
        assert await days.told(client, "and?") == before


@pytest.mark.parametrize("restarts", [True, False])
async def test_what_was_purged_in_between_is_not_in_the_prefix_and_in_no_file(days: Days, restarts: bool) -> None:
    async with running(days.data_dir, days.settings()) as client:
        known = await rules(client)
        before = await days.told(client, "hello")
        await client.call("PATCH", f"/v1/memories/{known['No']}", {"text": "Smoke outside"})
        for name in ("No", "Feed"):
            assert (await client.call("POST", f"/v1/memories/{known[name]}/purge"))[0] == 200
        if not restarts:
            await evicted(client)
            await client.say("and?")
    if restarts:
        async with running(days.data_dir, days.settings()) as client:
            client.token = ANA
            await client.say("and?")
            assert (await client.get(f"/v1/sessions/{KEY}/cache"))["last"]["section"] == "system"
    after = system(days.standin.requests[-1])
    assert "Shoes off" in before
    assert "Shoes off" in after
    assert "squeaks" in after
    for text in ("No smoking", "Smoke outside", "Feed the cat"):
        assert text not in after
        assert files_with_text(days.data_dir, text) == []


async def test_a_former_wording_that_was_deleted_for_good_leaves_the_prefix_although_the_memory_stays(
    days: Days,
) -> None:
    async with running(days.data_dir, days.settings()) as client:
        known = await rules(client)
        assert "No smoking" in await days.told(client, "hello")
        await client.call("PATCH", f"/v1/memories/{known['No']}", {"text": "Smoke outside"})
        former = (await client.get(f"/v1/memories/{known['No']}"))["supersedes"]
        assert (await client.call("POST", f"/v1/memories/{former}/purge"))[0] == 200
        after = await days.told(client, "and?")
        assert "No smoking" not in after
        assert "Shoes off" in after
    async with running(days.data_dir, days.settings()) as client:
        client.token = ANA
        assert await days.told(client, "and then?") == after


async def test_while_the_records_cannot_be_read_nothing_of_them_is_shown_and_then_the_same_as_before(
    days: Days,
) -> None:
    async with running(days.data_dir, days.settings()) as client:
        await rules(client)
        before = await days.told(client, "hello")
    state, aside = days.data_dir / "state.db", days.data_dir / "aside.db"
    state.rename(aside)
    state.mkdir()
    async with running(days.data_dir, days.settings()) as client:
        client.token = ANA
        assert "Shoes off" not in await days.told(client, "are you there?")
    state.rmdir()
    aside.rename(state)
    async with running(days.data_dir, days.settings()) as client:
        client.token = ANA
        assert await days.told(client, "and now?") == before


async def test_notes_are_kept_only_as_long_as_a_session_goes_on_that_began_with_them(days: Days) -> None:
    async with running(days.data_dir, days.settings()) as client:
        client.token = ANA
        await days.told(client, "hello")
        days.notes.write_text("The gate is silent now.\n", "utf-8")
        prefixes = days.data_dir / "cache" / "prefixes.db"
        await until(lambda: b"squeaks" in prefixes.read_bytes())
        await client.say("/new")
        await days.told(client, "hello again")
        await until(lambda: b"squeaks" not in prefixes.read_bytes())
        kept = client.daemon.parts.kept_prefixes
        assert len(await kept.sessions()) == 1
        assert (await client.call("DELETE", f"/v1/sessions/{KEY}"))[0] in (200, 204)
        await until_equal(kept.sessions, [])


async def test_a_file_of_prefixes_that_is_damaged_costs_no_reply(days: Days) -> None:
    async with running(days.data_dir, days.settings()) as client:
        await rules(client)
        before = await days.told(client, "hello")
    (days.data_dir / "cache" / "prefixes.db").write_bytes(b"nothing of the kind" * 1000)
    async with running(days.data_dir, days.settings()) as client:
        client.token = ANA
        assert await days.told(client, "and?") == before


async def test_in_a_group_the_notes_stand_there_after_a_restart_and_nobodys_memories(
    tmp_path: Path, standin: StandIn
) -> None:
    notes = tmp_path / "workspaces" / "main" / "MEMORY.md"
    notes.parent.mkdir(parents=True)
    notes.write_text("The garden gate squeaks.\n", "utf-8")
    async with running(tmp_path, linked(standin)) as client:
        client.token = ANA
        await remember(client, "Ana is a secret painter", topic="profile")
        client.token = "bridge-token-1234567890"
        await client.say("hello", GROUP, sender="1")
        before = system(standin.requests[-1])
        notes.write_text("The gate is silent now.\n", "utf-8")
    async with running(tmp_path, linked(standin)) as client:
        client.token = "bridge-token-1234567890"
        for sender in ("2", "1"):
            await client.say("hello", GROUP, sender=sender)
            assert system(standin.requests[-1]) == before
            shown = [one["text"] for one in trailing(standin.requests[-1])]
            assert shown == (["Ana is a secret painter"] if sender == "1" else [])


async def test_what_was_purged_is_in_no_prompt_from_then_on_not_even_in_that_of_a_summary(days: Days) -> None:
    made = days.settings()
    roles = made.roles.model_copy(update={"summary": None})
    async with running(days.data_dir, made.model_copy(update={"roles": roles})) as client:
        known = await rules(client)
        for number in range(12):
            await days.told(client, f"hello {number} " + "and more of it " * 60)
        sent = len(days.standin.requests)
        assert (await client.call("POST", f"/v1/memories/{known['Shoes']}/purge"))[0] == 200
        assert (await client.call("DELETE", f"/v1/memories/{known['No']}"))[0] == 200
        status, told = await client.call("POST", f"/v1/sessions/{KEY}/compact", {})
        assert status == 200, told
        asked = [str(one.body) for one in list(days.standin.requests)[sent:]]
        assert any("Feed the cat" in one for one in asked)
        for text in ("Shoes off", "No smoking"):
            assert all(text not in one for one in asked)
