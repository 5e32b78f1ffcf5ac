"""When a schedule comes due: cron expressions in a zone, spans, and single times; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from sessions.resets import boundary_of, offset_change

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
LOOK_AHEAD_DAYS = 370
COUNTED = 100
LONGEST = 200
_MACROS = frozenset({"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"})
_FIELD = re.compile(r"[0-9A-Za-z*/,#?-]+")
_WORDS = frozenset("jan feb mar apr may jun jul aug sep oct nov dec mon tue wed thu fri sat sun l".split())
_WORD = re.compile(r"[A-Za-z]+")


class BadSchedule(ValueError):
    """No such schedule; the message says what to write instead."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a zone: made by `parse_cron`."""

    expression: str
    zone: ZoneInfo


@dataclass(frozen=True, slots=True)
class Every:
    """Each full `period` after `anchor`; clock changes do not touch it."""

    period: timedelta
    anchor: datetime


@dataclass(frozen=True, slots=True)
class At:
    """Once."""

    at: datetime


Schedule = Cron | Every | At


@dataclass(frozen=True, slots=True)
class Preview:
    """The next times (UTC), and what a person should know about them."""

    times: tuple[datetime, ...]
    notes: tuple[str, ...]


def parse_cron(expression: str, zone: ZoneInfo) -> Cron:
    """Five fields, six with seconds first, or @daily and the like. Raises BadSchedule.

    The library behind it also takes random and hashed fields, which mean another time at every start: refused.
    """
    from croniter import croniter

    fields = expression.split()
    if len(fields) == 1 and fields[0].lower() in _MACROS:
        fields = [fields[0].lower()]
    elif len(fields) not in (5, 6) or len(expression) > LONGEST:
        raise BadSchedule(
            f"{expression!r:.100} has {len(fields)} fields; a cron expression has five (minute hour day month "
            f"weekday), or six with seconds first, and at most {LONGEST} characters."
        )
    elif unknown := [field for field in fields if not _known(field)]:
        raise BadSchedule(f"{unknown[0]!r:.60} is nothing a cron expression may hold, as in 30 2 * * mon-fri.")
    cron = Cron(" ".join(fields), zone)
    try:
        croniter(cron.expression, datetime(2024, 1, 1), second_at_beginning=True).get_next(datetime)
    except ValueError as error:
        raise BadSchedule(f"{expression!r:.100} is no cron expression that ever comes due ({error!s:.200}).") from error
    return cron


def _known(field: str) -> bool:
    return _FIELD.fullmatch(field) is not None and all(word.lower() in _WORDS for word in _WORD.findall(field))


def instant_of(local: datetime, zone: ZoneInfo) -> datetime | None:
    """When a zone's clock shows a local time, in UTC: the first of two, the end of the gap where it does not exist.

    None: the zone has skipped the whole day (Apia, 30 December 2011).
    """
    return boundary_of(local.date(), local.time(), zone)


@lru_cache(maxsize=256)
def next_time(schedule: Schedule, after: datetime) -> datetime | None:
    """The first due time after an instant, in UTC; None: never again.

    Whoever waits for it asks at every step of the scheduler, and croniter takes a third of a millisecond.
    """
    match schedule:
        case At(at=at):
            return at if at > after else None
        case Every(period=period, anchor=anchor):
            return anchor + period * max(1, (after - anchor) // period + 1)
        case Cron(zone=zone):
            for local in _local_times(schedule, _shown_last(after, zone)):
                at = instant_of(local, zone)
                if at is not None and at > after:
                    return at
            return None


def upcoming(schedule: Schedule, after: datetime, count: int) -> list[datetime]:
    """The next `count` due times."""
    times: list[datetime] = []
    at = next_time(schedule, after)
    while at is not None and len(times) < count:
        times.append(at)
        at = next_time(schedule, at)
    return times


def _shown_last(instant: datetime, zone: ZoneInfo) -> datetime:
    """The latest local time that the clock has shown by then: while an hour is repeated, that is its end."""
    local = instant.astimezone(zone)
    if local.fold:
        change = offset_change(instant, zone)
        local = (change - SECOND).astimezone(zone)
    return local.replace(tzinfo=None, microsecond=0, fold=0)


def _local_times(cron: Cron, after: datetime) -> Iterator[datetime]:
    """Matching local times after a local time, whether a clock ever shows them or not."""
    from croniter import CroniterBadDateError, croniter

    times = croniter(cron.expression, after, second_at_beginning=True)
    while True:
        try:
            yield times.get_next(datetime)
        except CroniterBadDateError:
            return


# --- what a person should know ----------------------------------------------------------------------------------------


def preview(schedule: Schedule, after: datetime, count: int) -> Preview:
    """The next times, what daylight saving does to them within a year, and how days are chosen."""
    times = tuple(upcoming(schedule, after, count))
    match schedule:
        case Cron():
            return Preview(times, (*_day_notes(schedule), *_clock_notes(schedule, after)))
        case Every():
            return Preview(times, ("The span is of real time: clock changes do not touch it.",))
        case At():
            return Preview(times, () if times else ("This time is over: it never runs.",))


def _day_notes(cron: Cron) -> Iterator[str]:
    fields = cron.expression.split()[-5:]
    if len(fields) == 5 and not {"*", "?"} & {fields[2], fields[4]}:
        yield (
            f"Day of month ({fields[2]}) and day of week ({fields[4]}) are both given: "
            "it runs on days that fit either of them."
        )


def _clock_notes(cron: Cron, after: datetime) -> Iterator[str]:
    name = cron.zone.key
    changes = list(_changes(cron.zone, after))
    if not changes:
        yield f"The clock of {name} does not change in the coming year."
        return
    touched = [note for change in changes if (note := _change_note(cron, change)) is not None]
    yield from touched
    if not touched:
        days = " and ".join(f"{change.astimezone(cron.zone):%Y-%m-%d}" for change in changes)
        yield f"The clock of {name} changes on {days}; none of these times is touched."


def _changes(zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The instants within a year at which the zone's offset changes."""
    at = after.astimezone(UTC)
    for _ in range(LOOK_AHEAD_DAYS):
        if at.astimezone(zone).utcoffset() != (at + DAY).astimezone(zone).utcoffset():
            change = offset_change(at + DAY / 2, zone)
            if change > after:
                yield change
        at += DAY


def _change_note(cron: Cron, change: datetime) -> str | None:
    """What happens to the times that a change skips or repeats; None when there are none."""
    until = (change - SECOND).astimezone(cron.zone).replace(tzinfo=None) + SECOND
    onward = change.astimezone(cron.zone).replace(tzinfo=None)
    low, high = min(until, onward), max(until, onward)
    touched: list[datetime] = []
    for local in _local_times(cron, low - SECOND):
        if local >= high or len(touched) == COUNTED:
            break
        touched.append(local)
    if not touched:
        return None
    span = f"{low:%H:%M} to {high:%H:%M} on {low:%Y-%m-%d} in {cron.zone.key}"
    first = f"{touched[0]:%H:%M}"
    if onward > until:
        if high - low >= DAY:
            return f"{low:%Y-%m-%d} does not exist in {cron.zone.key}: nothing runs for it."
        many = f"the times from {first} to {touched[-1]:%H:%M} run" if len(touched) > 1 else f"{first} runs"
        return f"Daylight saving: the clock skips {span}; {many} once, at {onward:%H:%M}."
    if len(touched) == 1:
        return f"Daylight saving: the clock shows {span} twice; {first} runs once, the first time."
    return (
        f"Daylight saving: the clock shows {span} twice; the times in it run once, the first time. "
        "For a steady rhythm use a span instead (every)."
    )
