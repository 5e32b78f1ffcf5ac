"""The command that finds what was said."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli.chat import Url
from gateway.cli.client import Daemon, key_path
from gateway.cli.output import show_json

SHOWN = 160


def register(app: typer.Typer) -> None:
    app.command()(search)


def search(
    words: Annotated[str, typer.Argument(help="The words to look for.")],
    key: Annotated[str | None, typer.Option("--key", help="Only in this chat, with its former sessions.")] = None,
    limit: Annotated[int, typer.Option(help="How many messages.")] = 10,
    around: Annotated[int, typer.Option(help="How many messages to show before and after each.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
    url: Url = None,
) -> None:
    """Find what was said, also what was summarised away, and what stands in files."""
    path = "/v1/search" if key is None else key_path(key, "/search")
    found = Daemon(url).call("GET", path, query={"q": words, "limit": limit, "around": around})
    if as_json:
        show_json(found)
        return
    for hit in found["hits"]:
        typer.echo(f"{hit['key']}  {hit['session']}  {hit['at'][:16]}")
        for said in (*hit["before"], hit, *hit["after"]):
            typer.echo(_line(said, marked=said is hit))
    files = found.get("files", [])
    tell_files(files)
    if not found["hits"] and not files:
        typer.echo("Nothing was found.", err=True)
    if not found["complete"]:
        typer.echo("The archive is being built again; there may be more in a moment.", err=True)


def tell_files(files: list[dict[str, Any]]) -> None:
    """Pieces of files, as both searches show them."""
    for one in files:
        typer.echo(f"{one['agent'] or one['project']}  {one['path']}:{one['first_line']}-{one['last_line']}")
        typer.echo(f"> {_short(one['text'])}")


def _line(said: dict[str, Any], *, marked: bool) -> str:
    return f"{'>' if marked else ' '} {said['seq']:>6} {said['name'] or said['role']}: {_short(said['text'])}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
