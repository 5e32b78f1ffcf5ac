from __future__ import annotations

import dataclasses
import itertools
import os
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import TypeAdapter

from gateway.jobs.decisions import (
    GIVEN_UP_AFTER,
    RETRIES,
    after_run,
    anchor_at,
    delivery_wait_s,
    done_with,
    due_now,
    overlapping,
    plan_job,
    start_times,
    waits_too_long,
    waits_until,
)
from gateway.jobs.policy import JobPolicy, Missed, Overlap
from gateway.jobs.timing import next_after
from gateway.jobs.values import Job, Run, RunStatus

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ZONES = [
    "Europe/Prague",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Nuuk",
    "Africa/Casablanca",
    "Pacific/Apia",
]


def job(start: datetime = NOON, **policy: Any) -> Job:
    settings = JobPolicy.model_validate({"name": "job", "message": "x", **policy})
    due = next_after(settings, ZoneInfo("UTC"), start)(start)
    return Job(id="1" * 26, origin="api", policy=settings, created_at=start, anchor=start, due_at=due)


def run(status: RunStatus = "ok", **more: Any) -> Run:
    return Run(
        id="2" * 26,
        kind="job",
        owner="1" * 26,
        name="job",
        due_at=NOON,
        start_at=NOON,
        trigger="schedule",
        key="cron:1",
        request="job-2",
        status=status,
        **more,
    )


def every_minute(after: datetime) -> datetime:
    return after.replace(second=0, microsecond=0) + MINUTE


@pytest.mark.parametrize(
    ("missed", "late_minutes", "expected"),
    [
        ("skip", 0, ["schedule"]),
        ("once", 0, ["schedule"]),
        ("all", 0, ["schedule"]),
        ("skip", 2, ["schedule"]),
        ("once", 2, ["schedule"]),
        ("all", 2, ["missed", "missed", "schedule"]),
        ("all", 3 * 24 * 60, ["missed"] * 5 + ["schedule"]),
        ("skip", 3 * 24 * 60, ["schedule"]),
    ],
)
def test_what_was_missed_follows_the_rule_of_the_job(missed: Missed, late_minutes: int, expected: list[str]) -> None:
    plan = due_now(NOON, NOON + late_minutes * MINUTE, every_minute, missed)
    assert [why for _, why in plan.runs] == expected
    assert plan.following == NOON + (late_minutes + 1) * MINUTE


@pytest.mark.parametrize(("missed", "count"), [("skip", 0), ("once", 1), ("all", 3)])
def test_after_three_days_asleep_a_daily_job_runs_as_often_as_its_rule_says(missed: Missed, count: int) -> None:
    daily = next_after(job(schedule="0 8 * * *").policy, ZoneInfo("UTC"), NOON)
    plan = due_now(datetime(2026, 6, 2, 8, tzinfo=UTC), datetime(2026, 6, 4, 12, tzinfo=UTC), daily, missed)
    assert [why for _, why in plan.runs] == ["missed"] * count
    assert plan.left_out == 3 - count
    assert plan.following == datetime(2026, 6, 5, 8, tzinfo=UTC)


def test_what_all_leaves_out_is_noted_however_short_the_daemon_was_down() -> None:
    plan = due_now(NOON, NOON + timedelta(seconds=20), lambda after: after + timedelta(seconds=2), "all")
    assert (len(plan.runs), plan.left_out, plan.noted) == (6, 5, True)
    covered = due_now(NOON, NOON + timedelta(seconds=20), lambda after: after + timedelta(seconds=2), "once")
    assert (len(covered.runs), covered.left_out, covered.noted) == (1, 10, False)


@pytest.mark.parametrize(
    ("rule", "opened", "expected"),
    [
        ("skip", 0, "start"),
        ("skip", 1, "skip"),
        ("queue", 1, "start"),
        ("queue", 9, "skip"),
        ("cancel", 1, "cancel"),
        ("cancel", 0, "start"),
    ],
)
def test_what_is_due_while_the_last_run_goes_follows_overlap(rule: Overlap, opened: int, expected: str) -> None:
    assert overlapping(rule, [run("running")] * opened) == expected


def test_a_failing_job_is_tried_later_each_time_and_disabled_after_ten_in_a_row() -> None:
    failing, waits = job(every="1s"), []
    for _ in range(GIVEN_UP_AFTER - 1):
        failing = after_run(failing, run("error", error="no"), NOON)
        assert failing.retry_at is not None
        waits.append(failing.retry_at - NOON)
        planned = plan_job(failing, NOON + timedelta(seconds=20), next_after(failing.policy, ZoneInfo("UTC"), NOON))
        assert planned is None or planned.runs == ()
    assert waits == [*RETRIES, *[RETRIES[-1]] * (GIVEN_UP_AFTER - 1 - len(RETRIES))]
    disabled = after_run(failing, run("timeout", error="no"), NOON)
    assert disabled.disabled is not None
    assert disabled.next_at is None
    assert after_run(failing, run("ok"), NOON).failures == 0
    assert after_run(failing, run("interrupted"), NOON) == failing


def test_a_job_for_one_run_is_done_with_after_it_and_not_while_it_is_retried() -> None:
    once = dataclasses.replace(job(at="2026-06-01T13:00:00Z", delete_after_run=True), due_at=None)
    assert done_with(after_run(once, run("ok"), NOON))
    assert not done_with(after_run(once, run("error"), NOON))
    assert not done_with(after_run(job(every="1h"), run("ok"), NOON))


def test_jobs_that_are_due_together_start_over_a_few_seconds() -> None:
    starts = start_times(NOON, 1000, 4, 5)
    assert starts == sorted(starts)
    assert starts[:4] == [NOON] * 4
    assert starts[-1] == NOON + timedelta(seconds=5)
    assert start_times(NOON, 3, 4, 5) == [NOON] * 3


def test_deliveries_wait_longer_each_time_and_as_long_as_the_receiver_asks() -> None:
    waits = [delivery_wait_s(attempt, None, 0) for attempt in range(1, 12)]
    assert waits == sorted(waits)
    assert delivery_wait_s(1, 600, 0) == 600
    assert delivery_wait_s(1, 10**9, 0) == 3600


# --- a year -------------------------------------------------------------------------------------------------------


def local_days(times: list[datetime], zone: ZoneInfo) -> list[date]:
    return [at.astimezone(zone).date() for at in times]


def lived(start: Job, zone: ZoneInfo, looks: list[datetime], *, restarts: bool = False) -> list[tuple[datetime, str]]:
    """The (due time, why) of all runs of a job whose daemon looks at the clock at these times. `restarts`: before each
    look it is read from what `state.db` holds of it."""
    following = next_after(start.policy, zone, start.anchor)
    ran: list[tuple[datetime, str]] = []
    kept = TypeAdapter(Job)
    for now in looks:
        if restarts:
            start = kept.validate_json(kept.dump_json(start))
            following = next_after(start.policy, zone, start.anchor)
        planned = plan_job(start, now, following)
        if planned is not None:
            start = planned.job
            ran.extend(planned.runs)
    return ran


@pytest.mark.parametrize("name", ZONES)
@pytest.mark.parametrize("expression", ["30 2 * * *", "0 0 * * *", "15 12 * * *"])
def test_a_year_has_one_run_a_local_day_whatever_the_clock_does(name: str, expression: str) -> None:
    zone = ZoneInfo(name)
    began = datetime(2026, 1, 1, tzinfo=zone).astimezone(UTC)
    daily = dataclasses.replace(job(began, schedule=expression, timezone=name), due_at=None)
    daily = dataclasses.replace(daily, due_at=next_after(daily.policy, zone, began)(began))
    looks: list[datetime] = []
    for hour in range(365 * 24):
        now = began + timedelta(hours=hour, minutes=hour % 7)
        looks.append(now)
        if hour % 97 == 0:
            # the clock is set back by hours, and forth again
            looks.extend([now - timedelta(hours=5), now - timedelta(hours=2), now])
    ran = lived(daily, zone, looks)
    assert [at for at, _ in ran] == due_times(daily, zone, began, looks[-1])
    days = local_days([at for at, _ in ran], zone)
    assert len(days) == len(set(days))
    assert all((after - before).days == 1 for before, after in itertools.pairwise(days))
    assert len(days) >= 364


def due_times(one: Job, zone: ZoneInfo, after: datetime, until: datetime) -> list[datetime]:
    following = next_after(one.policy, zone, after)
    times: list[datetime] = []
    at = following(after)
    while at is not None and at <= until:
        times.append(at)
        at = following(at)
    return times


YEAR = [(name, "2026-01-01", 364) for name in ZONES]
CHANGES = [
    ("Europe/Prague", "2026-03-28", 3),
    ("Europe/Prague", "2026-10-24", 3),
    ("America/New_York", "2026-03-07", 3),
    ("America/New_York", "2026-10-31", 3),
    ("Australia/Lord_Howe", "2026-04-04", 3),
    ("Australia/Lord_Howe", "2026-10-03", 3),
    ("America/Nuuk", "2026-03-28", 3),
    ("America/Nuuk", "2026-10-24", 3),
    ("Africa/Casablanca", "2026-02-14", 3),
    ("Africa/Casablanca", "2026-03-21", 3),
    ("Pacific/Apia", "2011-12-29", 3),
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "day", "days"), YEAR if os.environ.get("SOAK") else CHANGES)
def test_started_anew_at_every_hour_each_time_runs_once(name: str, day: str, days: int) -> None:
    """`SOAK=1`: for a year; else around the clock changes."""
    zone = ZoneInfo(name)
    began = datetime.fromisoformat(day).replace(tzinfo=zone).astimezone(UTC)
    daily = job(began, schedule="30 2 * * *", timezone=name, missed="all")
    daily = dataclasses.replace(daily, due_at=next_after(daily.policy, zone, began)(began))
    looks = [began + timedelta(hours=hour) for hour in range(days * 24)]
    ran = lived(daily, zone, looks, restarts=True)
    assert [at for at, _ in ran] == due_times(daily, zone, began, looks[-1])
    assert len({at.astimezone(zone).date() for at, _ in ran}) == len(ran) >= days - 1


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
@pytest.mark.parametrize("name", ZONES)
def test_three_days_asleep_in_any_zone(name: str, missed: Missed) -> None:
    zone = ZoneInfo(name)
    began = datetime(2026, 3, 1, tzinfo=UTC)
    daily = job(began, schedule="30 2 * * *", timezone=name, missed=missed)
    following = next_after(daily.policy, zone, began)
    daily = dataclasses.replace(daily, due_at=following(began))
    awake = [began + timedelta(hours=hour) for hour in range(480)]
    woken = awake[-1] + timedelta(days=3, hours=9)
    due, at = 0, following(awake[-1])
    while at is not None and at <= woken - timedelta(minutes=1):
        due, at = due + 1, following(at)
    added = len(lived(daily, zone, [*awake, woken])) - len(lived(daily, zone, awake))
    assert added == {"skip": 0, "once": 1, "all": due}[missed]
    assert due >= 3


def test_a_clock_that_was_years_ahead_and_is_set_right_does_not_stop_a_job() -> None:
    daily = job(schedule="0 8 * * *")
    ran = lived(
        daily,
        ZoneInfo("UTC"),
        [NOON + timedelta(days=900), NOON + timedelta(hours=1), *(NOON + timedelta(days=d) for d in range(1, 5))],
    )
    assert [at.date() for at, _ in ran[1:]] == [date(2026, 6, d) for d in range(2, 6)]


AHEAD = NOON + timedelta(days=1200)


def failed(at: datetime, **policy: Any) -> Job:
    return after_run(dataclasses.replace(job(at, **policy), last_due=at), run("error", error="down"), at)


@pytest.mark.parametrize(
    ("waiting", "longest"),
    [
        (job(AHEAD, every="90m"), timedelta(minutes=90)),
        (dataclasses.replace(job(AHEAD, every="90m"), last_due=AHEAD), timedelta(minutes=90)),
        (job(AHEAD, schedule="0 4 * * *"), timedelta(days=1)),
        (dataclasses.replace(job(schedule="0 4 * * *"), due_at=AHEAD, last_due=AHEAD), timedelta(days=1)),
        (failed(AHEAD, schedule="0 * * * *"), timedelta(hours=1)),
        (failed(AHEAD, every="7d"), timedelta(days=7)),
        (dataclasses.replace(job(every="7d"), retry_at=AHEAD), timedelta(hours=1)),
        (dataclasses.replace(job(every="7d"), retry_at=NOON + timedelta(hours=7)), timedelta(hours=1)),
    ],
)
def test_nothing_waits_longer_than_it_ever_does_after_a_clock_was_ahead(waiting: Job, longest: timedelta) -> None:
    assert waits_too_long(waiting, NOON)
    following = next_after(waiting.policy, ZoneInfo("UTC"), anchor_at(waiting, NOON))
    planned = plan_job(waiting, NOON, following)
    assert planned is not None
    assert planned.runs == ()
    assert planned.job.next_at is not None
    assert NOON < planned.job.next_at <= NOON + longest
    assert not waits_too_long(planned.job, NOON)
    assert plan_job(planned.job, NOON, following) is None


def test_a_clock_that_is_set_back_by_hours_lets_nothing_run_twice() -> None:
    daily = dataclasses.replace(job(schedule="0 14 * * *"), last_due=NOON + timedelta(hours=2))
    daily = dataclasses.replace(daily, due_at=NOON + timedelta(hours=26))
    following = next_after(daily.policy, ZoneInfo("UTC"), daily.anchor)
    assert plan_job(daily, NOON, following) is None
    assert waits_until(daily, NOON, following) == daily.due_at
