"""Days and months of a daemon: sessions end by themselves, what is not used goes to the archive and comes back."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gateway.clock import ManualClock
from tests.journeys.daemon import KEY, Client, config, running
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
DAY_S = 86_400.0
MAIN = "agent:main:main"


def settings(**more: Any) -> Any:
    return config(sessions={"reset": {"timezone": "Europe/Prague", "daily_at": None, **more.pop("reset", {})}}, **more)


async def pass_time(client: Client, clock: ManualClock, seconds: float) -> None:
    """Time passes, and what is due then has been done when this returns: a machine that slept wakes up."""
    clock.set(datetime.fromtimestamp(clock.now().timestamp() + seconds, UTC))
    client.daemon.parts.scheduler.wake()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await clock.advance(0.01)
            await asyncio.sleep(0.002)
            if client.daemon.parts.scheduler.idle:
                return


def files_of(folder: Path) -> list[str]:
    return sorted(path.suffix for path in (folder / "transcripts").rglob("*.*") if path.is_file())


async def test_a_session_ends_by_itself_and_is_told_with_its_reason(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    async with running(tmp_path, settings(reset={"idle_minutes": 60}), clock=clock) as client:
        first = await client.say("hello")
        told = asyncio.create_task(client.events("GET", f"/v1/events?keys={KEY}", limit=2))
        await asyncio.sleep(0.05)
        await pass_time(client, clock, 3599)
        assert (await client.get(f"/v1/sessions/{KEY}"))["ended"] is None
        await pass_time(client, clock, 2)
        assert (await client.get(f"/v1/sessions/{KEY}"))["ended"] == "idle"
        assert [(name, fields.get("reason")) for _, name, fields in await told][1] == ("session.ended", "idle")
        second = await client.say("good morning")
        assert second["session"] != first["session"]
        history = (await client.get(f"/v1/sessions/{KEY}/history"))["sessions"]
        assert [one["session"] for one in history] == [second["session"], first["session"]]


async def test_at_four_everybodys_session_ends_but_not_in_the_middle_of_a_conversation(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 3, 3, 2, 45, tzinfo=UTC))
    keys = [f"agent:main:web:direct:{name}" for name in "abcdefghij"]
    async with running(tmp_path, settings(reset={"daily_at": "04:00"}), clock=clock) as client:
        for key in keys:
            await client.say("hello", key=key)
        await pass_time(client, clock, 14 * 60)
        await client.say("still here", key=keys[0])
        await pass_time(client, clock, 17 * 60)
        ended = [(await client.get(f"/v1/sessions/{key}"))["ended"] for key in keys]
        assert ended == [None, *["daily"] * 9]
        await pass_time(client, clock, 14 * 60)
        assert (await client.get(f"/v1/sessions/{keys[0]}"))["ended"] == "daily"


async def test_a_shorter_rest_set_by_a_person_counts_at_once(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    async with running(tmp_path, settings(), clock=clock) as client:
        await client.say("hello")
        await client.call("PATCH", f"/v1/sessions/{KEY}", {"reset": {"idle_minutes": 5}})
        await pass_time(client, clock, 301)
        assert (await client.get(f"/v1/sessions/{KEY}"))["ended"] == "idle"


async def test_a_message_at_the_very_moment_is_in_one_session_or_the_other(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    async with running(tmp_path, settings(reset={"idle_minutes": 1}), clock=clock) as client:
        for number in range(8):
            await client.say(f"before {number}")
            clock.set(datetime.fromtimestamp(clock.now().timestamp() + 61, UTC))
            client.daemon.parts.scheduler.wake()
            await client.say(f"after {number}")
            await pass_time(client, clock, 61)
        sessions = (await client.get(f"/v1/sessions/{KEY}/history"))["sessions"]
        said: list[str] = []
        for one in reversed(sessions):
            page = await client.get(f"/v1/sessions/{KEY}/transcript?session={one['session']}")
            said += [entry["text"] for entry in page["entries"] if entry["type"] == "user"]
            assert [entry["type"] for entry in page["entries"]][-1] == "ended"
        assert said == [f"{word} {number}" for number in range(8) for word in ("before", "after")]


async def test_what_is_not_used_is_archived_and_stays_readable_searchable_and_restorable(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    async with running(tmp_path, settings(), clock=clock) as client:
        await client.say("the walrus likes oysters")
        await client.say("hello", key=MAIN)
        await client.say("keep me", key="agent:main:web:direct:pinned")
        await client.call("PATCH", "/v1/sessions/agent:main:web:direct:pinned", {"pinned": True})
        await pass_time(client, clock, 29 * DAY_S)
        assert files_of(tmp_path) == [".jsonl"] * 3
        _, dry = await client.call("POST", "/v1/cleanup", {"dry_run": True})
        assert dry["steps"] == []
        await pass_time(client, clock, 2 * DAY_S)
        assert files_of(tmp_path) == [".jsonl", ".jsonl", ".zst"]
        assert [one["key"] for one in (await client.get("/v1/sessions?archived=true"))["sessions"]] == [KEY]
        assert (await client.texts())[0] == "the walrus likes oysters"
        status, exported = await client.call("GET", f"/v1/sessions/{KEY}/export?format=markdown")
        assert (status, b"walrus" in exported) == (200, True)
    for database in tmp_path.glob("search.db*"):
        database.unlink()
    async with running(tmp_path, settings(), clock=clock) as client:
        found = await client.get("/v1/search?q=walrus")
        while not found["complete"]:
            await clock.advance(1)
            await asyncio.sleep(0.01)
            found = await client.get("/v1/search?q=walrus")
        assert "walrus" in str(found["hits"])
        status, restored = await client.call("POST", f"/v1/sessions/{KEY}/restore", {})
        assert (status, restored["state"]) == (200, "active")
        await pass_time(client, clock, 2 * DAY_S)
        assert files_of(tmp_path) == [".jsonl"] * 3
        status, problem = await client.call("POST", f"/v1/sessions/{KEY}/restore", {})
        assert (status, problem["title"]) == (409, "Not archived")


async def test_archives_are_deleted_when_their_time_is_over_and_stay_away(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    limits = {"after_days": 10, "delete_after_days": 20}
    async with running(tmp_path, settings(cleanup=limits), clock=clock) as client:
        await client.say("hello")
        for days in (11, 5, 5):
            await pass_time(client, clock, days * DAY_S)
        assert files_of(tmp_path) == []
        assert (await client.call("GET", f"/v1/sessions/{KEY}"))[0] == 404
    (tmp_path / "sessions.json").unlink()
    async with running(tmp_path, settings(cleanup=limits), clock=clock) as client:
        assert (await client.call("GET", f"/v1/sessions/{KEY}"))[0] == 404


async def test_a_limit_of_size_is_kept_from_the_oldest_on(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    async with running(tmp_path, settings(cleanup={"max_bytes": 12_000, "daily_at": None}), clock=clock) as client:
        keys = [f"agent:main:web:direct:{name}" for name in "abcd"]
        for key in keys:
            await client.say(" ".join(f"{key} {n * n * 7919 % 100_003}" for n in range(300)), key=key)
            await clock.advance(60)
        _, dry = await client.call("POST", "/v1/cleanup", {"dry_run": True})
        assert dry["bytes_before"] > 30_000
        assert dry["freed_bytes"] == dry["bytes_before"] - dry["bytes_after"] > 10_000
        assert [step["key"] for step in dry["steps"] if step["action"] == "archive"] == keys[: len(dry["steps"])]
        _, done = await client.call("POST", "/v1/cleanup")
        assert done["bytes_after"] <= 12_000
        assert done["freed_bytes"] == done["bytes_before"] - done["bytes_after"]
        assert 0.5 < dry["freed_bytes"] / done["freed_bytes"] < 2
        assert done["failed"] == []
        assert next(step["key"] for step in done["steps"] if step["reason"] == "size") == keys[0]
        left = (await client.get("/v1/sessions"))["sessions"] + (await client.get("/v1/sessions?archived=true"))[
            "sessions"
        ]
        assert keys[-1] in [one["key"] for one in left]


async def test_cleaning_up_is_for_administrators(tmp_path: Path) -> None:
    auth = {"tokens": [{"name": "ana", "token": "a-token-of-ana", "role": "user", "user": "ana"}]}
    async with running(tmp_path, settings(auth=auth)) as client:
        client.token = "a-token-of-ana"
        assert (await client.call("POST", "/v1/cleanup"))[0] == 404


async def test_a_former_session_comes_back_from_the_archive_and_has_a_day_of_its_own(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    async with running(tmp_path, settings(reset={"daily_at": "04:00"}), clock=clock) as client:
        first = await client.say("hello")
        await pass_time(client, clock, DAY_S)
        second = await client.say("another day")
        assert second["session"] != first["session"]
        await client.daemon.parts.store.archive(first["session"])
        status, back = await client.call("POST", f"/v1/sessions/{KEY}/resume", {"session": first["session"]})
        assert (status, back["session"], back["state"]) == (200, first["session"], "active")
        await pass_time(client, clock, 3600)
        assert (await client.say("where were we?"))["session"] == first["session"]
        await pass_time(client, clock, DAY_S)
        assert (await client.get(f"/v1/sessions/{KEY}"))["ended"] == "daily"
        assert files_of(tmp_path) == [".jsonl"] * 2


async def test_housekeeping_comes_by_the_scheduler_also_after_the_machine_slept(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    async with running(tmp_path, settings(), clock=clock) as client:
        status, _ = await client.call("POST", "/v1/attachments", b"a note", {"Content-Type": "text/plain"})
        assert status == 201
        await client.say("hello")
        await pass_time(client, clock, 23 * 3600)
        assert uploads(tmp_path) == 1
        await pass_time(client, clock, 2 * 3600)
        assert uploads(tmp_path) == 0
        await client.daemon.parts.archive.cleared(10)
        for database in tmp_path.glob("search.db*"):
            database.unlink(missing_ok=True)
        await pass_time(client, clock, 31)
        async with asyncio.timeout(PATIENCE_S):
            while not (tmp_path / "search.db").exists():
                await asyncio.sleep(0.01)


def uploads(folder: Path) -> int:
    return len([path for path in (folder / "blobs").rglob("*") if path.is_file() and path.suffix == ""])


async def test_a_clean_up_is_a_day_away_at_most_when_a_clock_that_was_ahead_is_put_right(tmp_path: Path) -> None:
    clock = ManualClock(NOON.replace(year=2031))
    async with running(tmp_path, settings(), clock=clock) as client:
        cleanup = client.daemon.parts.cleanup
        await cleanup.run_due(clock.now())
        due = cleanup.next_due(NOON)
        assert due is not None
        assert NOON < due <= NOON + timedelta(days=1)
        assert cleanup.next_due(due) == due
