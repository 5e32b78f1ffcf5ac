"""Commands on learning: what was learnt, and descriptions of topics tried out."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from gateway.cli.chat import Url
from gateway.cli.client import Daemon
from gateway.cli.output import USAGE, fail, show_json, show_table

User = Annotated[str | None, typer.Option("--user", help="The person spoken for, with an administrator's token.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


def register(app: typer.Typer) -> None:
    """They stand among the commands on memory."""
    app.command("try-topic")(try_topic)
    app.command("learned")(learned)


def try_topic(
    description: Annotated[str, typer.Argument(help="What belongs to the topic, and in which form.")],
    sentences: Annotated[
        list[str] | None, typer.Argument(help="What a person might say; from standard input, line by line, without.")
    ] = None,
    leave_out: Annotated[str | None, typer.Option("--leave-out", help="What is not to be remembered.")] = None,
    bounded: Annotated[bool, typer.Option("--bounded", help="One running summary instead of single facts.")] = False,
    name: Annotated[str, typer.Option(help="Name of the topic.")] = "topic",
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """What a topic's description would take from sentences. Nothing is written."""
    said = sentences or [line.strip() for line in sys.stdin if line.strip()]
    if not said:
        fail("Give at least one sentence, or lines on standard input.", USAGE)
    body: dict[str, Any] = {"description": description, "sentences": said, "name": name, "bounded": bounded}
    body |= {} if leave_out is None else {"leave_out": leave_out}
    tried = Daemon(url).call("POST", "/v1/topics/try", body)
    if as_json:
        show_json(tried)
        return
    rows = [
        [m["text"], "-" if m["importance"] is None else str(m["importance"]), _numbers(m["sentences"])]
        for m in tried["memories"]
    ]
    show_table(rows, ["WOULD REMEMBER", "IMPORTANCE", "FROM SENTENCE"])
    if not rows:
        typer.echo("Nothing would be remembered.", err=True)
    for why in tried["refused"]:
        typer.echo(f"not taken: a proposal {why}", err=True)


def learned(
    session: Annotated[str | None, typer.Option(help="Only from this session.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="How many.")] = 50,
    user: User = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """What was learnt from conversations, the newest first; also what failed, and why."""
    found = Daemon(url).call("GET", "/v1/learning-runs", query={"session": session, "limit": limit, "user": user})
    if as_json:
        show_json(found)
        return
    if not found["learns"]:
        typer.echo("There is no helper model (roles.helper), so nothing is learnt.", err=True)
    rows = [
        [
            run["id"],
            run["started_at"][:19],
            run["trigger"],
            run["state"],
            *(str(len(run[name])) for name in ("created", "updated", "deleted", "refused")),
            run["problem"] or "",
        ]
        for run in found["runs"]
    ]
    show_table(rows, ["RUN", "WHEN", "WHY", "STATE", "ADDED", "CHANGED", "DELETED", "REFUSED", "PROBLEM"])


def _numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
