"""Commands that take over what is elsewhere: conversations of a file, and a project of Engram."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer
from typer.core import TyperGroup

from gateway.cli.chat import Url
from gateway.cli.client import DEFAULT_URL, Daemon
from gateway.cli.output import FAILED, REFUSED, UNREACHABLE, USAGE, fail, text_in

if TYPE_CHECKING:
    from gateway.cli.engram_source import EngramSource, JsonApi, Slice

BATCH = 500
SHOWN = 10
ASKED_FOR_USERS = 200
"""Words a server is asked for, to see whose memories it shows."""


class FileOrService(TyperGroup):
    """`import FILE` means `import file FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = (*self.commands, "--help")
        return super().parse_args(ctx, args if not args or args[0] in known else ["file", *args])


app = typer.Typer(
    cls=FileOrService,
    help="Take over conversations from a file (import FILE), or the memories of a project of Engram (import engram).",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("file")
def import_file(
    file: Annotated[Path, typer.Argument(help="Our JSONL, OpenAI messages, a pi session, conversations.json.")],
    key: Annotated[str | None, typer.Option("--key", help="Where it goes, unless the file says so.")] = None,
    url: Url = None,
) -> None:
    """Take over conversations from a file: all of them, or none."""
    taken = Daemon(url).call("POST", "/v1/import", {"content": text_in(file), "key": key})
    for one in taken["sessions"]:
        typer.echo(f"{one['key']}: {one['entries']} entries")


@app.command("engram")
def import_engram(
    source: Annotated[str, typer.Option("--url", help="Address of Engram's API.")],
    key: Annotated[str | None, typer.Option("--key", help="Its API key; also ENGRAM_API_KEY.")] = None,
    user: Annotated[list[str] | None, typer.Option("--user", help="A user of it; may be given again.")] = None,
    users: Annotated[Path | None, typer.Option("--users", help="A file with one user a line.")] = None,
    project: Annotated[
        str | None, typer.Option("--project", help="Where it goes, with an administrator's token.")
    ] = None,
    daemon: Annotated[str | None, typer.Option("--to", help="Address of the daemon; also SESSIOND_URL.")] = None,
) -> None:
    """Copy a project of Engram: topics, and memories with their ids and times. Begun again, it goes on.

    It goes to the project of the token in SESSIOND_TOKEN (engram.projects), or to the one that is named. Engram does
    not list its users: name them, where its topics belong to users.
    """
    from gateway.cli.engram_source import EngramSource, JsonApi, Refused

    api_key = key or os.environ.get("ENGRAM_API_KEY")
    target = JsonApi(daemon or os.environ.get("SESSIOND_URL") or DEFAULT_URL, os.environ.get("SESSIOND_TOKEN"))
    here = _Target(target, project)
    copying = _Copying(EngramSource(JsonApi(source, api_key)), here, _named(user, users))
    try:
        copying.run()
    except Refused as refusal:
        fail(f"Engram refuses: {refusal}", REFUSED)
    except OSError as error:
        fail(f"{error}. Begin again when it does; what is here already is not copied twice.", UNREACHABLE)
    copying.tell()


def _named(user: list[str] | None, users: Path | None) -> list[str]:
    names = list(user or ())
    if users is not None:
        names += [line.strip() for line in text_in(users).splitlines() if line.strip()]
    return list(dict.fromkeys(names))


class _Target:
    """The daemon. Counts what became of what it was sent."""

    def __init__(self, api: JsonApi, project: str | None) -> None:
        self._api = api
        self._path = "/engram/v1/import" + ("" if project is None else f"?{urlencode({'project': project})}")
        self.counts = dict.fromkeys(("added", "there", "forgotten", "redacted"), 0)
        self.refused: list[tuple[str, str]] = []

    def done(self) -> set[str]:
        return set(self._call("GET")["slices"])

    def put_groups(self, groups: list[dict[str, Any]]) -> None:
        self._call("POST", {"groups": groups})

    def put(self, memories: list[dict[str, Any]], slices: list[str]) -> None:
        """Sends memories; what the daemon cannot take at once in halves, so that one keeps no other out."""
        from gateway.cli.engram_source import Refused

        try:
            told = self._api.call("POST", self._path, {"memories": memories, "slices": slices})
        except Refused as refusal:
            if refusal.status not in (400, 413) or not memories:
                fail(f"The daemon refuses: {refusal}", REFUSED)
            if len(memories) == 1:
                self.refused.append((str(memories[0].get("id")), str(refusal)))
                return self.put([], slices)
            self.put(memories[: len(memories) // 2], [])
            return self.put(memories[len(memories) // 2 :], slices)
        for name in self.counts:
            self.counts[name] += told[name]
        self.refused += [(one["id"], one["detail"]) for one in told["refused"]]
        return None

    def end(self) -> None:
        self._call("POST", {"ended": True})

    def _call(self, method: str, body: dict[str, Any] | None = None) -> Any:
        from gateway.cli.engram_source import Refused

        try:
            return self._api.call(method, self._path, body)
        except Refused as refusal:
            fail(f"The daemon refuses: {refusal}", REFUSED)


class _Copying:
    """One import, slice by slice; several small slices go to the daemon together."""

    def __init__(self, source: EngramSource, target: _Target, users: list[str]) -> None:
        self._source = source
        self._target = target
        self._users = users
        self._waiting: list[dict[str, Any]] = []
        self._read: list[str] = []
        self._seen: set[str] = set()
        self._unsure: list[Slice] = []

    def run(self) -> None:
        """Raises Refused and OSError."""
        from gateway.cli.engram_source import slices_of

        groups = self._source.groups()
        done = self._target.done()
        self._target.put_groups(groups)
        topics = slices_of(groups)
        owned = [part for part, user_scoped in topics if user_scoped]
        self._users += [one for one in self._shown_users(owned) if one not in self._users]
        if owned and not self._users:
            fail("Engram does not list its users: name them with --user, or --users and a file.", USAGE)
        parts = [part for part, user_scoped in topics if not user_scoped]
        parts += [replace(part, user=one) for one in self._users for part in owned]
        for number, part in enumerate(parts, 1):
            if part.name not in done:
                memories, whole = self._source.read(part)
                if not whole:
                    self._unsure.append(part)
                self._put(memories, part.name)
            self._progress(number, len(parts))
        self._flush()
        self._target.end()

    def _shown_users(self, owned: list[Slice]) -> list[str]:
        """Users of the memories a server shows without being told whose, as far as it does."""
        from gateway.cli.engram_source import Refused

        users: dict[str, None] = {}
        for part in owned:
            try:
                memories, whole = self._source.read(part, most_words=ASKED_FOR_USERS)
            except Refused as refusal:
                if refusal.status == 401:
                    raise
                continue
            users |= dict.fromkeys(memory["user_id"] for memory in memories if memory.get("user_id"))
            if not whole and not self._users:
                typer.echo(f"Engram shows some users of {part.topic} only: name the others with --user.", err=True)
        return list(users)

    def _put(self, memories: list[dict[str, Any]], name: str) -> None:
        fresh = [memory for memory in memories if memory["id"] not in self._seen]
        self._seen |= {memory["id"] for memory in fresh}
        self._waiting += fresh
        self._read.append(name)
        if max(len(self._waiting), len(self._read)) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        """Sends what waits; slices are noted with the last of their memories."""
        while len(self._waiting) > BATCH:
            self._target.put(self._waiting[:BATCH], [])
            del self._waiting[:BATCH]
        self._target.put(self._waiting, self._read)
        self._waiting, self._read = [], []

    def _progress(self, number: int, count: int) -> None:
        line = f"{number} of {count} parts, {len(self._seen)} memories"
        if sys.stderr.isatty():
            typer.echo(f"\r{line}", nl=number == count, err=True)
        elif number == count or number % 50 == 0:
            typer.echo(line, err=True)

    def tell(self) -> None:
        """What came of it; ends the command as failed where anything is missing."""
        counts = self._target.counts
        typer.echo(
            f"{len(self._seen)} memories of {len(self._users)} users read: {counts['added']} added, {counts['there']} "
            f"here already, {counts['forgotten']} deleted here before, {len(self._target.refused)} refused."
        )
        if counts["redacted"]:
            typer.echo(f"{counts['redacted']} held secrets, which are not kept.", err=True)
        for part in self._unsure:
            typer.echo(f"There may be more of topic {part.topic} of {part.user}: the API shows 100 at once.", err=True)
        for one, why in self._target.refused[:SHOWN]:
            typer.echo(f"{one}: {why}", err=True)
        if self._target.refused or self._unsure:
            raise typer.Exit(FAILED)
