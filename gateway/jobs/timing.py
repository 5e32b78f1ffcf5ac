"""The schedule that a job's definition means."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from gateway.jobs.policy import parse_every
from gateway.schedules import At, BadSchedule, Every, Schedule, instant_of, next_time, parse_cron

if TYPE_CHECKING:
    from gateway.jobs.decisions import NextAfter
    from gateway.jobs.policy import JobPolicy


def zone_of(policy: JobPolicy, machine_zone: ZoneInfo) -> ZoneInfo:
    return machine_zone if policy.timezone is None else ZoneInfo(policy.timezone)


def schedule_of(policy: JobPolicy, machine_zone: ZoneInfo, anchor: datetime) -> Schedule:
    """Spans count from `anchor`. Raises BadSchedule."""
    zone = zone_of(policy, machine_zone)
    if policy.expression is not None:
        return parse_cron(policy.expression, zone)
    if policy.every is not None:
        return Every(parse_every(policy.every), anchor)
    assert policy.at is not None  # noqa: S101
    return At(in_zone(policy.at, zone))


def in_zone(at: datetime, zone: ZoneInfo) -> datetime:
    """The instant, in UTC; a time without an offset is one of the zone. Raises BadSchedule."""
    try:
        instant = instant_of(at, zone) if at.tzinfo is None else at.astimezone(UTC)
    except OverflowError as error:
        raise BadSchedule(f"{at:%Y-%m-%d} is beyond what a schedule can be.") from error
    if instant is None:
        raise BadSchedule(f"{at:%Y-%m-%d} does not exist in {zone.key}.")
    return instant


def next_after(policy: JobPolicy, machine_zone: ZoneInfo, anchor: datetime) -> NextAfter:
    """The first due time after an instant, as a function. Raises BadSchedule."""
    schedule = schedule_of(policy, machine_zone, anchor)
    return lambda after: next_time(schedule, after)
