"""When a session ends by itself: once a local day, or after idleness (spec sessions.md, "Resets")."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from sessions.keys import SessionKey
    from sessions.policy import ResetOverride, ResetPolicy

ResetReason = Literal["daily", "idle"]
NEVER_BY_DEFAULT = frozenset({"cron", "hook", "sub"})
SET_BACK = timedelta(days=7)
"""A clock that was set back by more had been wrong before."""
LONG_AGO = timedelta(days=3650)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveReset:
    """The rules for one session. None switches a rule off."""

    daily_at: time | None
    zone: ZoneInfo
    idle: timedelta | None
    quiet: timedelta


def effective_reset(
    policy: ResetPolicy, key: SessionKey, override: ResetOverride | None, machine_zone: ZoneInfo
) -> EffectiveReset:
    """The session's own setting over its channel's over its type's over the default, field by field.

    A field given as null switches the rule off; a field left out is inherited. Jobs, hooks and delegated tasks end by
    themselves only where a setting names them.
    """
    known = key.type not in NEVER_BY_DEFAULT
    daily = policy.daily_at if known else None
    idle = policy.idle_minutes if known else None
    for layer in (policy.by_type.get(key.type), policy.by_channel.get(key.channel or ""), override):
        if layer is None:
            continue
        if "daily_at" in layer.model_fields_set:
            daily = layer.daily_at
        if "idle_minutes" in layer.model_fields_set:
            idle = layer.idle_minutes
    return EffectiveReset(
        daily_at=None if daily is None else time.fromisoformat(daily),
        zone=policy.zone(machine_zone),
        idle=None if idle is None else timedelta(minutes=idle),
        quiet=timedelta(minutes=policy.quiet_minutes),
    )


def reset_due(
    rules: EffectiveReset, *, started_at: datetime, active_at: datetime, now: datetime, busy: bool
) -> ResetReason | None:
    """Whether the session ends before it goes on. `active_at` is the last message from a person before `now`.

    Never during a turn. Daily: a boundary has passed since it began, and nobody wrote for the quiet time. Of two resets
    the reason is the one that was due first.
    """
    if busy:
        return None
    at, reason = _first_due(rules, _believed(started_at, now), _believed(active_at, now))
    return reason if at is not None and at <= now else None


def next_reset_at(
    rules: EffectiveReset, *, started_at: datetime, active_at: datetime, now: datetime
) -> datetime | None:
    """When `reset_due` turns true if nobody writes any more; `now` when it is true already, None: never."""
    at, _ = _first_due(rules, _believed(started_at, now), _believed(active_at, now))
    return None if at is None else max(at, now)


def _believed(at: datetime, now: datetime) -> datetime:
    """A time far ahead of the clock was noted by a wrong one; waiting for it, a session would go on for ever."""
    return now - LONG_AGO if at - now > SET_BACK else at


def _first_due(
    rules: EffectiveReset, started_at: datetime, active_at: datetime
) -> tuple[datetime, ResetReason] | tuple[None, None]:
    """The reset that comes first after the last message. It depends on no current time, so a clock that is set back
    and passes the same boundary again ends nothing twice: the new session began after it."""
    due: list[tuple[datetime, ResetReason]] = []
    if rules.daily_at is not None:
        due.append((max(next_boundary(rules.daily_at, rules.zone, started_at), active_at + rules.quiet), "daily"))
    if rules.idle is not None:
        due.append((active_at + rules.idle, "idle"))
    return min(due) if due else (None, None)


def boundary_of(day: date, daily_at: time, zone: ZoneInfo) -> datetime | None:
    """The first instant of a local day at which its wall clock shows `daily_at` or later; in UTC.

    A time that does not exist (spring) means the end of the gap, also where the gap takes the rest of the day; one that
    exists twice (autumn) the first. None: the zone has skipped the whole day.
    """
    first = datetime.combine(day, daily_at, zone).astimezone(UTC)
    back = first.astimezone(zone)
    if back.replace(tzinfo=None) == datetime.combine(day, daily_at):
        return first
    end = offset_change(first, zone)
    around = (end - timedelta(seconds=1), end)
    return end if any(instant.astimezone(zone).date() == day for instant in around) else None


def offset_change(near: datetime, zone: ZoneInfo) -> datetime:
    """The instant at which a zone's offset changes, within the two days around `near`; there must be one."""
    low, high = near - timedelta(days=1, hours=2), near + timedelta(days=1, hours=2)
    before = low.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        if middle.astimezone(zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return high.replace(microsecond=0)


def next_boundary(daily_at: time, zone: ZoneInfo, after: datetime) -> datetime:
    """The first boundary after an instant."""
    today = after.astimezone(zone).date()
    for ahead in range(4):
        boundary = boundary_of(today + timedelta(days=ahead), daily_at, zone)
        if boundary is not None and boundary > after:
            return boundary
    raise AssertionError("every zone has a boundary within four days")
