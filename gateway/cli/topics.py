"""Commands on topics: what they are, made, changed and deleted."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from gateway.cli.chat import Url
from gateway.cli.client import Daemon
from gateway.cli.output import REFUSED, USAGE, fail, show_json, show_table

app = typer.Typer(
    help="Topics: what is remembered under which name, and in which form. Alone it lists them.", rich_markup_mode=None
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
User = Annotated[str | None, typer.Option("--user", help="The person spoken for, with an administrator's token.")]
PoolName = Annotated[str | None, typer.Option("--pool", help="user:<id> or project:<id>; your own when left out.")]
Named = Annotated[str, typer.Argument(help="Name or id of the topic.")]
Scope = Annotated[
    list[str] | None, typer.Option("--scope", help="A property that keeps memories apart; may be given again.")
]


@app.callback(invoke_without_command=True)
def topics(
    context: typer.Context, pool: PoolName = None, user: User = None, as_json: AsJson = False, url: Url = None
) -> None:
    """Topics, by name; with a command: made, changed, deleted."""
    if context.invoked_subcommand is None:
        list_topics(pool, user, as_json, url)


@app.command("list")
def list_topics(pool: PoolName = None, user: User = None, as_json: AsJson = False, url: Url = None) -> None:
    """Topics of a pool and of everybody, by name."""
    found = Daemon(url).call("GET", "/v1/topics", query={"pool": pool, "user": user})
    if as_json:
        show_json(found)
        return
    rows = [[t["name"], "one" if t["bounded"] else "many", t["owner"], t["description"]] for t in found["topics"]]
    show_table(rows, ["NAME", "HOLDS", "OWNER", "WHAT BELONGS TO IT"])


@app.command()
def show(topic: Named, pool: PoolName = None, user: User = None, url: Url = None) -> None:
    """Everything about one topic, as JSON."""
    show_json(_found(Daemon(url), topic, pool, user))


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="How it is called.")],
    description: Annotated[str, typer.Argument(help="What belongs to it, and in which form.")],
    leave_out: Annotated[str | None, typer.Option("--leave-out", help="What is not to be remembered.")] = None,
    bounded: Annotated[bool, typer.Option("--bounded", help="One running summary for each scope.")] = False,
    scope: Scope = None,
    always_on: Annotated[bool, typer.Option("--always-on", help="Shown to the model from a session's start.")] = False,
    project: Annotated[str | None, typer.Option("--project", help="Recalled only inside this project.")] = None,
    instance: Annotated[bool, typer.Option("--instance", help="For everybody; administrators only.")] = False,
    pool: PoolName = None,
    user: User = None,
    url: Url = None,
) -> None:
    """Make a topic. `sessiond memory try-topic` tries a description out."""
    body: dict[str, Any] = {"name": name, "description": description, "bounded": bounded, "always_on": always_on}
    body |= {"scope_properties": scope or [], "instance": instance}
    given = {"leave_out": leave_out, "project": project, "pool": pool}
    body |= {field: value for field, value in given.items() if value is not None}
    _tell(Daemon(url).call("POST", "/v1/topics", body, query={"user": user}))


@app.command()
def edit(
    topic: Named,
    name: Annotated[str | None, typer.Option(help="Another name.")] = None,
    description: Annotated[str | None, typer.Option(help="What belongs to it, and in which form.")] = None,
    leave_out: Annotated[str | None, typer.Option("--leave-out", help="An empty text: nothing is left out.")] = None,
    bounded: Annotated[bool | None, typer.Option("--bounded/--many", help="One summary, or single facts.")] = None,
    scope: Scope = None,
    no_scope: Annotated[bool, typer.Option("--no-scope", help="Nothing keeps its memories apart.")] = False,
    always_on: Annotated[
        bool | None, typer.Option("--always-on/--not-always-on", help="Shown from a session's start.")
    ] = None,
    project: Annotated[
        str | None, typer.Option("--project", help="Recalled only inside this project; an empty text: everywhere.")
    ] = None,
    pool: PoolName = None,
    user: User = None,
    url: Url = None,
) -> None:
    """Change a topic."""
    if scope and no_scope:
        fail("Give --scope or --no-scope.", USAGE)
    given: dict[str, Any] = {"name": name, "description": description, "bounded": bounded, "always_on": always_on}
    given |= {"scope_properties": [] if no_scope else scope, "leave_out": leave_out, "project": project}
    body = {field: value for field, value in given.items() if value is not None}
    if not body:
        fail("Say what to change, such as --description. --help lists everything.", USAGE)
    body |= {field: None for field in ("leave_out", "project") if body.get(field) == ""}
    daemon = Daemon(url)
    _tell(daemon.call("PATCH", _path(_found(daemon, topic, pool, user)), body, query={"user": user}))


@app.command()
def delete(
    topic: Named,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    pool: PoolName = None,
    user: User = None,
    url: Url = None,
) -> None:
    """Delete a topic. Its memories stay, without topic: they are no longer recalled by themselves."""
    daemon = Daemon(url)
    found = _found(daemon, topic, pool, user)
    if not yes:
        typer.confirm(f"Delete the topic {found['name']} of {found['owner']}?", abort=True)
    gone = daemon.call("DELETE", _path(found), query={"user": user})
    typer.echo(f"{found['name']} is gone; {gone['memories']} memories have no topic now.")


def _found(daemon: Daemon, wanted: str, pool: str | None, user: str | None) -> dict[str, Any]:
    """The topic of this id or name, the pool's own before the instance's."""
    topics: list[dict[str, Any]] = daemon.call("GET", "/v1/topics", query={"pool": pool, "user": user})["topics"]
    from memory.records import folded_name

    name = folded_name(wanted)
    fitting = [one for one in topics if wanted == one["id"] or name == folded_name(one["name"])]
    if not fitting:
        fail(f"There is no topic {wanted!r} here. There are {', '.join(one['name'] for one in topics)}.", REFUSED)
    return min(fitting, key=lambda one: one["owner"] == "instance")


def _path(topic: dict[str, Any]) -> str:
    return f"/v1/topics/{quote(topic['id'], safe='')}"


def _tell(topic: dict[str, Any]) -> None:
    bound = f", only inside {topic['project']}" if topic["project"] else ""
    holds = "one memory for each scope" if topic["bounded"] else "single facts"
    typer.echo(f"{topic['name']} of {topic['owner']}: {holds}{bound}.")
