"""The pages of jobs: what runs by itself, webhooks, and deliveries."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from gateway.http.hooks import example_of
from gateway.http.problems import not_found
from gateway.http.routes import Body, Call, Route

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from aiohttp import web

    from gateway.console.desk import Desk
    from gateway.http.hooks import ExampleView
    from gateway.jobs.values import DeliveryStatus, Job, Run, RunKind

STRIP = 24
RUNS = 50
DELIVERIES = 50
NEXT = 5


class DeliveriesQuery(Body):
    status: Literal["", "pending", "delivered", "dead"] = ""
    before: Annotated[str, Field(max_length=26)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job with its next times and last runs, the oldest run first."""

    job: Job
    times: Sequence[datetime]
    runs: Sequence[Run]


class JobPages:
    """The endpoints under /console/jobs, for administrators."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._jobs = desk.parts.jobs

    def routes(self) -> list[Route]:
        def page(path: str, endpoint: Any, summary: str, **more: Any) -> Route:
            return self._desk.page("GET", f"/jobs{path}", endpoint, summary, roles=("admin",), **more)

        return [
            page("", self.index, "Jobs, webhooks and deliveries", query=DeliveriesQuery),
            page("/{id}", self.one, "One job"),
            self._desk.page("GET", "/hooks/{name}", self.hook, "One webhook", roles=("admin",)),
        ]

    async def index(self, call: Call) -> web.StreamResponse:
        query: DeliveriesQuery = call.query
        status: DeliveryStatus | None = query.status or None
        store = self._jobs.store
        deliveries = await store.deliveries(status=status, limit=DELIVERIES + 1, before=query.before or None)
        rows = [await self._row(job, 3) for job in await self._jobs.book.all()]
        hooks = [(hook, await self._strip("hook", hook.policy.name)) for hook in self._jobs.hooks.hooks.values()]
        return self._desk.show(
            "jobs.html",
            call,
            rows=rows,
            hooks=hooks,
            deliveries=deliveries[:DELIVERIES],
            more=deliveries[DELIVERIES - 1].id if len(deliveries) > DELIVERIES else None,
            query=query,
            zone=self._jobs.zone.key,
        )

    async def _row(self, job: Job, count: int) -> JobRow:
        return JobRow(job=job, times=self._jobs.book.due_times(job, count), runs=await self._strip("job", job.id))

    async def _strip(self, kind: RunKind, owner: str) -> list[Run]:
        return list(reversed(await self._jobs.store.runs(kind, owner, limit=STRIP)))

    async def one(self, call: Call) -> web.StreamResponse:
        job = await self._jobs.book.find(call.path("id"))
        if job is None:
            raise not_found("job")
        runs = await self._jobs.store.runs("job", job.id, limit=RUNS)
        return self._desk.show(
            "job.html",
            call,
            row=await self._row(job, NEXT),
            job=job,
            runs=runs,
            states=await self._jobs.store.delivery_states([run.id for run in runs]),
            zone=job.policy.timezone or self._jobs.zone.key,
        )

    async def hook(self, call: Call) -> web.StreamResponse:
        hook = self._jobs.hooks.hooks.get(call.path("name"))
        if hook is None:
            raise not_found("webhook")
        runs = await self._jobs.store.runs("hook", hook.policy.name, limit=RUNS)
        example = example_of(self._jobs.hooks, hook)
        return self._desk.show(
            "hook.html",
            call,
            hook=hook.policy,
            example_secret=hook.has_example_secret,
            line=_curl(example, str(call.request.url.origin())),
            note=example.note,
            runs=runs,
            states=await self._jobs.store.delivery_states([run.id for run in runs]),
        )


def _curl(example: ExampleView, url: str) -> str:
    """The call as a line for a shell."""
    headers = [f'  -H "{name}: {text}"' for name, text in example.headers.items()]
    return " \\\n".join([f"curl '{url}{example.path}'", *headers, f"  -d {shlex.quote(example.body)}"])
