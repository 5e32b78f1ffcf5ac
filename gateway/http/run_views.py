"""What the API shows of the runs of jobs and webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from gateway.http.problems import not_found
from gateway.http.routes import Body, Call, json_answer
from sessions.entries import format_time

if TYPE_CHECKING:
    from datetime import datetime

    from aiohttp import web

    from gateway.jobs.store import JobStore
    from gateway.jobs.values import DeliveryStatus, Run, RunKind


class PageQuery(Body):
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Annotated[str, Field(min_length=26, max_length=26)] | None = Field(
        default=None, description="`next` of the page before"
    )


class RunView(BaseModel):
    """One run. `status` is waiting, running, ok, error, timeout, skipped or interrupted; `delivery` (none, pending,
    delivered, dead) is told apart from it. `text` is the reply, where one run is asked for."""

    id: str
    kind: str
    name: str
    status: str
    trigger: str
    due_at: str
    started_at: str | None
    ended_at: str | None
    attempt: int
    key: str
    session: str | None
    turn: str | None
    usage: dict[str, Any] | None
    cost: str | None
    error: str | None
    skipped: int
    delivery: str
    text: str | None = None


class RunPageView(BaseModel):
    """Runs, newest first; `next` is the cursor of the following page."""

    runs: list[RunView]
    next: str | None


def run_view(run: Run, delivery: DeliveryStatus, *, text: str | None = None) -> RunView:
    return RunView(
        id=run.id,
        kind=run.kind,
        name=run.name,
        status=run.status,
        trigger=run.trigger,
        due_at=format_time(run.due_at),
        started_at=time_or_none(run.started_at),
        ended_at=time_or_none(run.ended_at),
        attempt=run.attempt,
        key=run.key,
        session=run.session,
        turn=run.turn,
        usage=run.usage,
        cost=run.cost,
        error=run.error,
        skipped=run.skipped,
        delivery=delivery,
        text=text,
    )


async def run_page(store: JobStore, kind: RunKind, owner: str, query: PageQuery) -> web.Response:
    """One page of the runs of a job or webhook."""
    runs = await store.runs(kind, owner, limit=query.limit + 1, before=query.cursor)
    shown = runs[: query.limit]
    states = await store.delivery_states([run.id for run in shown])
    return json_answer(
        RunPageView(
            runs=[run_view(run, states.get(run.id, "none")) for run in shown],
            next=shown[-1].id if len(runs) > len(shown) else None,
        )
    )


def id_of(call: Call) -> str:
    """The id of the path; what cannot be one is nothing that is there."""
    wanted = call.path("id")
    if not (wanted.isascii() and wanted.isalnum() and len(wanted) == 26):
        raise not_found("entry")
    return wanted


def time_or_none(at: datetime | None) -> str | None:
    return None if at is None else format_time(at)
