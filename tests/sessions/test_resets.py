"""When sessions end by themselves: quiet and idle times, layers of settings, one boundary a local day everywhere."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.keys import parse_key
from sessions.policy import ResetOverride, ResetPolicy
from sessions.resets import (
    EffectiveReset,
    ResetReason,
    boundary_of,
    effective_reset,
    next_boundary,
    next_reset_at,
    reset_due,
)

PRAGUE = ZoneInfo("Europe/Prague")
GROUP = parse_key("agent:main:telegram:group:1")
ZONES = (
    "Europe/Prague",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Nuuk",
    "Africa/Casablanca",
    "Pacific/Apia",
    "America/Havana",
    "America/St_Johns",
)
MINUTES = st.integers(0, 24 * 60)


def rules(
    daily_at: str | None = "04:00", idle_minutes: int | None = None, quiet_minutes: int = 30, zone: ZoneInfo = PRAGUE
) -> EffectiveReset:
    return EffectiveReset(
        daily_at=None if daily_at is None else time.fromisoformat(daily_at),
        zone=zone,
        idle=None if idle_minutes is None else timedelta(minutes=idle_minutes),
        quiet=timedelta(minutes=quiet_minutes),
    )


def at(text: str, zone: ZoneInfo = PRAGUE) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone).astimezone(UTC)


@cache
def local_days(zone: ZoneInfo, year: int) -> list[date]:
    """The days a clock on the wall shows in a year, asked every half hour."""
    seen: dict[date, None] = {}
    instant, end = datetime(year, 1, 1, tzinfo=zone).astimezone(UTC), datetime(year + 1, 1, 1, tzinfo=zone)
    while instant < end:
        seen.setdefault(instant.astimezone(zone).date())
        instant += timedelta(minutes=30)
    return list(seen)


# --- one boundary a local day -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ZONES)
@pytest.mark.parametrize("daily_at", ["04:00", "00:00", "02:30", "23:30"])
def test_every_local_day_has_exactly_one_boundary(name: str, daily_at: str) -> None:
    zone, clock = ZoneInfo(name), time.fromisoformat(daily_at)
    for year in (2011, 2026):
        days = local_days(zone, year)
        boundaries = [boundary_of(day, clock, zone) for day in days]
        assert None not in boundaries
        assert sorted({b for b in boundaries if b is not None}) == boundaries
        reached = datetime(year, 1, 1, tzinfo=zone).astimezone(UTC) - timedelta(microseconds=1)
        stepped: list[datetime] = []
        for _ in days:
            reached = next_boundary(clock, zone, reached)
            stepped.append(reached)
        assert stepped == boundaries


@pytest.mark.parametrize("name", ZONES)
@pytest.mark.parametrize("year", [2011, 2026])
def test_a_daemon_that_looks_every_hour_ends_one_session_a_local_day(name: str, year: int) -> None:
    zone = ZoneInfo(name)
    effective = rules(zone=zone, quiet_minutes=0)
    started = now = datetime(year, 1, 1, 12, tzinfo=zone).astimezone(UTC)
    ended: list[date] = []
    while now < datetime(year + 1, 1, 1, tzinfo=zone):
        now += timedelta(hours=1)
        if reset_due(effective, started_at=started, active_at=started, now=now, busy=False):
            ended.append(now.astimezone(zone).date())
            started = now
    assert ended == local_days(zone, year)[1:]


@pytest.mark.parametrize(
    ("zone", "day", "daily_at", "expected"),
    [
        ("Europe/Prague", "2026-03-29", "02:30", "2026-03-29T01:00Z"),  # does not exist: 03:00, right after the gap
        ("Europe/Prague", "2026-10-25", "02:30", "2026-10-25T00:30Z"),  # twice: the first
        ("America/New_York", "2026-03-08", "02:00", "2026-03-08T07:00Z"),
        ("America/New_York", "2026-11-01", "01:30", "2026-11-01T05:30Z"),
        ("Australia/Lord_Howe", "2026-10-04", "02:15", "2026-10-03T15:30Z"),  # half an hour is missing
        ("Australia/Lord_Howe", "2026-04-05", "01:45", "2026-04-04T14:45Z"),
        ("America/Nuuk", "2026-03-28", "23:30", "2026-03-29T01:00Z"),  # the last hour of the day is missing
        ("America/Nuuk", "2026-03-29", "00:00", "2026-03-29T01:00Z"),
        ("Africa/Casablanca", "2026-02-15", "02:30", "2026-02-15T01:30Z"),  # Ramadan: an hour back at 03:00
        ("Africa/Casablanca", "2026-03-22", "02:30", "2026-03-22T02:00Z"),
        ("Pacific/Apia", "2011-12-29", "04:00", "2011-12-29T14:00Z"),
        ("Pacific/Apia", "2011-12-30", "04:00", None),  # this day was not
        ("Pacific/Apia", "2011-12-31", "04:00", "2011-12-30T14:00Z"),
    ],
)
def test_boundaries_of_odd_days(zone: str, day: str, daily_at: str, expected: str | None) -> None:
    found = boundary_of(date.fromisoformat(day), time.fromisoformat(daily_at), ZoneInfo(zone))
    assert found == (None if expected is None else datetime.fromisoformat(expected))


@given(
    zone=st.sampled_from(ZONES).map(ZoneInfo),
    day=st.dates(date(2000, 1, 1), date(2036, 1, 1)),
    daily_at=st.times().map(lambda t: t.replace(second=0, microsecond=0)),
)
def test_a_boundary_is_the_first_instant_that_shows_the_time_or_a_later_one(
    zone: ZoneInfo, day: date, daily_at: time
) -> None:
    boundary = boundary_of(day, daily_at, zone)
    if boundary is None:
        assert (day, zone.key) == (date(2011, 12, 30), "Pacific/Apia")
        return
    wanted = datetime.combine(day, daily_at)
    shown = boundary.astimezone(zone).replace(tzinfo=None)
    before = (boundary - timedelta(seconds=1)).astimezone(zone).replace(tzinfo=None)
    assert before < wanted <= shown


# --- quiet and idle ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("started", "active", "now", "expected"),
    [
        ("2026-05-01T20:00", "2026-05-01T22:00", "2026-05-02T03:59", None),
        ("2026-05-01T20:00", "2026-05-01T22:00", "2026-05-02T04:00", "daily"),
        ("2026-05-01T20:00", "2026-05-02T03:50", "2026-05-02T04:10", None),  # they are talking across 04:00
        ("2026-05-01T20:00", "2026-05-02T04:10", "2026-05-02T04:39", None),
        ("2026-05-01T20:00", "2026-05-02T04:10", "2026-05-02T04:40", "daily"),  # and then they stopped
        ("2026-05-02T04:00", "2026-05-02T04:00", "2026-05-02T23:00", None),  # began at the boundary
        ("2026-05-01T20:00", "2026-05-01T20:00", "2026-05-05T12:00", "daily"),  # three days asleep: once
        ("2026-05-05T12:00", "2026-05-05T12:00", "2026-05-05T13:00", None),
    ],
)
def test_a_daily_reset_waits_until_nobody_writes(
    started: str, active: str, now: str, expected: ResetReason | None
) -> None:
    due = reset_due(rules(), started_at=at(started), active_at=at(active), now=at(now), busy=False)
    assert due == expected


def test_a_turn_is_never_interrupted() -> None:
    old, now = at("2026-05-01T20:00"), at("2026-05-09T20:00")
    for effective in (rules(), rules(None, 5)):
        assert reset_due(effective, started_at=old, active_at=old, now=now, busy=True) is None


@pytest.mark.parametrize(
    ("active", "expected"),
    [("2026-05-01T20:00", "idle"), ("2026-05-02T03:50", "daily")],  # idle since 21:00; quiet at 04:20, idle at 04:50
)
def test_whichever_comes_first_is_the_reason_however_late_it_is_seen(active: str, expected: ResetReason) -> None:
    due = reset_due(
        rules(idle_minutes=60),
        started_at=at("2026-05-01T19:00"),
        active_at=at(active),
        now=at("2026-05-02T09:00"),
        busy=False,
    )
    assert due == expected


def test_both_switched_off_never_ends_a_session() -> None:
    old, now = at("2020-01-01T00:00"), at("2026-05-09T20:00")
    assert reset_due(rules(None), started_at=old, active_at=old, now=now, busy=False) is None
    assert next_reset_at(rules(None), started_at=old, active_at=old, now=now) is None


@pytest.mark.parametrize("back", [timedelta(minutes=2), timedelta(hours=3), timedelta(days=2)])
def test_a_clock_set_back_does_not_end_the_next_session_too(back: timedelta) -> None:
    effective = rules(idle_minutes=600)
    reset_at = at("2026-05-02T04:00")
    now = reset_at - back
    while now < at("2026-05-02T14:00"):
        assert reset_due(effective, started_at=reset_at, active_at=reset_at, now=now, busy=False) is None
        now += timedelta(minutes=20)


@pytest.mark.parametrize(("daily", "idle"), [("04:00", None), (None, 60)])
def test_a_session_that_began_while_the_clock_was_a_year_ahead_ends_when_it_is_set_right(
    daily: str | None, idle: int | None
) -> None:
    began, now = at("2027-05-02T04:00"), at("2026-05-02T12:00")
    effective = rules(daily, idle)
    assert reset_due(effective, started_at=began, active_at=began, now=now, busy=False) is not None
    assert next_reset_at(effective, started_at=began, active_at=began, now=now) == now
    assert reset_due(effective, started_at=now, active_at=now, now=now, busy=False) is None


@settings(max_examples=200)
@given(
    zone=st.sampled_from(ZONES).map(ZoneInfo),
    started=st.datetimes(datetime(2011, 12, 1), datetime(2027, 1, 1)).map(lambda d: d.replace(tzinfo=UTC)),
    talked=MINUTES,
    waited=MINUTES,
    idle=st.none() | st.integers(1, 24 * 60),
    daily=st.sampled_from(["04:00", "00:00", "23:30", None]),
    quiet=st.integers(0, 120),
)
def test_the_timer_and_the_next_message_agree(
    zone: ZoneInfo, started: datetime, talked: int, waited: int, idle: int | None, daily: str | None, quiet: int
) -> None:
    effective = rules(daily, idle, quiet, zone)
    active = started + timedelta(minutes=talked)
    now = active + timedelta(minutes=waited)
    when = next_reset_at(effective, started_at=started, active_at=active, now=now)
    due = reset_due(effective, started_at=started, active_at=active, now=now, busy=False)
    assert (due is not None) == (when == now or (when is not None and when < now))
    if when is not None and when > now:
        assert reset_due(effective, started_at=started, active_at=active, now=when, busy=False) is not None
        just_before = when - timedelta(microseconds=1)
        assert reset_due(effective, started_at=started, active_at=active, now=just_before, busy=False) is None


# --- settings over settings -------------------------------------------------------------------------------------------


def test_a_session_setting_wins_over_channel_over_type_over_default() -> None:
    policy = ResetPolicy(
        daily_at="01:00",
        by_type={"group": ResetOverride(daily_at="02:00", idle_minutes=2)},
        by_channel={"telegram": ResetOverride(daily_at="03:00")},
    )
    own = ResetOverride(daily_at="05:00")
    direct = parse_key("agent:main:slack:direct:1")
    found = [
        effective_reset(policy, key, override, PRAGUE)
        for key, override in [
            (direct, None),
            (parse_key("agent:main:slack:group:1"), None),
            (GROUP, None),
            (GROUP, own),
        ]
    ]
    assert [(f.daily_at, f.idle) for f in found] == [
        (time(1), None),
        (time(2), timedelta(minutes=2)),
        (time(3), timedelta(minutes=2)),
        (time(5), timedelta(minutes=2)),
    ]


def test_null_switches_a_reset_off_and_what_is_left_out_is_inherited() -> None:
    policy = ResetPolicy(idle_minutes=60, by_type={"group": ResetOverride.model_validate({"daily_at": None})})
    effective = effective_reset(policy, GROUP, None, PRAGUE)
    assert (effective.daily_at, effective.idle) == (None, timedelta(hours=1))
    off = effective_reset(policy, GROUP, ResetOverride.model_validate({"idle_minutes": None}), PRAGUE)
    assert (off.daily_at, off.idle) == (None, None)


@pytest.mark.parametrize("key", ["cron:daily", "hook:1", "agent:main:sub:01H"])
def test_jobs_hooks_and_delegated_tasks_end_only_where_a_setting_names_them(key: str) -> None:
    parsed = parse_key(key)
    plain = effective_reset(ResetPolicy(idle_minutes=5), parsed, None, PRAGUE)
    assert (plain.daily_at, plain.idle) == (None, None)
    named = ResetPolicy(by_type={parsed.type: ResetOverride(idle_minutes=9)})
    assert effective_reset(named, parsed, None, PRAGUE).idle == timedelta(minutes=9)


def test_the_zone_is_the_configured_one_or_else_the_machines() -> None:
    assert effective_reset(ResetPolicy(), GROUP, None, PRAGUE).zone == PRAGUE
    policy = ResetPolicy(timezone="America/Nuuk")
    assert effective_reset(policy, GROUP, None, PRAGUE).zone == ZoneInfo("America/Nuuk")
