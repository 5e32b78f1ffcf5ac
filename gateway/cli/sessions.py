"""Commands on sessions: list, show, history, reset, archive, restore, delete."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli.chat import Url
from gateway.cli.client import Daemon, key_path
from gateway.cli.output import show_json, show_table

app = typer.Typer(help="List, read and change sessions.", no_args_is_help=True, rich_markup_mode=None)

Key = Annotated[str, typer.Argument(help="Session key.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


@app.command("list")
def list_sessions(
    archived: Annotated[bool, typer.Option("--archived", help="Archived ones instead of active ones.")] = False,
    search: Annotated[str | None, typer.Option("--search", help="Part of key or title.")] = None,
    limit: Annotated[int, typer.Option(help="How many.")] = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Sessions, newest activity first."""
    query = {"archived": str(archived).lower(), "q": search, "limit": limit}
    page = Daemon(url).call("GET", "/v1/sessions", query=query)
    if as_json:
        show_json(page)
        return
    rows = [[s["key"], s["active_at"][:16], str(s["messages"]), _fill(s), s["title"] or ""] for s in page["sessions"]]
    show_table(rows, ["KEY", "ACTIVE", "MESSAGES", "CONTEXT", "TITLE"])
    if page["next"]:
        typer.echo("There are more; raise --limit or use --search.", err=True)


@app.command()
def show(key: Key, limit: int = 50, as_json: AsJson = False, url: Url = None) -> None:
    """The newest entries of a session."""
    page = Daemon(url).call("GET", key_path(key, "/transcript"), query={"limit": limit})
    if as_json:
        show_json(page)
        return
    for entry in page["entries"]:
        typer.echo(f"{entry['seq']:>6} {entry['at'][:19]} {entry['type']:<12} {_line(entry)}")


@app.command()
def history(key: Key, as_json: AsJson = False, url: Url = None) -> None:
    """All sessions of a key, the active one first."""
    found = Daemon(url).call("GET", key_path(key, "/history"))
    if as_json:
        show_json(found)
        return
    rows = [[s["session"], s["created_at"][:16], s["ended"] or "active", s["title"] or ""] for s in found["sessions"]]
    show_table(rows, ["SESSION", "SINCE", "ENDED", "TITLE"])


@app.command()
def reset(key: Key, url: Url = None) -> None:
    """End the session and start a new one."""
    Daemon(url).call("POST", key_path(key, "/reset"))
    typer.echo(f"{key} starts anew.")


@app.command()
def archive(key: Key, restore: Annotated[bool, typer.Option("--restore")] = False, url: Url = None) -> None:
    """Take a session out of the list, or back into it."""
    Daemon(url).call("PATCH", key_path(key), {"archived": not restore})
    typer.echo(f"{key} is {'active again' if restore else 'archived'}.")


@app.command()
def restore(
    key: Key,
    session: Annotated[str | None, typer.Option("--session", help="A former session, by its id in `history`.")] = None,
    url: Url = None,
) -> None:
    """Take an archived session out of the archive."""
    Daemon(url).call("POST", key_path(key, "/restore"), {"session": session})
    typer.echo(f"{key} is out of the archive.")


@app.command()
def delete(
    key: Key,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = None,
) -> None:
    """Delete all sessions of a key for good."""
    if not yes:
        typer.confirm(f"Delete {key} and all its former sessions for good?", abort=True)
    gone = Daemon(url).call("DELETE", key_path(key))
    typer.echo(f"Deleted {gone['deleted']} session(s) of {key}.")


def _fill(session: dict[str, Any]) -> str:
    context = session["context"]
    share = context["share"]
    return "" if share is None else f"{'~' if context['estimated'] else ''}{100 * share:.0f} %"


def _line(entry: dict[str, Any]) -> str:
    text = entry.get("text") or entry.get("reply") or entry.get("error") or entry.get("reason") or ""
    calls = " ".join(f"{call['name']}({call['arguments']})" for call in entry.get("calls", ()))
    return " ".join(f"{text} {calls}".split())
