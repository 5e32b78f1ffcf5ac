from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from gateway.clock import ManualClock
from gateway.ending import Outcome, SessionTimer, session_ended
from sessions.entries import EndedEntry
from sessions.files import OsFiles, StorageFull
from sessions.keys import SessionKey, parse_key
from sessions.policy import ResetOverride, ResetPolicy, SessionsPolicy
from sessions.record import SessionRecord, SessionSettings
from sessions.resets import effective_reset, next_boundary, reset_due
from sessions.store import SessionStore
from tests.sessions.builders import user

if TYPE_CHECKING:
    from pathlib import Path

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
ANA = "agent:main:web:direct:ana"
ZONES = [
    "Europe/Prague",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Nuuk",
    "Africa/Casablanca",
    "Pacific/Apia",
]


class Index:
    """One session of one key, as the timer sees it; ending it begins the next, and somebody speaks there at once."""

    def __init__(self, clock: ManualClock, policy: ResetPolicy) -> None:
        self._clock, self._policy = clock, policy
        self.after_append: list[object] = []
        self.index = self
        self.ended: list[tuple[datetime, str]] = []
        self.busy = False
        self.number = 0
        self.record = self._begin()

    def _begin(self) -> SessionRecord:
        self.number += 1
        now = self._clock.now()
        return SessionRecord(
            session=f"S{self.number:025}",
            key=ANA,
            agent="main",
            type="direct",
            channel="web",
            messages=1,
            created_at=now,
            active_at=now,
        )

    def going_on(self) -> list[str]:
        return [self.record.session]

    def find(self, session: str) -> SessionRecord | None:
        return self.record if session == self.record.session else None

    async def end_if_due(self, key: SessionKey, session_id: str) -> Outcome:
        due = reset_due(
            effective_reset(self._policy, key, self.record.settings.reset, ZoneInfo("UTC")),
            started_at=self.record.created_at,
            active_at=self.record.active_at,
            now=self._clock.now(),
            busy=self.busy,
        )
        if due is None:
            return "busy" if self.busy else "not due"
        self.ended.append((self._clock.now(), due))
        self.record = self._begin()
        return "ended"


def timer_of(index: Index, policy: ResetPolicy) -> SessionTimer:
    return SessionTimer(
        store=index,  # type: ignore[arg-type]
        turns=index,
        policy=policy,
        machine_zone=ZoneInfo("UTC"),
        wake=lambda: None,
    )


async def tick(clock: ManualClock, index: Index, timer: SessionTimer, at: datetime) -> None:
    clock.set(at)
    due = timer.next_due(at)
    if due is not None and due <= at:
        await timer.run_due(at)
        timer.consider(index.record)


def local_days(index: Index, zone: str) -> list[date]:
    return [at.astimezone(ZoneInfo(zone)).date() for at, _ in index.ended]


def every_day(first: date, last: date) -> list[date]:
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("daily_at", ["02:30", "00:00"])
async def test_a_year_has_one_daily_reset_each_local_day(zone: str, daily_at: str) -> None:
    policy = ResetPolicy(daily_at=daily_at, timezone=zone, quiet_minutes=0)
    clock = ManualClock(START.replace(month=1))
    index = Index(clock, policy)
    timer = timer_of(index, policy)
    at = clock.now()
    for _ in range(365 * 48):
        at += timedelta(minutes=30)
        await tick(clock, index, timer, at)
    days = local_days(index, zone)
    assert days == every_day(days[0], days[-1])
    assert len(days) == 365


@pytest.mark.parametrize("zone", ZONES)
async def test_a_restart_at_every_hour_of_a_year_changes_nothing(zone: str) -> None:
    policy = ResetPolicy(daily_at="02:30", timezone=zone, quiet_minutes=0)
    clock = ManualClock(START.replace(month=1))
    index = Index(clock, policy)
    at = clock.now()
    for _ in range(365 * 24):
        at += timedelta(hours=1)
        index.after_append.clear()
        await tick(clock, index, timer_of(index, policy), at)
    days = local_days(index, zone)
    assert days == every_day(days[0], days[-1])
    assert len(days) == 365


@pytest.mark.parametrize("zone", ZONES)
async def test_a_clock_that_is_set_back_and_forth_ends_no_day_twice(zone: str) -> None:
    policy = ResetPolicy(daily_at="04:00", timezone=zone, quiet_minutes=0)
    clock = ManualClock(START.replace(month=1))
    index = Index(clock, policy)
    timer = timer_of(index, policy)
    at = clock.now()
    for step in range(365 * 48):
        at += timedelta(minutes=30)
        await tick(clock, index, timer, at)
        if step % 7 == 0:
            await tick(clock, index, timer, at - timedelta(hours=1))
            await tick(clock, index, timer, at + timedelta(minutes=20))
    days = local_days(index, zone)
    assert len(set(days)) == len(days) == 365


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("restarts", [False, True])
async def test_three_days_of_sleep_a_week_for_a_year_end_a_session_once_each_time(zone: str, restarts: bool) -> None:
    policy = ResetPolicy(timezone=zone, quiet_minutes=0)
    clock = ManualClock(START.replace(month=1))
    index = Index(clock, policy)
    timer = timer_of(index, policy)
    at, expected = clock.now(), 0
    due = next_boundary(time(4), ZoneInfo(zone), at)
    for _ in range(52):
        for hour in range(97):
            at += timedelta(hours=72 if hour == 50 else 1)
            if at >= due:
                expected, due = expected + 1, next_boundary(time(4), ZoneInfo(zone), at)
            await tick(clock, index, timer_of(index, policy) if restarts else timer, at)
    assert len(index.ended) == expected
    assert expected == 52 * 5


async def test_after_a_clock_that_was_a_year_ahead_is_set_right_every_day_has_its_reset_again() -> None:
    policy = ResetPolicy(daily_at="04:00", timezone="Europe/Prague", quiet_minutes=0)
    clock = ManualClock(START)
    index = Index(clock, policy)
    timer = timer_of(index, policy)
    await tick(clock, index, timer, START)
    await tick(clock, index, timer, START + timedelta(days=365))
    assert len(index.ended) == 1
    for hours in range(24 * 5):
        await tick(clock, index, timer, START + timedelta(hours=hours))
    assert len(index.ended) == 1 + 1 + 5


async def test_the_day_that_apia_skipped_had_no_reset() -> None:
    policy = ResetPolicy(daily_at="04:00", timezone="Pacific/Apia", quiet_minutes=0)
    clock = ManualClock(datetime(2011, 12, 27, 12, tzinfo=UTC))
    index = Index(clock, policy)
    timer = timer_of(index, policy)
    for hours in range(1, 24 * 7):
        await tick(clock, index, timer, datetime(2011, 12, 27, 12, tzinfo=UTC) + timedelta(hours=hours))
    days = local_days(index, "Pacific/Apia")
    assert date(2011, 12, 30) not in days
    assert days == [date(2011, 12, d) for d in (27, 28, 29, 31)] + [date(2012, 1, d) for d in (1, 2, 3)]


async def test_a_session_that_is_busy_ends_after_its_turn() -> None:
    policy = ResetPolicy(daily_at=None, idle_minutes=10)
    clock = ManualClock(START)
    index = Index(clock, policy)
    timer = timer_of(index, policy)
    index.busy = True
    await timer.run_due(START)
    clock.set(START + timedelta(minutes=10))
    await timer.run_due(clock.now())
    assert index.ended == []
    index.busy = False

    class Done:
        id = index.record.session
        record = index.record

    timer.turn_done(Done())  # type: ignore[arg-type]
    due = timer.next_due(clock.now())
    assert due is not None
    assert due <= clock.now()
    await timer.run_due(clock.now())
    assert [reason for _, reason in index.ended] == ["idle"]


async def test_a_full_disk_delays_an_end() -> None:
    policy = ResetPolicy(daily_at=None, idle_minutes=10)
    clock = ManualClock(START)
    index = Index(clock, policy)

    class Full:
        async def end_if_due(self, key: SessionKey, session_id: str) -> Outcome:
            raise StorageFull("full")

    timer = SessionTimer(
        store=index,  # type: ignore[arg-type]
        turns=Full(),
        policy=policy,
        machine_zone=ZoneInfo("UTC"),
        wake=lambda: None,
    )
    clock.set(START + timedelta(minutes=10))
    await timer.run_due(clock.now())
    assert timer.next_due(clock.now()) == clock.now() + timedelta(seconds=60)


async def test_other_settings_count_at_once_and_messages_cost_nothing(tmp_path: Path) -> None:
    clock = ManualClock(START)
    store = SessionStore(tmp_path, SessionsPolicy(), OsFiles(), clock)
    await store.start()
    policy = ResetPolicy(daily_at=None, idle_minutes=60)
    woken: list[int] = []
    timer = SessionTimer(
        store=store,
        turns=Index(clock, policy),
        policy=policy,
        machine_zone=ZoneInfo("UTC"),
        wake=lambda: woken.append(1),
    )
    store.after_append.append(timer.appended)
    await timer.run_due(START)
    session = await store.active(parse_key(ANA))
    await store.append(session, user("hello"), opens_turn=True)
    assert timer.next_due(START) == session.record.active_at + timedelta(minutes=60)
    await store.append(session, user("again"), opens_turn=True)
    assert len(woken) == 1
    settings = SessionSettings(reset=ResetOverride(idle_minutes=1))
    timer.consider(SessionRecord(**{**_fields(session.record), "settings": settings}))
    assert timer.next_due(START) == session.record.active_at + timedelta(minutes=1)
    await store.stop()


def _fields(record: SessionRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in SessionRecord.__slots__}


async def test_every_end_is_told_to_the_hooks_but_that_of_a_deleted_session(tmp_path: Path) -> None:
    store = SessionStore(tmp_path, SessionsPolicy(), OsFiles(), ManualClock(START))
    told: list[tuple[str, str]] = []
    store.after_append.append(session_ended([lambda record, reason: told.append((record.key, reason))]))
    await store.start()
    session = await store.active(parse_key(ANA))
    await store.append(session, user("hello"), opens_turn=True)
    await store.append(session, EndedEntry(reason="deleted"))
    await store.append(session, EndedEntry(reason="idle"))
    assert told == [(ANA, "idle")]
    await store.stop()
