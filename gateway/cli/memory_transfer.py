"""Commands that take memories along: a pool to a file of JSON lines, and a file into a pool."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.chat import Url
from gateway.cli.client import Daemon
from gateway.cli.output import USAGE, fail, written_file

if TYPE_CHECKING:
    from collections.abc import Mapping

User = Annotated[str | None, typer.Option("--user", help="The person spoken for, with an administrator's token.")]
PoolName = Annotated[str | None, typer.Option("--pool", help="user:<id> or project:<id>; your own when left out.")]
PATH = "/v1/memories"


def register(app: typer.Typer) -> None:
    """They stand among the commands on memory."""
    app.command()(export)
    app.command("import")(import_file)


def export(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; else standard output.")] = None,
    pool: PoolName = None,
    user: User = None,
    url: Url = None,
) -> None:
    """Write a pool as JSON lines: memories, topics, and hashes of what was deleted, all as of one moment."""
    query = {"pool": pool, "user": user}
    if output is None:
        Daemon(url).download(f"{PATH}/export", sys.stdout.buffer, query=query)
        return
    with written_file(output) as file:
        size = Daemon(url).download(f"{PATH}/export", file, query=query)
    typer.echo(f"Wrote {output} ({size} bytes).", err=True)


def import_file(
    file: Annotated[Path, typer.Argument(help="JSON lines, as exported; - reads them from standard input.")],
    pool: PoolName = None,
    user: User = None,
    url: Url = None,
) -> None:
    """Take over a file, all of it or nothing; what was deleted here stays deleted."""
    query = {"pool": pool, "user": user}
    if str(file) == "-":
        _tell(_sent(Daemon(url), sys.stdin.buffer, query))
        return
    try:
        opened = file.open("rb")
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}.", USAGE)
    with opened:
        _tell(_sent(Daemon(url), opened, query))


def _sent(daemon: Daemon, lines: IO[bytes], query: Mapping[str, Any]) -> dict[str, Any]:
    return daemon.call("POST", f"{PATH}/import-file", query=dict(query), raw=lines, media_type="application/jsonl")


def _tell(done: dict[str, Any]) -> None:
    notes = done.pop("notes")
    typer.echo(", ".join(f"{count} {word}" for word, count in done.items()))
    for note in notes:
        typer.echo(note, err=True)
