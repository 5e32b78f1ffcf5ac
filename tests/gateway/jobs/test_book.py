"""The jobs at a start: on another machine, in another zone, by another clock."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import text

from gateway.clock import ManualClock
from gateway.jobs.book import JobBook, SetAside
from gateway.jobs.policy import JobPolicy, JobsPolicy
from gateway.jobs.runs import Runs
from gateway.jobs.store import JobsClosed, JobStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

MORNING = datetime(2026, 12, 1, 6, tzinfo=UTC)


def policy(**more: Any) -> JobPolicy:
    return JobPolicy.model_validate({"name": "tea", "message": "x", **more})


AHEAD = MORNING + timedelta(days=1200)


@asynccontextmanager
async def opened(
    folder: Path, *, zone: str = "UTC", now: datetime = MORNING, jobs: tuple[JobPolicy, ...] = ()
) -> AsyncGenerator[tuple[JobBook, JobStore]]:
    """The jobs of a data directory, as they are after a start; nothing runs."""
    store = JobStore(folder / "state.db")
    await store.open()
    unused, clock, settings = cast("Any", None), ManualClock(now), JobsPolicy(scheduled=jobs)
    book = JobBook(
        store=store,
        runs=Runs(store=store, turns=unused, clock=clock, policy=settings, cost=lambda _: None),
        outbox=unused,
        turns=unused,
        clock=clock,
        policy=settings,
        machine_zone=ZoneInfo(zone),
    )
    await book.load()
    try:
        yield book, store
    finally:
        await store.close()


async def rewrite(store: JobStore, old: str, new: str) -> None:
    async with store._connected(write=True) as connection:  # pyright: ignore[reportPrivateUsage]
        await connection.execute(text("UPDATE jobs SET body = replace(body, :old, :new)"), {"old": old, "new": new})


@pytest.mark.parametrize("own", [None, "Europe/Prague"])
async def test_in_another_zone_a_job_is_due_by_the_clock_of_that_zone(tmp_path: Path, own: str | None) -> None:
    async with opened(tmp_path) as (book, _):
        before = await book.add(policy(schedule="0 9 * * *", timezone=own))
        every = await book.add(policy(name="every", every="3h"))
    async with opened(tmp_path, zone="Asia/Tokyo") as (book, store):
        job = await book.find("tea")
        assert job is not None
        wanted = before.due_at if own else datetime(2026, 12, 2, 0, tzinfo=UTC)
        assert job.due_at == wanted
        assert {one.id: one.due_at for one in await store.jobs()} == {before.id: wanted, every.id: every.due_at}


async def test_what_was_missed_before_the_zone_changed_is_still_missed(tmp_path: Path) -> None:
    async with opened(tmp_path) as (book, _):
        before = await book.add(policy(schedule="0 9 * * *"))
    async with opened(tmp_path, zone="Asia/Tokyo", now=MORNING + timedelta(hours=4)) as (book, _):
        job = await book.find("tea")
        assert job is not None
        assert job.due_at == before.due_at


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("Europe/Prague", "US/Pacific-New", "policy.timezone: 'US/Pacific-New' is no IANA time zone"),
        ("0 9 * * *", "99 * * * *", "'99 * * * *' is no cron expression"),
        ('"message":"x"', '"note":"x"', "policy.message: Field required"),
        ('{"id"', '{"aid"', "id: Field required"),
        ('{"id"', "broken", "Invalid JSON"),
    ],
)
async def test_a_job_that_cannot_be_used_here_is_set_aside_and_stays_on_the_disk(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    async with opened(tmp_path) as (book, store):
        made = await book.add(policy(schedule="0 9 * * *", timezone="Europe/Prague"))
        await rewrite(store, old, new)
    async with opened(tmp_path) as (book, store):
        job = await book.find("tea")
        assert job is not None
        assert (job.id, job.aside, job.active, book.due_times(job, 5)) == (made.id, True, False, [])
        assert told in (job.disabled or "")
        assert book.aside == ["tea"]
        assert book.next_due(MORNING + timedelta(days=9)) is None
        await book.run_due(MORNING + timedelta(days=9))
        for refused in (book.pause(job.id, True), book.pause(job.id, False), book.run_now(job)):
            with pytest.raises(SetAside, match="The job tea cannot run"):
                await refused
        await rewrite(store, new, old)
    async with opened(tmp_path) as (book, _):
        assert await book.find("tea") == made
    async with opened(tmp_path) as (book, store):
        await rewrite(store, old, new)
    async with opened(tmp_path) as (book, _):
        changed = await book.change(made.id, policy(every="1h"))
        assert changed is not None
        assert (changed.aside, changed.disabled, changed.active) == (False, None, True)


async def test_a_configured_job_that_cannot_be_used_here_holds_up_no_other(tmp_path: Path) -> None:
    jobs = (policy(schedule="99 * * * *"), policy(name="other", every="1h"))
    async with opened(tmp_path, jobs=jobs) as (book, _):
        assert [(job.policy.name, job.aside) for job in await book.all()] == [("other", False), ("tea", True)]
    async with opened(tmp_path, jobs=(policy(schedule="9 * * * *"), jobs[1])) as (book, _):
        assert [job.active for job in await book.all()] == [True, True]


@pytest.mark.parametrize("schedule", [{"every": "90m"}, {"schedule": "0 9 * * *"}])
@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
async def test_what_was_set_while_the_clock_was_years_ahead_runs_when_it_is_put_right(
    tmp_path: Path, schedule: dict[str, str], resumed: bool, restarted: bool
) -> None:
    async with opened(tmp_path) as (book, _):
        if resumed:
            await book.add(policy(**schedule))
    async with opened(tmp_path, now=AHEAD) as (book, store):
        job = await book.find("tea") or await book.add(policy(**schedule))
        await book.pause(job.id, False)
        if not restarted:
            assert book.next_due(MORNING) == MORNING
            await book.run_due(MORNING)
    async with opened(tmp_path) as (book, store):
        while (due := book.next_due(MORNING)) is not None and due <= MORNING:
            await book.run_due(MORNING)
        assert due is not None
        assert due <= MORNING + timedelta(days=1)
        (kept,) = await store.jobs()
        assert kept.next_at == due


async def test_a_database_that_fails_is_told_in_its_own_words_and_not_with_what_was_written(tmp_path: Path) -> None:
    async with opened(tmp_path) as (book, store):
        async with store._connected(write=True) as connection:  # pyright: ignore[reportPrivateUsage]
            await connection.execute(text("ALTER TABLE jobs RENAME TO gone"))
        with pytest.raises(JobsClosed) as refused:
            await book.add(policy(schedule="0 9 * * *", message="the doctor called"))
        assert str(refused.value) == store.problem
        assert str(refused.value).startswith("state.db cannot be used now (no such table: jobs). ")
