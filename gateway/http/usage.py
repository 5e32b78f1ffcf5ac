"""Usage: tokens and cost, in groups, as JSON or CSV."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

from aiohttp import web
from pydantic import AfterValidator, AwareDatetime, BaseModel, Field

from gateway.http.auth import may_see
from gateway.http.routes import Body, Call, Route, json_answer
from gateway.http.sessions import visible
from gateway.http.views import UsageView
from gateway.ledger import USAGE_GROUPS, UsageFilter, UsageGroup, UsageRow

if TYPE_CHECKING:
    from gateway.http.auth import Caller
    from gateway.parts import Parts


def _groups(raw: str) -> str:
    unknown = [name for name in raw.split(",") if name not in USAGE_GROUPS]
    if unknown:
        raise ValueError(f"unknown group {unknown[0]!r}; known are {', '.join(USAGE_GROUPS)}")
    return raw


class UsageQuery(Body):
    by: Annotated[str, Field(max_length=100), AfterValidator(_groups)] = Field(
        default="day", description=f"Groups, separated by commas: {', '.join(USAGE_GROUPS)}"
    )
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    format: Literal["json", "csv"] = "json"


class UsageRowView(BaseModel):
    """One group. `cost` is an exact decimal, null while no price is known; `unpriced` calls are not in it."""

    group: dict[str, str | None]
    calls: int
    usage: UsageView
    cost: str | None
    unpriced: int


class UsageReport(BaseModel):
    """Tokens and cost, in groups."""

    rows: list[UsageRowView]


def routes(parts: Parts) -> list[Route]:
    async def all_usage(call: Call) -> web.Response:
        query: UsageQuery = call.query
        return await _report(parts, call, usage_of_caller(call.caller, _utc(query.since), _utc(query.until)))

    async def session_usage(call: Call) -> web.Response:
        record, query = visible(parts, call), call.query
        wanted = UsageFilter(since=_utc(query.since), until=_utc(query.until), key=record.key)
        return await _report(parts, call, wanted)

    answers = {200: (UsageReport, "text/csv")}
    return [
        Route(
            method="GET",
            path="/v1/usage",
            endpoint=all_usage,
            summary="Tokens and cost of model calls",
            tag="usage",
            query=UsageQuery,
            answers=answers,
        ),
        Route(
            method="GET",
            path="/v1/sessions/{key}/usage",
            endpoint=session_usage,
            summary="Tokens and cost of one chat",
            tag="usage",
            query=UsageQuery,
            answers=answers,
        ),
    ]


def usage_of_caller(caller: Caller, since: datetime | None, until: datetime | None) -> UsageFilter:
    """The calls a caller may know of: an administrator all, a person their own."""
    if caller.role == "user":
        return UsageFilter(since=since, until=until, user=caller.user)
    if caller.role == "admin":
        return UsageFilter(since=since, until=until)
    return UsageFilter(since=since, until=until, keys=lambda key: may_see(caller, key, None))


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC)


async def _report(parts: Parts, call: Call, wanted: UsageFilter) -> web.Response:
    query: UsageQuery = call.query
    by: list[UsageGroup] = [name for name in USAGE_GROUPS if name in query.by.split(",")]
    rows = await parts.ledger.report(by, wanted)
    if query.format == "csv":
        return web.Response(text=_csv(by, rows), content_type="text/csv")
    return json_answer({"rows": [_row(row) for row in rows]})


def _row(row: UsageRow) -> dict[str, object]:
    return {
        "group": row.group,
        "calls": row.calls,
        "usage": row.usage.to_json(),
        "cost": None if row.cost is None else str(row.cost),
        "unpriced": row.unpriced,
    }


def _csv(by: list[UsageGroup], rows: list[UsageRow]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(
        [*by, "calls", "input_total", "cached_read", "cache_write", "output", "reasoning", "cost", "unpriced"]
    )
    for row in rows:
        u = row.usage
        counts = [u.input_total, u.cached_read, u.cache_write, u.output, u.reasoning]
        names = [_harmless(row.group[name] or "") for name in by]
        writer.writerow([*names, row.calls, *counts, "" if row.cost is None else row.cost, row.unpriced])
    return out.getvalue()


def _harmless(text: str) -> str:
    """Spreadsheets run what begins like a formula."""
    return f"'{text}" if text[:1] in "=+-@\t\r" and text else text
