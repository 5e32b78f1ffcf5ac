"""Commands on webhooks: list them, and print a call to try one with."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from gateway.cli.chat import Url
from gateway.cli.client import Daemon
from gateway.cli.output import show_json, show_table
from gateway.cli.sessions import AsJson

app = typer.Typer(help="Webhooks.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_hooks(as_json: AsJson = False, url: Url = None) -> None:
    """All webhooks."""
    found = Daemon(url).call("GET", "/v1/hooks")
    if as_json:
        show_json(found)
        return
    rows = [[h["name"], h["path"], h["scheme"], "waits" if h["wait"] else "202"] for h in found["hooks"]]
    show_table(rows, ["NAME", "PATH", "SCHEME", "ANSWER"])


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="Name of the webhook.")], as_json: AsJson = False, url: Url = None
) -> None:
    """Print a curl line that calls a webhook; its signature is good for five minutes."""
    daemon = Daemon(url)
    example = daemon.call("GET", f"/v1/hooks/{name}/example")
    if as_json:
        show_json(example)
        return
    if example["note"]:
        typer.echo(example["note"], err=True)
    words = [f"-H {_quoted(f'{header}: {value}')}" for header, value in example["headers"].items()]
    typer.echo(f"curl {' '.join(words)} -d {shlex.quote(example['body'])} {daemon.url}{example['path']}")


def _quoted(header: str) -> str:
    """A variable is left to the shell."""
    return f'"{header}"' if "$" in header else shlex.quote(header)
