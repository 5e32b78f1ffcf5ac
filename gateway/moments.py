"""A moment as people write it: a time with its zone, or a date, which means the beginning of that day."""

from __future__ import annotations

import re
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AwareDatetime, PlainValidator, TypeAdapter, ValidationError, WithJsonSchema

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

FORM = "A time with its zone, or a date: the beginning of that day in the zone of sessions.reset."

_DATE_LENGTH = len("2026-12-01")
_BEGINS_WITH_A_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
"""Digits alone would be read as seconds since 1970."""
_TIMES: TypeAdapter[datetime] = TypeAdapter(AwareDatetime)


def _moment_of(raw: Any) -> date:
    """Raises ValueError for what is neither."""
    if isinstance(raw, date):
        raw = raw.isoformat()
    try:
        if isinstance(raw, str) and _BEGINS_WITH_A_DATE.match(raw):
            if len(raw) == _DATE_LENGTH:
                return date.fromisoformat(raw)
            return _TIMES.validate_python(raw)
    except (ValidationError, ValueError):
        pass
    raise ValueError("is neither a time with its zone, as in 2026-05-01T12:00Z, nor a date, as in 2026-05-01")


Moment = Annotated[
    date,
    PlainValidator(_moment_of),
    WithJsonSchema({"type": "string", "examples": ["2026-05-01", "2026-05-01T12:00:00Z"]}),
]
"""A date, or an aware datetime, which is one too; `moment_at` makes an instant of it."""


def moment_at(moment: date, zone: ZoneInfo) -> datetime:
    """The instant that is meant."""
    return moment if isinstance(moment, datetime) else datetime.combine(moment, time.min, zone)
