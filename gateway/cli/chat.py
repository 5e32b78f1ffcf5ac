"""Commands that talk: chat and send."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.client import Daemon, key_path
from gateway.cli.output import FAILED, REFUSED, fail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Url = Annotated[str | None, typer.Option("--url", help="Address of the daemon; also SESSIOND_URL.")]
DEFAULT_KEY = "agent:main:main"
WAITS_S = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)


def register(app: typer.Typer) -> None:
    app.command()(chat)
    app.command()(send)


def send(
    key: Annotated[str, typer.Argument(help="Session key, as in agent:main:main.")],
    text: Annotated[str, typer.Argument(help="The message; - reads it from standard input.")],
    url: Url = None,
) -> None:
    """Send one message and print the reply."""
    message = sys.stdin.read() if text == "-" else text
    answer = Daemon(url).call("POST", key_path(key, "/messages"), {"text": message})
    typer.echo(answer["text"])


def chat(key: Annotated[str, typer.Option("--key", help="Session key.")] = DEFAULT_KEY, url: Url = None) -> None:
    """Talk in a terminal: replies stream, commands such as /status and /new work, Ctrl-C stops a reply."""
    daemon = Daemon(url)
    if sys.stdin.isatty() and sys.stdout.isatty():
        _converse(daemon, key)
    else:
        _read_lines(daemon, key)


def _converse(daemon: Daemon, key: str) -> None:
    typer.echo(f"{key} at {daemon.shown}. /help lists commands; Ctrl-D ends.")
    while True:
        try:
            text = input("> ")
        except (EOFError, KeyboardInterrupt):
            typer.echo("")
            return
        try:
            if text.strip():
                _say(daemon, key, text, terminal=True)
        except typer.Exit as end:  # a refused message (too long, too many) does not end the conversation
            if end.exit_code != REFUSED:
                raise


def _read_lines(daemon: Daemon, key: str) -> None:
    """One message a line; only replies are printed."""
    replies = [_say(daemon, key, line.rstrip("\n"), terminal=False) for line in sys.stdin if line.strip()]
    if not all(replies):
        raise typer.Exit(FAILED)


def _say(daemon: Daemon, key: str, text: str, *, terminal: bool) -> bool:
    """Sends a message and shows the reply as it comes; False when the turn failed."""
    turn = ""
    try:
        for name, fields in follow(daemon, key, text):
            turn = fields.get("turn", turn)
            if name == "delta":
                typer.echo(fields["text"], nl=False)
            elif name == "again":
                typer.echo("\n(sessiond was restarted; the reply begins again)", err=True)
            elif name == "tool_call" and terminal:
                typer.echo(f"[{fields['name']} …] ", nl=False)
            elif name == "error":
                typer.echo(f"\n{fields['detail']}", err=True)
                return False
        typer.echo("")
        if terminal:
            typer.echo(status_line(daemon.call("GET", f"/v1/turns/{turn}")))
    except KeyboardInterrupt:
        if turn:
            daemon.call("POST", f"/v1/turns/{turn}/stop")
        typer.echo("\n(stopped)" if turn else "\n(not waited for; the reply will be in the transcript)")
    return True


def follow(
    daemon: Daemon, key: str, text: str, *, pause: Callable[[float], None] = time.sleep
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, fields) of a turn's events; a stream that breaks is read again from its beginning, without what was told.

    A daemon that was restarted meanwhile may have begun another reply: then `again` comes before its text.
    """
    events = daemon.events("POST", key_path(key, "/messages"), {"text": text, "stream": True})
    told = Told()
    turn = ""
    for wait_s in WAITS_S:
        told.rewind()
        try:
            for _, name, fields in events:
                turn = fields.get("turn", turn)
                yield from told.new(name, fields)
                if name in ("done", "error"):
                    return
        except OSError as error:
            if not turn:
                daemon.unreachable(error)
        pause(wait_s)
        events = daemon.events("GET", f"/v1/turns/{turn}/events")
    fail("The connection broke again and again. The reply is in the transcript: sessiond sessions show.", FAILED)


class Told:
    """What was told of a turn, and what of its events, read from the beginning once more, is new."""

    def __init__(self) -> None:
        self._text = ""
        self._names: list[str] = []
        self.rewind()

    def rewind(self) -> None:
        """The events begin anew."""
        self._read = ""
        self._at = 0

    def new(self, name: str, fields: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        if name != "delta":
            self._at += 1
            if name in ("done", "error") or self._at > len(self._names):
                self._names.append(name)
                yield name, fields
            return
        self._read += fields["text"]
        if self._text.startswith(self._read):
            return
        if not self._read.startswith(self._text):
            self._text = ""
            yield "again", {}
        fresh, self._text = self._read[len(self._text) :], self._read
        yield "delta", {"text": fresh}


def status_line(turn: dict[str, Any]) -> str:
    """Session, model, fill of the window and tokens of a finished turn, as `/v1/turns/{id}` shows it."""
    models = [entry["model"] for entry in turn["entries"] if entry.get("model")]
    context: dict[str, Any] = turn.get("context") or {}
    usage: dict[str, Any] = turn.get("usage") or {}
    parts = [f"session …{turn['session'][-6:]}", *models[-1:]]
    if context.get("share") is not None:
        about = "about " if context.get("estimated") else ""
        parts.append(f"context {about}{100 * context['share']:.0f} % of {context['window']}")
    if usage:
        parts.append(f"{usage['input_total']} tokens in, {usage['output']} out")
    if turn.get("finish") not in (None, "stop"):
        parts.append(turn["finish"])
    return f"[{' · '.join(parts)}]"
