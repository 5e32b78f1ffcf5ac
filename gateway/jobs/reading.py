"""Jobs on the disk that cannot be used on this machine: a zone it does not know, a setting of another version."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import orjson
from pydantic import TypeAdapter, ValidationError

from gateway.complaints import complaint
from gateway.jobs.decisions import set_aside
from gateway.jobs.policy import JobPolicy
from gateway.jobs.values import Job

if TYPE_CHECKING:
    from collections.abc import Mapping

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def reason_of(error: ValidationError) -> str:
    """What is wrong, with its place; values are not shown, they may be secrets."""
    problems = [(".".join(str(part) for part in one["loc"]), complaint(one)) for one in error.errors()]
    return "; ".join(f"{place}: {why}" if place else why for place, why in problems)[:500]


def job_aside(job_id: str, name: str, body: str, error: ValidationError) -> Job:
    """A job as far as it can be shown, set aside. What it was made of stays on the disk."""
    raw = _object(body)
    policy = _object(raw.get("policy"))
    bad = {str(one["loc"][1]) for one in error.errors() if one["loc"][:1] == ("policy",) and len(one["loc"]) > 1}
    job = Job(
        id=job_id,
        origin="config" if raw.get("origin") == "config" else "api",
        policy=_shown(name, {field: value for field, value in policy.items() if field not in bad}),
        created_at=_time(raw.get("created_at")),
        anchor=_time(raw.get("anchor")),
        paused=raw.get("paused") is True,
    )
    return set_aside(job, reason_of(error))


def _shown(name: str, fields: Mapping[str, Any]) -> JobPolicy:
    """What can be read of a definition; where that is none, one that stands for it."""
    try:
        return JobPolicy.model_validate_json(orjson.dumps({**fields, "name": name}))
    except ValidationError:
        return JobPolicy(name=name, every="3660d", message="-", enabled=False)


def _object(value: Any) -> dict[str, Any]:
    try:
        found = orjson.loads(value) if isinstance(value, str) else value
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _time(value: Any) -> datetime:
    try:
        found = TypeAdapter(datetime).validate_python(value)
    except ValidationError:
        return EPOCH
    return found if found.tzinfo is not None else EPOCH
