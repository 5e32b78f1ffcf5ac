from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.schedules import At, BadSchedule, Cron, Every, next_time, parse_cron, preview, upcoming

ZONES = [
    "Europe/Prague",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Nuuk",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Asia/Kathmandu",
]


def cron(expression: str, zone: str = "Europe/Prague") -> Cron:
    return parse_cron(expression, ZoneInfo(zone))


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def local_times(schedule: Cron, after: str, count: int) -> list[str]:
    zone = schedule.zone
    start = datetime.fromisoformat(after).replace(tzinfo=zone)
    return [at.astimezone(zone).strftime("%m-%d %H:%M %z") for at in upcoming(schedule, start, count)]


def test_a_time_that_exists_twice_runs_the_first_time_only() -> None:
    assert local_times(cron("30 2 * * *"), "2026-10-24T00:00", 3) == [
        "10-24 02:30 +0200",
        "10-25 02:30 +0200",
        "10-26 02:30 +0100",
    ]


def test_a_time_that_does_not_exist_runs_right_after() -> None:
    assert local_times(cron("30 2 * * *"), "2026-03-28T00:00", 3) == [
        "03-28 02:30 +0100",
        "03-29 03:00 +0200",
        "03-30 02:30 +0200",
    ]


def test_times_of_one_gap_run_once_together() -> None:
    assert local_times(cron("*/20 2,3 * * *"), "2026-03-29T00:00", 3) == [
        "03-29 03:00 +0200",
        "03-29 03:20 +0200",
        "03-29 03:40 +0200",
    ]


def test_a_gap_at_the_end_of_the_day_runs_at_midnight() -> None:
    assert local_times(cron("30 23 * * *", "America/Nuuk"), "2026-03-28T12:00", 2) == [
        "03-29 00:00 -0100",
        "03-29 23:30 -0100",
    ]


def test_a_day_that_was_skipped_has_no_run() -> None:
    assert local_times(cron("0 9 * * *", "Pacific/Apia"), "2011-12-28T12:00", 2) == [
        "12-29 09:00 -1000",
        "12-31 09:00 +1400",
    ]


def test_half_an_hour_of_lord_howe_is_repeated_once() -> None:
    assert local_times(cron("45 1 * * *", "Australia/Lord_Howe"), "2026-04-04T12:00", 2) == [
        "04-05 01:45 +1100",
        "04-06 01:45 +1030",
    ]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", ["0 4 * * *", "30 2 * * *", "59 23 * * *", "0 0 * * *", "30 1 * * *"])
def test_a_daily_time_comes_once_each_local_day_of_a_year(zone: str, expression: str) -> None:
    schedule = cron(expression, zone)
    start = utc("2026-01-01T12:00")
    times = [at for at in upcoming(schedule, start, 400) if at < start + timedelta(days=365)]
    minutes = int(expression.split()[0]) + 60 * int(expression.split()[1])
    days: list[date] = []
    for at in times:
        local = at.astimezone(schedule.zone)
        late = timedelta(hours=local.hour, minutes=local.minute) - timedelta(minutes=minutes)
        days.append((local - timedelta(minutes=1)).date() if late < timedelta(0) else local.date())
        assert late < timedelta(hours=1, minutes=1)
    assert len(days) == 365
    assert all(after - before == timedelta(days=1) for before, after in pairwise(days))


@given(
    st.sampled_from(ZONES),
    st.sampled_from(["30 2 * * *", "*/15 * * * *", "0 0 1 * mon", "5 4 * * sun", "0 */7 * * *", "15 30 1 * * *"]),
    st.datetimes(datetime(2011, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),
    st.timedeltas(timedelta(0), timedelta(days=2)),
)
def test_asking_again_at_any_moment_before_gives_the_same_time(
    zone: str, expression: str, after: datetime, later: timedelta
) -> None:
    schedule = cron(expression, zone)
    due = next_time(schedule, after)
    assert due is not None
    assert due > after
    moment = min(after + later, due - timedelta(microseconds=1))
    assert next_time(schedule, moment) == due
    shown = due.astimezone(schedule.zone)
    again = next_time(schedule, due)
    assert again is not None
    assert (again.astimezone(schedule.zone).replace(tzinfo=None)) != shown.replace(tzinfo=None)


def test_seconds_stand_first_in_six_fields() -> None:
    assert upcoming(cron("*/20 * * * * *", "UTC"), utc("2026-01-01T00:00:00.500000"), 2) == [
        utc("2026-01-01T00:00:20"),
        utc("2026-01-01T00:00:40"),
    ]


def test_every_second_is_quick_while_an_hour_is_repeated() -> None:
    schedule = cron("* * * * * *")
    assert next_time(schedule, utc("2026-10-25T00:59:59")) == utc("2026-10-25T02:00:00")
    assert next_time(schedule, utc("2026-10-25T01:10:00")) == utc("2026-10-25T02:00:00")


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "has 0 fields"),
        ("30 2 * *", "five"),
        ("0 0 1 1 * 0 2030", "7 fields"),
        ("61 * * * *", "out of range"),
        ("0 0 31 2 *", "ever comes due"),
        ("R 2 * * *", "'R'"),
        ("H H * * *", "'H'"),
        ("@random", "fields"),
        ("0 0 * * someday", "'someday'"),
        ("0 0 * * \x00", "nothing a cron"),
        ("9" * 5000, "fields"),
    ],
)
def test_what_is_no_schedule_is_refused(expression: str, says: str) -> None:
    with pytest.raises(BadSchedule) as refused:
        cron(expression)
    assert says in str(refused.value)
    assert len(str(refused.value)) < 400


def test_every_counts_from_its_anchor() -> None:
    anchor = utc("2026-10-24T10:00")
    schedule = Every(timedelta(minutes=90), anchor)
    assert next_time(schedule, anchor) == utc("2026-10-24T11:30")
    assert next_time(schedule, anchor - timedelta(days=3)) == utc("2026-10-24T11:30")
    assert upcoming(schedule, utc("2026-10-25T00:00"), 2) == [utc("2026-10-25T01:00"), utc("2026-10-25T02:30")]


def test_a_single_time_comes_once() -> None:
    at = utc("2026-10-24T10:00")
    assert upcoming(At(at), at - timedelta(days=400), 5) == [at]
    assert upcoming(At(at), at, 5) == []


def test_the_preview_says_what_daylight_saving_does() -> None:
    shown = preview(cron("30 2 * * *"), utc("2026-10-24T00:00"), 5)
    assert len(shown.times) == 5
    assert shown.notes == (
        "Daylight saving: the clock shows 02:00 to 03:00 on 2026-10-25 in Europe/Prague twice; 02:30 runs once, the "
        "first time.",
        "Daylight saving: the clock skips 02:00 to 03:00 on 2027-03-28 in Europe/Prague; 02:30 runs once, at 03:00.",
    )


def test_the_preview_says_how_days_are_chosen_and_when_no_clock_change_matters() -> None:
    shown = preview(cron("0 9 1 * mon"), utc("2026-10-24T00:00"), 1)
    assert "either" in shown.notes[0]
    assert "none of these times is touched" in shown.notes[1]
    assert preview(cron("0 9 * * mon", "Asia/Kathmandu"), utc("2026-10-24T00:00"), 1).notes == (
        "The clock of Asia/Kathmandu does not change in the coming year.",
    )


def test_the_preview_warns_of_an_hour_without_runs() -> None:
    shown = preview(cron("*/15 * * * *"), utc("2026-10-24T00:00"), 1)
    assert "steady rhythm" in shown.notes[0]
    assert "the times from 02:00 to 02:45 run once, at 03:00" in shown.notes[1]
