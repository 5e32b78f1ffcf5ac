"""A daemon is killed while sessions move to the archive, back, and away: none is half there, none comes back."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.crash.kills import Victim, free_port

if TYPE_CHECKING:
    from pathlib import Path

SESSIONS = 24
KILLS = 3
TEXT = "once upon a time " * 200


def key_of(number: int) -> str:
    return f"agent:main:web:direct:p{number}"


async def move(client: aiohttp.ClientSession, url: str, chance: random.Random, deleted: set[int]) -> None:
    """One person who archives, restores and now and then deletes; the last wish may be done or not."""
    while True:
        number = chance.randrange(SESSIONS)
        address = f"{url}/v1/sessions/{key_of(number)}"
        with contextlib.suppress(aiohttp.ClientError, OSError):
            if chance.random() < 0.03:
                deleted.add(number)
                await client.delete(address)
            else:
                await client.patch(address, json={"archived": chance.random() < 0.6})


async def transcripts(client: aiohttp.ClientSession, url: str) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for number in range(SESSIONS):
        async with client.get(f"{url}/v1/sessions/{key_of(number)}/transcript") as response:
            if response.status == 200:
                found[number] = [e for e in (await response.json())["entries"] if e["type"] == "user"]
            else:
                assert response.status == 404
    return found


async def test_killed_while_sessions_move_every_one_is_whole(tmp_path: Path) -> None:
    chance = random.Random(4)
    settings = tmp_path / "config.yaml"
    settings.write_text("server: {rate_limit_per_minute: null}\n")
    victim = Victim(tmp_path / "data", settings, free_port())
    deleted: set[int] = set()
    await victim.start()
    async with aiohttp.ClientSession() as client:
        for number in range(SESSIONS):
            said = [{"role": "user", "text": f"{number} {part} {TEXT}"} for part in range(3)]
            address = f"{victim.url}/v1/sessions/{key_of(number)}/entries"
            async with client.post(address, json={"entries": said}) as response:
                assert response.status == 201
        before = await transcripts(client, victim.url)
        for _ in range(KILLS):
            people = [
                asyncio.create_task(move(client, victim.url, random.Random(n), deleted), name=f"person {n}")
                for n in range(4)
            ]
            await asyncio.sleep(0.2 + chance.random() / 2)
            await victim.kill()
            for person in people:
                person.cancel()
            await asyncio.gather(*people, return_exceptions=True)
            await victim.start()
            after = await transcripts(client, victim.url)
            assert set(before) - set(after) <= deleted
            assert all(after[number] == before[number] for number in after)
            names = [path.name for path in (tmp_path / "data" / "transcripts" / "main").iterdir()]
            forms = [name.partition(".")[0] for name in names]
            assert len(forms) == len(set(forms)) == len(after), sorted(names)
            assert any(name.endswith(".zst") for name in names)
            before = after
    await victim.kill()
