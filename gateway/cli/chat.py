"""Commands that talk: chat and send."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.client import Daemon, key_path
from gateway.cli.output import FAILED, fail

if TYPE_CHECKING:
    from collections.abc import Iterator

Url = Annotated[str | None, typer.Option("--url", help="Address of the daemon; also SESSIOND_URL.")]
Token = Annotated[str | None, typer.Option("--token", help="Token; better use SESSIOND_TOKEN.")]
DEFAULT_KEY = "agent:main:main"
RECONNECTS = 5


def register(app: typer.Typer) -> None:
    app.command()(chat)
    app.command()(send)


def send(
    key: Annotated[str, typer.Argument(help="Session key, as in agent:main:main.")],
    text: Annotated[str, typer.Argument(help="The message; - reads it from standard input.")],
    url: Url = None,
    token: Token = None,
) -> None:
    """Send one message and print the reply."""
    message = sys.stdin.read() if text == "-" else text
    answer = Daemon(url, token).call("POST", key_path(key, "/messages"), {"text": message})
    typer.echo(answer["text"])


def chat(
    key: Annotated[str, typer.Option("--key", help="Session key.")] = DEFAULT_KEY, url: Url = None, token: Token = None
) -> None:
    """Talk in a terminal: replies stream, commands such as /status and /new work, Ctrl-C stops a reply."""
    daemon = Daemon(url, token)
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if terminal:
        typer.echo(f"{key} at {daemon.url}. /help lists commands; Ctrl-D ends.")
    while True:
        try:
            text = input("> " if terminal else "")
        except (EOFError, KeyboardInterrupt):
            typer.echo("")
            return
        if text.strip():
            _say(daemon, key, text, terminal=terminal)


def _say(daemon: Daemon, key: str, text: str, *, terminal: bool) -> None:
    turn = ""
    try:
        for name, fields in _follow(daemon, key, text):
            if name == "accepted":
                turn = fields["turn"]
            elif name == "delta":
                typer.echo(fields["text"], nl=False)
            elif name == "tool_call" and terminal:
                typer.echo(f"[{fields['name']} …] ", nl=False)
            elif name == "error":
                typer.echo(f"\n{fields['detail']}", err=True)
            elif name == "done":
                typer.echo("")
                if terminal:
                    typer.echo(_status(fields))
    except KeyboardInterrupt:
        if turn:
            daemon.call("POST", f"/v1/turns/{turn}/stop")
        typer.echo("\n(stopped)")


def _follow(daemon: Daemon, key: str, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of a turn; a broken connection is taken up again where it broke."""
    events = daemon.events("POST", key_path(key, "/messages"), {"text": text, "stream": True})
    turn, last = "", ""
    for _ in range(RECONNECTS):
        try:
            for event_id, name, fields in events:
                turn, last = fields.get("turn", turn), event_id
                yield name, fields
                if name in ("done", "error"):
                    return
        except OSError:
            if not turn:
                raise
        events = daemon.events("GET", f"/v1/turns/{turn}/events", after=last)
    fail("The connection broke again and again. The reply is in the transcript: sessiond sessions show.", FAILED)


def _status(fields: dict[str, Any]) -> str:
    context: dict[str, Any] = fields.get("context") or {}
    share = context.get("share")
    fill = (
        f"{100 * share:.0f} % of {context['window']} tokens" if share is not None else f"{context.get('tokens')} tokens"
    )
    return f"[session {fields['session'][-6:]} · context {fill} · {fields['finish']}]"
