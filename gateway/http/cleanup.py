"""Cleaning up by hand, and sessions in and out of the archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from gateway.http.problems import Problem, not_found
from gateway.http.routes import Body, Call, Route, json_answer
from gateway.http.sessions import visible
from gateway.http.views import SessionView, session_view
from sessions.entries import format_time

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.parts import Parts
    from sessions.cleanup import Step


class CleanupIn(Body):
    dry_run: bool = Field(default=False, description="Only say what would be done")


class RestoreIn(Body):
    session: Annotated[str, Field(min_length=26, max_length=26)] | None = Field(
        default=None, description="A former session of this key; else the newest"
    )


class StepView(BaseModel):
    """One session, what is done with it, and whether for its age or for the size of everything."""

    action: Literal["archive", "delete"]
    reason: Literal["age", "size"]
    key: str
    session: str
    title: str | None
    used_at: str
    size_bytes: int


class CleanupView(BaseModel):
    """What was done, or would be; `bytes_after` and `freed_bytes` of a dry run are estimates."""

    dry_run: bool
    steps: list[StepView]
    bytes_before: int
    bytes_after: int
    freed_bytes: int
    failed: list[str]


def routes(parts: Parts) -> list[Route]:
    async def clean_up(call: Call) -> web.Response:
        body: CleanupIn = call.body
        report = await parts.cleanup.run(dry_run=body.dry_run)
        return json_answer(
            {
                "dry_run": report.dry_run,
                "steps": [_step(step) for step in report.steps],
                "bytes_before": report.bytes_before,
                "bytes_after": report.bytes_after,
                "freed_bytes": report.freed_bytes,
                "failed": list(report.failed),
            }
        )

    async def restore(call: Call) -> web.Response:
        body: RestoreIn = call.body
        newest = visible(parts, call).session
        wanted = body.session or newest
        record = next((r for r in parts.store.sessions_of(call.key) if r.session == wanted), None)
        if record is None:
            raise not_found("session")
        if record.state != "archived":
            raise Problem(409, "Not archived", f"{call.key} is not in the archive; there is nothing to restore.")
        restored = await parts.turns.restore(call.key, wanted)
        parts.timer.consider(restored)
        return json_answer(session_view(restored))

    return [
        Route(
            method="POST",
            path="/v1/cleanup",
            endpoint=clean_up,
            summary="Archive and delete what is not used any more",
            tag="transfer",
            answers={200: CleanupView},
            body=CleanupIn,
            body_optional=True,
            roles=("admin",),
        ),
        Route(
            method="POST",
            path="/v1/sessions/{key}/restore",
            endpoint=restore,
            summary="Take a session out of the archive",
            tag="sessions",
            answers={200: SessionView},
            body=RestoreIn,
            body_optional=True,
        ),
    ]


def _step(step: Step) -> dict[str, Any]:
    record = step.candidate.record
    return {
        "action": step.action,
        "reason": step.reason,
        "key": record.key,
        "session": record.session,
        "title": record.title,
        "used_at": format_time(step.candidate.used_at),
        "size_bytes": step.candidate.size_bytes,
    }
