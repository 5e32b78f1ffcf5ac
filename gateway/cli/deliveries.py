"""Commands on deliveries: list them, and send dead ones again."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.chat import Url
from gateway.cli.client import Daemon
from gateway.cli.output import USAGE, fail, show_json, show_table
from gateway.cli.sessions import AsJson

app = typer.Typer(help="Replies that are pushed to other places.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_deliveries(
    status: Annotated[str | None, typer.Option("--status", help="pending, delivered or dead.")] = None,
    limit: Annotated[int, typer.Option(help="How many.")] = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Deliveries, newest first."""
    page = Daemon(url).call("GET", "/v1/deliveries", query={"status": status, "limit": limit})
    if as_json:
        show_json(page)
        return
    rows = [[d["id"], d["status"], str(d["attempts"]), d["to"], d["error"] or ""] for d in page["deliveries"]]
    show_table(rows, ["ID", "STATUS", "ATTEMPTS", "TO", "ERROR"])


@app.command()
def resend(
    delivery: Annotated[str | None, typer.Argument(help="Id of a dead delivery.")] = None,
    dead: Annotated[bool, typer.Option("--all", help="All dead ones.")] = False,
    url: Url = None,
) -> None:
    """Send dead deliveries again, with the same ids."""
    if (delivery is None) != dead:
        fail("Name one delivery, or say --all.", USAGE)
    daemon = Daemon(url)
    ids = [delivery] if delivery is not None else _dead(daemon)
    for one in reversed(ids):
        daemon.call("POST", f"/v1/deliveries/{one}/resend")
        typer.echo(one)


def _dead(daemon: Daemon) -> list[str]:
    """All of them, newest first."""
    ids: list[str] = []
    cursor = None
    while True:
        page = daemon.call("GET", "/v1/deliveries", query={"status": "dead", "limit": 200, "cursor": cursor})
        ids += [one["id"] for one in page["deliveries"]]
        cursor = page["next"]
        if cursor is None:
            return ids
