"""Commands on jobs that work on memory."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from gateway.cli.chat import Url
from gateway.cli.client import Daemon
from gateway.cli.output import USAGE, fail, show_json, show_table

app = typer.Typer(help="Jobs on memory: sorting, tidying, a new index.", no_args_is_help=True, rich_markup_mode=None)

Id = Annotated[str, typer.Argument(help="Id of a run; list shows it.")]
PoolName = Annotated[str | None, typer.Option("--pool", help="user:<id>; your own when left out.")]
User = Annotated[str | None, typer.Option(help="For administrators and frontends: whose memories.")]
AsJson = Annotated[bool, typer.Option("--json", help="The answer as JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command("list")
def listed(
    kind: Annotated[str | None, typer.Option(help="Only this kind of job.")] = None,
    pool: PoolName = None,
    user: User = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Runs, the newest first."""
    found = Daemon(url).call("GET", "/v1/memory-runs", query={"kind": kind, "pool": pool, "user": user})
    if as_json:
        show_json(found)
        return
    rows = [
        [
            r["id"],
            r["kind"],
            r["pool"] or "instance",
            r["state"],
            _far(r),
            _told(r),
            r["started_at"][:19],
            r["problem"] or "",
        ]
        for r in found["runs"]
    ]
    show_table(rows, ["ID", "JOB", "POOL", "STATE", "DONE", "CHANGED", "STARTED", "PROBLEM"])


@app.command()
def start(
    kind: Annotated[str, typer.Argument(help="recategorize, consolidate, batch or reindex.")],
    everything: Annotated[bool, typer.Option("--all", help="recategorize: also memories that have a topic.")] = False,
    pool: PoolName = None,
    user: User = None,
    yes: Yes = False,
    url: Url = None,
) -> None:
    """Start a job; one that runs already goes on."""
    if everything and kind != "recategorize":
        fail("--all belongs to recategorize.", USAGE)
    if everything and not yes:
        typer.confirm("Sort all memories again, also those that were put under a topic by hand?", abort=True)
    body: dict[str, Any] = {"kind": kind, "all": everything, "confirmed": everything}
    body |= {} if pool is None else {"pool": pool}
    run = Daemon(url).call("POST", "/v1/memory-runs", body, query={"user": user})
    typer.echo(f"{run['id']} {run['state']}; `sessiond memory jobs show {run['id']}` tells how far it is.")


@app.command()
def show(run: Id, as_json: AsJson = False, url: Url = None) -> None:
    """One run, with what it did to each memory."""
    found = Daemon(url).call("GET", _path(run))
    if as_json:
        show_json(found)
        return
    _tell(found)
    rows = [[c["memory"], c["action"], _said(c["before"]), _said(c["after"])] for c in found["changes"]]
    if rows:
        show_table(rows, ["MEMORY", "WHAT", "BEFORE", "AFTER"])


@app.command()
def stop(run: Id, url: Url = None) -> None:
    """End a run after the step it is at; what it has done stays, and can be undone."""
    _tell(Daemon(url).call("POST", _path(run, "/stop")))


@app.command()
def undo(run: Id, yes: Yes = False, url: Url = None) -> None:
    """Take back what a run has changed, but for what somebody has changed since."""
    if not yes:
        typer.confirm(f"Take back all changes of {run}?", abort=True)
    undone = Daemon(url).call("POST", _path(run, "/undo"))
    typer.echo(f"{undone['back']} memories are as before, {undone['left']} stay as they were changed since.")


def _path(run: str, rest: str = "") -> str:
    return f"/v1/memory-runs/{quote(run, safe='')}{rest}"


def _tell(run: dict[str, Any]) -> None:
    typer.echo(f"{run['id']} {run['kind']}: {run['state']}, {_far(run)}; {_told(run) or 'nothing changed'}")
    if run["problem"]:
        typer.echo(run["problem"], err=True)


def _far(run: dict[str, Any]) -> str:
    return f"{run['done']} of {run['total']}" + (f", {run['failed']} failed" if run["failed"] else "")


def _told(run: dict[str, Any]) -> str:
    return ", ".join(f"{count} {word}" for word, count in run["counts"].items() if count)


def _said(side: dict[str, Any] | None) -> str:
    if side is None:
        return "-"
    text = " ".join(side["text"].split())[:50]
    return f"[{side['topic'] or '-'}] {text}" + ("" if side["state"] == "active" else f" ({side['state']})")
