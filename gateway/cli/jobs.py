"""Commands on scheduled jobs: add, list, show, run, pause, resume, remove, runs, preview."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from gateway.cli.chat import Url
from gateway.cli.client import Daemon
from gateway.cli.output import USAGE, fail, show_json, show_table
from gateway.cli.sessions import AsJson
from gateway.complaints import complaint

app = typer.Typer(help="Scheduled jobs.", no_args_is_help=True, rich_markup_mode=None)

JobName = Annotated[str, typer.Argument(help="Id or name of the job.")]
Zone = Annotated[str | None, typer.Option("--tz", help="IANA zone, as in Europe/Prague; default: the machine's.")]


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Its name.")],
    message: Annotated[str, typer.Argument(help="What is said; may be a Jinja template over now, job, last_run.")],
    schedule: Annotated[str | None, typer.Option("--cron", help='Cron expression, as in "0 8 * * mon-fri".')] = None,
    every: Annotated[str | None, typer.Option("--every", help="Span between runs, as in 90m.")] = None,
    at: Annotated[str | None, typer.Option("--at", help="One run, as in 2026-12-24T18:00.")] = None,
    tz: Zone = None,
    agent: Annotated[str | None, typer.Option("--agent")] = None,
    model: Annotated[str | None, typer.Option("--model")] = None,
    session: Annotated[str | None, typer.Option("--session", help="isolated, continuing, or a session key.")] = None,
    deliver_url: Annotated[str | None, typer.Option("--deliver-url", help="Where the reply is posted.")] = None,
    deliver_session: Annotated[str | None, typer.Option("--deliver-session", help="Session it appears in.")] = None,
    timeout_s: Annotated[float | None, typer.Option("--timeout", help="Seconds one run may take.")] = None,
    overlap: Annotated[str | None, typer.Option("--overlap", help="skip, queue or cancel.")] = None,
    missed: Annotated[str | None, typer.Option("--missed", help="skip, once or all.")] = None,
    once: Annotated[bool, typer.Option("--delete-after-run", help="Remove it once it has run.")] = False,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Add a job, and print its next times."""
    given = {
        "schedule": schedule,
        "every": every,
        "at": at,
        "timezone": tz,
        "agent": agent,
        "model": model,
        "session": session,
        "timeout_s": timeout_s,
        "overlap": overlap,
        "missed": missed,
        "delete_after_run": once or None,
        "deliver": _target(deliver_url, deliver_session),
    }
    body = {"name": name, "message": message, **{field: value for field, value in given.items() if value is not None}}
    job = Daemon(url).call("POST", "/v1/jobs", body)
    if as_json:
        show_json(job)
        return
    typer.echo(f"Added {job['name']} ({job['id']}). It runs at:")
    _show_times(job["next"], job["notes"])


def _target(url: str | None, session: str | None) -> dict[str, str] | None:
    given = {name: value for name, value in (("url", url), ("session", session)) if value is not None}
    return given or None


@app.command("list")
def list_jobs(as_json: AsJson = False, url: Url = None) -> None:
    """All jobs."""
    jobs: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = Daemon(url).call("GET", "/v1/jobs", query={"cursor": cursor})
        jobs += page["jobs"]
        cursor = page["next"]
        if cursor is None:
            break
    if as_json:
        show_json({"jobs": jobs})
        return
    rows = [[job["name"], _when(job), _state(job), job["id"]] for job in jobs]
    show_table(rows, ["NAME", "SCHEDULE", "NEXT", "ID"])


@app.command()
def show(job: JobName, as_json: AsJson = False, url: Url = None) -> None:
    """One job, with its next times."""
    found = Daemon(url).call("GET", _path(job))
    if as_json:
        show_json(found)
        return
    for field in ("id", "name", "message", "agent", "session", "overlap", "missed", "origin", "failures", "disabled"):
        if found[field] is not None:
            typer.echo(f"{field}: {found[field]}")
    typer.echo(f"schedule: {_when(found)}")
    typer.echo(f"next: {_state(found)}")
    _show_times(found["next"], found["notes"])
    if found["last_run"]:
        typer.echo(f"last run: {_run_line(found['last_run'])}")


@app.command()
def run(job: JobName, url: Url = None) -> None:
    """Run a job now, beside its schedule."""
    typer.echo(Daemon(url).call("POST", _path(job, "/run"))["id"])


@app.command()
def pause(job: JobName, url: Url = None) -> None:
    """Stop a job from running by itself."""
    found = Daemon(url).call("POST", _path(job, "/pause"))
    typer.echo(f"{found['name']} is paused. Let it run again with: sessiond jobs resume {found['name']}")


@app.command()
def resume(job: JobName, url: Url = None) -> None:
    """Let a job run by itself again, also after too many failures."""
    found = Daemon(url).call("POST", _path(job, "/resume"))
    typer.echo(f"{found['name']}: next {_state(found)}")


@app.command()
def remove(job: JobName, url: Url = None) -> None:
    """Remove a job; the records of its runs stay."""
    Daemon(url).call("DELETE", _path(job))
    typer.echo(f"{job} is removed.")


@app.command()
def runs(
    job: JobName,
    limit: Annotated[int, typer.Option(help="How many.")] = 20,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """The newest runs of a job."""
    page = Daemon(url).call("GET", _path(job, "/runs"), query={"limit": limit})
    if as_json:
        show_json(page)
        return
    for one in page["runs"]:
        typer.echo(_run_line(one))


@app.command()
def preview(
    schedule: Annotated[str, typer.Argument(help='Cron expression, or a span as in "90m".')],
    tz: Zone = None,
    start: Annotated[str | None, typer.Option("--from", help="Date or time to start from; default: now.")] = None,
    count: Annotated[int, typer.Option("--count", min=1, max=1000, help="How many times.")] = 5,
) -> None:
    """Print when a schedule is due, and what daylight saving does to it. Needs no daemon."""
    from datetime import UTC, datetime, timedelta

    from pydantic import ValidationError

    from gateway.clock import machine_zone
    from gateway.jobs.policy import JobPolicy
    from gateway.jobs.timing import in_zone, schedule_of, zone_of
    from gateway.schedules import BadSchedule
    from gateway.schedules import preview as previewed

    kind = "schedule" if " " in schedule.strip() or schedule.startswith("@") else "every"
    try:
        policy = JobPolicy.model_validate({"name": "preview", "message": "-", kind: schedule, "timezone": tz})
        here = machine_zone(os.environ.get("TZ"), Path("/etc/localtime"))
        zone = zone_of(policy, here)
        after = datetime.now(UTC)
        if start is not None:
            after = in_zone(datetime.fromisoformat(start), zone) - timedelta(microseconds=1)
        found = previewed(schedule_of(policy, here, after), after, count)
    except ValidationError as error:
        fail("; ".join(complaint(item) for item in error.errors()), USAGE)
    except (BadSchedule, ValueError) as error:
        fail(str(error), USAGE)
    for at in found.times:
        typer.echo(f"{at.astimezone(zone):%a %Y-%m-%d %H:%M:%S %Z}  ({at:%Y-%m-%d %H:%M:%S} UTC)")
    for note in found.notes:
        typer.echo(note)


def _path(job: str, rest: str = "") -> str:
    return f"/v1/jobs/{quote(job, safe='')}{rest}"


def _when(job: dict[str, Any]) -> str:
    zone = f" {job['timezone']}" if job["timezone"] and not job["every"] else ""
    if job["every"]:
        return f"every {job['every']}"
    return f"{job['schedule'] or job['cron'] or 'at ' + job['at']}{zone}"


def _state(job: dict[str, Any]) -> str:
    if job["disabled"]:
        return "disabled"
    if job["paused"] or not job["enabled"]:
        return "paused"
    return job["next_at"] or "never"


def _show_times(times: list[dict[str, Any]], notes: list[str]) -> None:
    for time in times:
        typer.echo(f"  {time['local']}")
    for note in notes:
        typer.echo(note)


def _run_line(run: dict[str, Any]) -> str:
    told = f": {run['error']}" if run["error"] else ""
    times = f" x{run['skipped']}" if run["skipped"] > 1 else ""
    delivery = "" if run["delivery"] == "none" else f", delivery {run['delivery']}"
    return f"{run['due_at'][:19]} {run['status']}{times} ({run['trigger']}{delivery}) {run['id']}{told}"
