"""The odd days of the clocks of six places, with a daemon that is started anew at every hour.

`SOAK=1` goes through a whole year instead of the days around its clock changes.
"""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from gateway.clock import ManualClock
from tests.journeys.daemon import KEY, Client, config, running
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
AROUND = timedelta(hours=3)
ZONES = [
    ("Europe/Prague", 2026, "02:30"),
    ("America/New_York", 2026, "02:30"),
    ("Australia/Lord_Howe", 2026, "02:15"),
    ("America/Nuuk", 2026, "23:30"),
    ("Africa/Casablanca", 2026, "02:30"),
    ("Pacific/Apia", 2011, "02:30"),
]


def changes(zone: ZoneInfo, year: int) -> Iterator[datetime]:
    """The hours after which a clock on the wall jumps."""
    at, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    while at < end:
        if at.astimezone(zone).utcoffset() != (at + HOUR).astimezone(zone).utcoffset():
            yield at
        at += HOUR


def spans(zone: ZoneInfo, year: int) -> list[tuple[datetime, datetime]]:
    if os.environ.get("SOAK"):
        begin = datetime(year, 1, 1, 12, tzinfo=zone).astimezone(UTC)
        return [(begin, begin + 364 * DAY)]
    return [(at - AROUND, at + AROUND + HOUR) for at in changes(zone, year)]


def expected(zone: ZoneInfo, daily_at: time, begin: datetime, end: datetime) -> int:
    """Days whose time has come within a span, by a clock on the wall that is looked at every five minutes. A time that
    a gap at the end of its day has taken comes at midnight."""
    came: dict[date, datetime | None] = {}
    at = begin - 2 * DAY
    while at <= end:
        local = at.astimezone(zone)
        for day, time_of_day in came.items():
            came[day] = at if time_of_day is None and day < local.date() else time_of_day
        came.setdefault(local.date(), None)
        if local.time() >= daily_at and came[local.date()] is None:
            came[local.date()] = at
        at += timedelta(minutes=5)
    return sum(one is not None and begin < one <= end for one in came.values())


async def an_hour(client: Client, clock: ManualClock) -> None:
    """Passes in steps; the clock stands while what was due is done, so that a busy machine is not a slow model."""
    parts = client.daemon.parts
    for step in range(13):
        await clock.advance(300 if step else 0)
        async with asyncio.timeout(PATIENCE_S):
            while not (parts.jobs.taken_up.is_set() and parts.scheduler.idle) or open_runs(client):
                await clock.advance(0.001)
                await asyncio.sleep(0.002)


def open_runs(client: Client) -> int:
    return client.daemon.parts.jobs.runs.going + client.daemon.parts.jobs.runs.waiting


@pytest.mark.timeout(0 if os.environ.get("SOAK") else 300)
@pytest.mark.parametrize(("name", "year", "daily_at"), ZONES)
async def test_started_anew_at_every_hour_each_local_day_has_one_reset_and_one_run(
    tmp_path: Path, name: str, year: int, daily_at: str
) -> None:
    zone = ZoneInfo(name)
    hour, minute = daily_at.split(":")
    job = {"name": "daily", "schedule": f"{minute} {hour} * * *", "timezone": name, "message": "hello"}
    settings: dict[str, Any] = {
        "sessions": {"reset": {"daily_at": daily_at, "timezone": name, "quiet_minutes": 0}},
        "cleanup": {"daily_at": None},
        "jobs": {"scheduled": [job], "spread_s": 0},
    }
    for number, (begin, end) in enumerate(spans(zone, year)):
        clock = ManualClock(begin)
        ran: list[dict[str, Any]] = []
        ended: set[str] = set()
        while clock.now() < end:
            async with running(tmp_path / str(number), config(**settings), clock=clock) as client:
                await client.say("still there")
                await an_hour(client, clock)
                for run in (await client.get("/v1/jobs/daily/runs?limit=3"))["runs"]:
                    ran += [] if run in ran else [run]
                record = await client.get(f"/v1/sessions/{KEY}")
                ended |= {record["session"]} if record["ended"] == "daily" else set()
        days = expected(zone, time.fromisoformat(daily_at), begin, clock.now())
        assert days > 0
        assert [(run["status"], run["trigger"]) for run in ran] == [("ok", "schedule")] * days
        assert len({run["due_at"] for run in ran}) == days
        assert len(ended) == days
