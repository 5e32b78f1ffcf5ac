"""Scheduled jobs: made, read, changed, run, paused and removed; their runs; and what a schedule means."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from gateway.http.problems import Problem, invalid, not_found
from gateway.http.routes import Body, Call, Route, json_answer
from gateway.http.run_views import PageQuery, RunPageView, RunView, run_page, run_view, time_or_none
from gateway.jobs.policy import JobPolicy
from gateway.jobs.timing import in_zone, schedule_of, zone_of
from gateway.schedules import BadSchedule, Preview, preview
from sessions.entries import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence
    from zoneinfo import ZoneInfo

    from aiohttp import web

    from gateway.jobs.policy import DeliverTo
    from gateway.jobs.values import Job
    from gateway.parts import Parts

SHOWN_TIMES = 5


class JobIn(JobPolicy, Body):
    """A job: name, message, and one of schedule (a cron expression), every and at."""


class JobsQuery(Body):
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    cursor: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="`next` of the page before"
    )
    active: bool | None = Field(default=None, description="true: only jobs that run by themselves; false: only others")


class JobView(JobPolicy):
    """A job and how it stands. `next_at` null: it does not run by itself; `disabled` says why after too many failures.

    `next` are its next times, `notes` what is worth knowing about them, where one job is shown.
    """

    id: str
    origin: str
    created_at: str
    paused: bool
    next_at: str | None
    failures: int
    retry_at: str | None
    disabled: str | None
    next: list[TimeView] | None = None
    notes: list[str] | None = None
    last_run: RunView | None = None


class TimeView(BaseModel):
    """One time a schedule is due, in UTC and in its zone."""

    at: str
    local: str


class JobPageView(BaseModel):
    """Jobs by name; `next` is the cursor of the following page."""

    jobs: list[JobView]
    next: str | None


class RemovedView(BaseModel):
    """The id of what was removed."""

    removed: str


class PreviewQuery(Body):
    schedule: Annotated[str, Field(max_length=200)] | None = Field(default=None, description="Cron expression")
    every: Annotated[str, Field(max_length=40)] | None = None
    timezone: str | None = None
    start: datetime | None = Field(default=None, description="From when on; default: now")
    count: Annotated[int, Field(ge=1, le=100)] = SHOWN_TIMES


class PreviewView(BaseModel):
    """When a schedule is due."""

    timezone: str
    next: list[TimeView]
    notes: list[str]


def routes(parts: Parts) -> list[Route]:
    at = _Jobs(parts)

    def route(method: str, path: str, endpoint: Any, summary: str, answers: dict[int, Any], **more: Any) -> Route:
        return Route(
            method=method,
            path=f"/v1/jobs{path}",
            endpoint=endpoint,
            summary=summary,
            tag="jobs",
            answers=answers,
            roles=("admin",),
            **more,
        )

    return [
        route("POST", "", at.add, "Add a job", {201: JobView}, body=JobIn),
        route("GET", "", at.list_all, "The jobs, by name", {200: JobPageView}, query=JobsQuery),
        route("GET", "/preview", at.preview, "When a schedule would be due", {200: PreviewView}, query=PreviewQuery),
        route("GET", "/{id}", at.show, "One job, by id or name, with its next times", {200: JobView}),
        route("PUT", "/{id}", at.replace, "Another definition for a job", {200: JobView}, body=JobIn),
        route("DELETE", "/{id}", at.remove, "Remove a job; the records of its runs stay", {200: RemovedView}),
        route("POST", "/{id}/run", at.run, "Run it now, beside its schedule", {202: RunView}),
        route("POST", "/{id}/pause", at.pause, "Stop it from running by itself", {200: JobView}),
        route("POST", "/{id}/resume", at.resume, "Let it run by itself again", {200: JobView}),
        route("GET", "/{id}/runs", at.list_runs, "Its runs, newest first", {200: RunPageView}, query=PageQuery),
    ]


class _Jobs:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def _found(self, call: Call) -> Job:
        job = await self._parts.jobs.book.find(call.path("id"))
        if job is None:
            raise not_found("job")
        return job

    async def _own(self, call: Call) -> Job:
        """A job that may be changed over the API. Raises Problem."""
        job = await self._found(call)
        if job.origin == "config":
            detail = f"The job {job.policy.name} is in the configuration, under jobs.scheduled. Change it there."
            raise Problem(409, "Configured job", detail)
        return job

    async def add(self, call: Call) -> web.Response:
        job = await self._parts.jobs.book.add(self._policy(call.body))
        return json_answer(await self._shown(job), 201, Location=f"/v1/jobs/{job.id}")

    def _policy(self, body: JobIn, kept: DeliverTo | None = None) -> JobPolicy:
        """The definition, with a schedule that can be due. Raises Problem and UnknownModel."""
        policy = JobPolicy.model_validate(body, from_attributes=True)
        policy = policy.model_copy(update={"deliver": _whole_target(policy.deliver, kept)})
        self._parts.models.choose(policy.agent, policy.model)
        times = self._previewed(policy, self._parts.clock.now(), 1).times
        if not times:
            raise Problem(422, "Invalid request", "at: is in the past", [("at", "is in the past")])
        return policy

    def _previewed(self, policy: JobPolicy, start: datetime, count: int) -> Preview:
        """Raises Problem for a schedule that cannot be read."""
        try:
            return preview(schedule_of(policy, self._parts.jobs.zone, start), start, count)
        except BadSchedule as error:
            place = "schedule" if policy.expression else "at"
            raise Problem(422, "Invalid request", f"{place}: {error}", [(place, str(error))]) from error

    async def list_all(self, call: Call) -> web.Response:
        query: JobsQuery = call.query
        jobs = [
            job
            for job in await self._parts.jobs.book.all()
            if (query.cursor is None or job.policy.name > query.cursor) and query.active in (None, job.active)
        ]
        shown = jobs[: query.limit]
        following = shown[-1].policy.name if len(jobs) > len(shown) else None
        return json_answer(JobPageView(jobs=[job_view(job) for job in shown], next=following))

    async def show(self, call: Call) -> web.Response:
        return json_answer(await self._shown(await self._found(call)))

    async def _shown(self, job: Job) -> JobView:
        times = self._parts.jobs.book.due_times(job, SHOWN_TIMES)
        notes = () if job.aside else self._previewed(job.policy, self._parts.clock.now(), 1).notes
        runs = await self._parts.jobs.store.runs("job", job.id, limit=1)
        states = await self._parts.jobs.store.delivery_states([run.id for run in runs])
        return job_view(
            job,
            next=time_views(times, zone_of(job.policy, self._parts.jobs.zone)),
            notes=list(notes),
            last_run=run_view(runs[0], states.get(runs[0].id, "none")) if runs else None,
        )

    async def replace(self, call: Call) -> web.Response:
        own = await self._own(call)
        job = await self._parts.jobs.book.change(own.id, self._policy(call.body, own.policy.deliver))
        return await self._answered(job)

    async def _answered(self, job: Job | None) -> web.Response:
        if job is None:
            raise not_found("job")
        return json_answer(await self._shown(job))

    async def remove(self, call: Call) -> web.Response:
        job = await self._own(call)
        await self._parts.jobs.book.remove(job.id)
        return json_answer(RemovedView(removed=job.id))

    async def run(self, call: Call) -> web.Response:
        run = await self._parts.jobs.book.run_now(await self._found(call))
        return json_answer(run_view(run, "none"), 202)

    async def pause(self, call: Call) -> web.Response:
        return await self._answered(await self._parts.jobs.book.pause((await self._found(call)).id, True))

    async def resume(self, call: Call) -> web.Response:
        return await self._answered(await self._parts.jobs.book.pause((await self._found(call)).id, False))

    async def list_runs(self, call: Call) -> web.Response:
        return await run_page(self._parts.jobs.store, "job", (await self._found(call)).id, call.query)

    async def preview(self, call: Call) -> web.Response:
        query: PreviewQuery = call.query
        fields = {"name": "preview", "message": "-", "schedule": query.schedule, "every": query.every}
        try:
            policy = JobPolicy.model_validate({**fields, "timezone": query.timezone})
        except ValidationError as error:
            raise invalid(error, PreviewQuery) from error
        zone = zone_of(policy, self._parts.jobs.zone)
        start = self._parts.clock.now() if query.start is None else start_in(query.start, zone)
        found = self._previewed(policy, start, query.count)
        return json_answer(PreviewView(timezone=zone.key, next=time_views(found.times, zone), notes=list(found.notes)))


def _whole_target(target: DeliverTo | None, kept: DeliverTo | None) -> DeliverTo | None:
    """Raises Problem."""
    try:
        return None if target is None else target.as_known(kept)
    except ValueError as error:
        raise Problem(422, "Invalid request", f"deliver.url: {error}", [("deliver.url", str(error))]) from error


def time_views(times: Sequence[datetime], zone: ZoneInfo) -> list[TimeView]:
    return [TimeView(at=format_time(at), local=at.astimezone(zone).isoformat(timespec="seconds")) for at in times]


def start_in(at: datetime, zone: ZoneInfo) -> datetime:
    """The start of a preview: what is due right then belongs to it. Raises Problem."""
    try:
        return in_zone(at, zone) - timedelta(microseconds=1)
    except (BadSchedule, OverflowError) as error:
        raise Problem(422, "Invalid request", f"start: {error}", [("start", str(error))]) from error


def job_view(job: Job, **more: Any) -> JobView:
    return JobView.model_validate(
        {
            **dict(job.policy),
            "id": job.id,
            "origin": job.origin,
            "created_at": format_time(job.created_at),
            "paused": job.paused,
            "next_at": time_or_none(job.next_at),
            "failures": job.failures,
            "retry_at": time_or_none(job.retry_at),
            "disabled": job.disabled,
            **more,
        }
    )


JobView.model_rebuild()
