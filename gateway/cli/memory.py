"""Commands on memory: what is remembered, its topics, and the projects that share it."""

from __future__ import annotations

import sys
from typing import Annotated, Any
from urllib.parse import quote

import typer

from gateway.cli.chat import Url
from gateway.cli.client import Daemon
from gateway.cli.output import USAGE, fail, show_json, show_table
from gateway.cli.search import tell_files

app = typer.Typer(help="Read, write and forget memories.", no_args_is_help=True, rich_markup_mode=None)
projects = typer.Typer(help="Projects, whose members share memories.", no_args_is_help=True, rich_markup_mode=None)

Id = Annotated[str, typer.Argument(help="Id of a memory; list and search show it.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
User = Annotated[str | None, typer.Option("--user", help="The person spoken for, with an administrator's token.")]
PoolName = Annotated[str | None, typer.Option("--pool", help="user:<id> or project:<id>; your own when left out.")]
Topic = Annotated[str | None, typer.Option("--topic", help="Name of a topic.")]
Property = Annotated[
    list[str] | None, typer.Option("--property", help="NAME=VALUE, what keeps it apart; may be given again.")
]
PAGE = 500
"""Memories of one answer."""
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command("list")
def list_memories(
    state: Annotated[str, typer.Option(help="active, trashed or superseded.")] = "active",
    topic: Topic = None,
    unclassified: Annotated[bool, typer.Option("--unclassified", help="Only memories without topic.")] = False,
    pool: PoolName = None,
    user: User = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many.")] = 50,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """What is remembered, the newest change first."""
    query = {"state": state, "topic": topic, "pool": pool, "user": user}
    if unclassified:
        query["unclassified"] = "true"
    page = _pages(Daemon(url), query, limit)
    _show(page, as_json=as_json)
    if page["next"] and not as_json:
        typer.echo("There are more; raise --limit or narrow with --topic.", err=True)


@app.command()
def add(
    text: Annotated[str, typer.Argument(help="One fact that stands for itself; - reads it from standard input.")],
    topic: Topic = None,
    importance: Annotated[int | None, typer.Option(help="1 to 10: what forgetting it would cost.")] = None,
    kind: Annotated[str | None, typer.Option(help="user, feedback, project or reference.")] = None,
    properties: Property = None,
    pool: PoolName = None,
    user: User = None,
    url: Url = None,
) -> None:
    """Remember a fact."""
    given: dict[str, Any] = {"topic": topic, "importance": importance, "kind": kind, "pool": pool}
    given["properties"] = _properties(properties)
    body = {"text": _text(text), **{name: value for name, value in given.items() if value is not None}}
    _tell(Daemon(url).call("POST", "/v1/memories", body, query={"user": user}))


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="Words, or a question.")],
    mode: Annotated[str, typer.Option(help="hybrid, vector, keyword or fetch.")] = "hybrid",
    as_of: Annotated[str | None, typer.Option("--as-of", help="What was true then, as in 2026-05-01T12:00Z.")] = None,
    topic: Annotated[list[str] | None, typer.Option("--topic", help="Only of this topic; may be given again.")] = None,
    pool: PoolName = None,
    user: User = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100, help="How many.")] = 10,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Find memories, and what stands in files."""
    body: dict[str, Any] = {"query": query, "mode": mode, "limit": limit}
    body |= {name: value for name, value in (("as_of", as_of), ("pool", pool), ("topics", topic)) if value}
    found = Daemon(url).call("POST", "/v1/memories/search", body, query={"user": user})
    if as_json or found["memories"]:
        _show(found, as_json=as_json)
    if as_json:
        return
    tell_files(found["files"])
    if not found["memories"] and not found["files"]:
        typer.echo("Nothing was found.", err=True)
    if found["problem"]:
        typer.echo(found["problem"], err=True)


@app.command()
def show(memory: Id, user: User = None, url: Url = None) -> None:
    """Everything about one memory, as JSON."""
    show_json(Daemon(url).call("GET", _path(memory), query={"user": user}))


@app.command()
def edit(
    memory: Id,
    text: Annotated[str | None, typer.Option(help="What it says now; what it said before is kept.")] = None,
    topic: Annotated[str | None, typer.Option(help="Another topic; an empty text: none.")] = None,
    importance: Annotated[int | None, typer.Option(help="1 to 10.")] = None,
    kind: Annotated[str | None, typer.Option(help="user, feedback, project or reference.")] = None,
    properties: Property = None,
    no_properties: Annotated[bool, typer.Option("--no-properties", help="It has no properties any more.")] = False,
    user: User = None,
    url: Url = None,
) -> None:
    """Correct a memory. Properties replace those it had."""
    if properties and no_properties:
        fail("Give --property or --no-properties.", USAGE)
    given: dict[str, Any] = {"text": text, "topic": topic, "importance": importance, "kind": kind}
    given["properties"] = {} if no_properties else _properties(properties)
    body = {name: value for name, value in given.items() if value is not None}
    if not body:
        fail("Say what to change: --text, --topic, --importance, --kind or --property.", USAGE)
    body |= {"topic": None} if topic == "" else {}
    _tell(Daemon(url).call("PATCH", _path(memory), body, query={"user": user}))


@app.command()
def delete(memory: Id, user: User = None, url: Url = None) -> None:
    """Put a memory into the trash."""
    gone = Daemon(url).call("DELETE", _path(memory), query={"user": user})
    typer.echo(f"{gone['id']} is in the trash; `sessiond memory restore {gone['id']}` brings it back.")


@app.command()
def restore(memory: Id, user: User = None, url: Url = None) -> None:
    """Take a memory out of the trash."""
    back = Daemon(url).call("POST", _path(memory, "/restore"), query={"user": user})
    typer.echo(f"{back['id']} is remembered again.")


@app.command()
def purge(memory: Id, yes: Yes = False, user: User = None, url: Url = None) -> None:
    """Delete a memory for good, with everything it said before."""
    if not yes:
        typer.confirm(f"Delete {memory} for good?", abort=True)
    Daemon(url).call("POST", _path(memory, "/purge"), query={"user": user})
    typer.echo(f"{memory} is gone for good.")


@app.command()
def history(memory: Id, user: User = None, as_json: AsJson = False, url: Url = None) -> None:
    """The changes of a memory, the newest first."""
    found = Daemon(url).call("GET", _path(memory, "/history"), query={"user": user})
    if as_json:
        show_json(found)
        return
    rows = [[c["at"][:19], c["action"], c["author"], _said(c), c["operation"]] for c in found["changes"]]
    show_table(rows, ["AT", "WHAT", "WHO", "TEXT", "OPERATION"])


@app.command()
def undo(
    memory: Id,
    operation: Annotated[str | None, typer.Option(help="From the history; left out: one step back.")] = None,
    user: User = None,
    url: Url = None,
) -> None:
    """Undo a change of a memory, with all that belongs to it; once more, the one before."""
    body = {} if operation is None else {"operation": operation}
    _show(Daemon(url).call("POST", _path(memory, "/undo"), body, query={"user": user}), as_json=False)


@projects.command("list")
def list_projects(as_json: AsJson = False, url: Url = None) -> None:
    """Projects you are a member of."""
    found = Daemon(url).call("GET", "/v1/projects")
    if as_json:
        show_json(found)
        return
    rows = [[p["id"], p["name"], ", ".join(p["members"])] for p in found["projects"]]
    show_table(rows, ["ID", "NAME", "MEMBERS"])


@projects.command("add")
def add_project(
    project: Annotated[str, typer.Argument(help="Id of the project.")],
    member: Annotated[list[str] | None, typer.Option("--member", help="A user; may be given again.")] = None,
    name: Annotated[str | None, typer.Option(help="How it is called.")] = None,
    url: Url = None,
) -> None:
    """Make a project."""
    body: dict[str, Any] = {"id": project, "members": member or []} | ({} if name is None else {"name": name})
    _tell_project(Daemon(url).call("POST", "/v1/projects", body))


@projects.command()
def members(
    project: Annotated[str, typer.Argument(help="Id of the project.")],
    add: Annotated[list[str] | None, typer.Option("--add", help="A user; may be given again.")] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", help="A user; may be given again.")] = None,
    url: Url = None,
) -> None:
    """Show the members of a project, or change them."""
    daemon = Daemon(url)
    path = f"/v1/projects/{quote(project, safe='')}"
    present = daemon.call("GET", path)
    if add or remove:
        wanted = sorted(({*present["members"]} | {*(add or [])}) - {*(remove or [])})
        present = daemon.call("PATCH", path, {"members": wanted})
    _tell_project(present)


@projects.command("delete")
def delete_project(
    project: Annotated[str, typer.Argument(help="Id of the project.")], yes: Yes = False, url: Url = None
) -> None:
    """Delete a project that has no memories any more."""
    if not yes:
        typer.confirm(f"Delete the project {project}?", abort=True)
    Daemon(url).call("DELETE", f"/v1/projects/{quote(project, safe='')}")
    typer.echo(f"{project} is gone.")


def _path(memory: str, rest: str = "") -> str:
    return f"/v1/memories/{quote(memory, safe='')}{rest}"


def _pages(daemon: Daemon, query: dict[str, Any], limit: int) -> dict[str, Any]:
    """As many memories as are wanted, and where the list goes on."""
    found: list[Any] = []
    after: str | None = None
    while True:
        part = {"limit": min(PAGE, limit - len(found)), "cursor": after}
        page = daemon.call("GET", "/v1/memories", query=query | part)
        found += page["memories"]
        after = page["next"]
        if after is None or len(found) >= limit:
            return {"memories": found, "next": after}


def _properties(given: list[str] | None) -> dict[str, str] | None:
    if not given:
        return None
    pairs = [one.partition("=") for one in given]
    if any(not name or not equals for name, equals, _ in pairs):
        fail("Write a property as NAME=VALUE, such as --property tenant=shop.", USAGE)
    return {name: value for name, _, value in pairs}


def _text(given: str) -> str:
    return sys.stdin.read() if given == "-" else given


def _show(page: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        show_json(page)
        return
    rows = [
        [m["id"], m["topic"] or "-", str(m["importance"]), f"{m['vitality']:.0f}", m["text"]] for m in page["memories"]
    ]
    show_table(rows, ["ID", "TOPIC", "IMPORTANCE", "VITALITY", "TEXT"])


def _tell(written: dict[str, Any]) -> None:
    typer.echo(f"{written['outcome']}: {written['id']} {written['text']}")
    if written["redacted"]:
        typer.echo(f"Secrets are not kept: {', '.join(written['redacted'])} replaced by a placeholder.", err=True)
    if written["note"]:
        typer.echo(written["note"], err=True)
    for other in written["similar"]:
        typer.echo(f"similar: {other['id']} {other['text']}", err=True)


def _tell_project(project: dict[str, Any]) -> None:
    typer.echo(f"{project['id']}: {', '.join(project['members']) or 'no members yet'}")


def _said(change: dict[str, Any]) -> str:
    row = change["after"] or change["before"]
    return "" if row is None else " ".join(row["text"].split())[:60]
