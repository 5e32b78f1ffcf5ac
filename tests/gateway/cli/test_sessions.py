from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.journeys.daemon import KEY

if TYPE_CHECKING:
    from tests.gateway.cli.conftest import CommandLine
    from tests.journeys.daemon import Client


async def test_sessions_are_listed_for_people_and_for_programs(line: CommandLine, client: Client) -> None:
    await client.say("hello")
    table = await line.run("sessions", "list")
    listed = json.loads(await line.run("sessions", "list", "--json"))
    assert table.splitlines()[0].split() == ["KEY", "ACTIVE", "MESSAGES", "CONTEXT", "TITLE"]
    assert KEY in table
    assert [session["key"] for session in listed["sessions"]] == [KEY]


async def test_a_session_is_shown_reset_and_its_history_listed(line: CommandLine, client: Client) -> None:
    await client.say("hello")
    assert "echo: hello" in await line.run("sessions", "show", KEY)
    await line.run("sessions", "reset", KEY)
    await client.say("good morning")
    assert "hello" not in await line.run("sessions", "show", KEY)
    assert len((await line.run("sessions", "history", KEY)).splitlines()) == 3


async def test_a_session_is_archived_and_restored(line: CommandLine, client: Client) -> None:
    await client.say("hello")
    await line.run("sessions", "archive", KEY)
    assert KEY not in await line.run("sessions", "list")
    assert KEY in await line.run("sessions", "list", "--archived")
    await line.run("sessions", "archive", KEY, "--restore")
    assert KEY in await line.run("sessions", "list")


async def test_deleting_asks_first(line: CommandLine, client: Client) -> None:
    await client.say("hello")
    assert (await line.end("sessions", "delete", KEY, typed="n\n")).exit_code == 1
    assert KEY in await line.run("sessions", "list")
    await line.run("sessions", "delete", KEY, "--yes")
    assert KEY not in await line.run("sessions", "list")
    assert (await line.end("sessions", "show", KEY)).exit_code == 4
