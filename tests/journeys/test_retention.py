"""Forgetting over a whole daemon: due dates are shown, the sweep comes, restarts change nothing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gateway.clock import ManualClock
from tests.journeys.daemon import Client, config, running

if TYPE_CHECKING:
    from pathlib import Path

START = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = config(sessions={"reset": {"timezone": "UTC"}})


async def trashed(client: Client) -> list[dict[str, Any]]:
    return (await client.get("/v1/memories?state=trashed"))["memories"]


async def swept(client: Client, clock: ManualClock, at: datetime) -> None:
    """The daemon has looked at that time whether something is due."""
    clock.set(at)
    await trashed(client)  # the records are open
    for _ in range(3):
        await clock.advance(61)
        await asyncio.sleep(0.05)


async def test_what_is_due_goes_to_the_trash_five_a_day_whatever_is_restarted(tmp_path: Path) -> None:
    clock = ManualClock(START)
    async with running(tmp_path / "data", SETTINGS, clock=clock) as client:
        for number in range(7):
            await client.call("POST", "/v1/memories", {"text": f"fact {number}", "importance": 1})
        _, kept = await client.call("POST", "/v1/memories", {"text": "Ana is allergic to nuts", "importance": 10})
        assert kept["due_at"].startswith("2027-02-22T22:43")
        (first, *_) = (await client.get("/v1/memories?sort=created"))["memories"][::-1]
        assert (first["vitality"], first["due_at"][:16]) == (50.0, "2026-01-15T00:00")
        await swept(client, clock, START + timedelta(days=13, hours=5))
        assert await trashed(client) == []
    for hour in (3, 4, 5, 6, 12, 27, 28, 29):
        clock.set(START + timedelta(days=14, hours=hour))
        async with running(tmp_path / "data", SETTINGS, clock=clock) as client:
            await swept(client, clock, START + timedelta(days=14, hours=hour))
            expected = 0 if hour < 4 else 5 if hour < 28 else 7
            assert len(await trashed(client)) == expected, hour
    async with running(tmp_path / "data", SETTINGS, clock=clock) as client:
        one = (await trashed(client))[0]
        assert one["due_at"] is None
        _, back = await client.call("POST", f"/v1/memories/{one['id']}/restore")
        assert (back["state"], back["vitality"], back["due_at"][:10]) == ("active", one["vitality"], "2026-01-15")
        history = (await client.get(f"/v1/memories/{one['id']}/history"))["changes"]
        assert [(c["action"], c["origin"]) for c in history][1] == ("trashed", "retention")
