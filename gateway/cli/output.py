"""How commands speak: plain text for people, JSON for programs, and one exit code for each kind of end."""

from __future__ import annotations

import contextlib
import json
from typing import IO, TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

FAILED, USAGE, UNREACHABLE, REFUSED = 1, 2, 3, 4


def say(message: str, *, err: bool = False) -> None:
    """A line, also where a file's name that is no UTF-8 stands in it."""
    typer.echo(message.encode("utf-8", "replace").decode(), err=err)


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Ends the command with a message on standard error."""
    say(message, err=True)
    raise typer.Exit(code)


def text_in(path: Path) -> str:
    """The text of a file. Ends the command where it cannot be read."""
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror or error}.", USAGE)
    except UnicodeDecodeError:
        fail(f"{path} is not written in UTF-8. Save it as UTF-8, then try again.", USAGE)


@contextlib.contextmanager
def written_file(path: Path) -> Generator[IO[bytes]]:
    """A file to write; it has its name once all of it is there. Ends the command where it cannot be written."""
    try:
        target = path.resolve()
        device = target.exists() and not target.is_file()
        part = target if device else target.with_name(f"{target.name}.part")
        try:
            with part.open("wb") as file:
                yield file
            part.replace(target)
        finally:
            if not device:
                part.unlink(missing_ok=True)
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror or error}.", USAGE)


def show_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))


def show_table(rows: list[list[str]], header: list[str]) -> None:
    """Columns as wide as their widest cell."""
    widths = [max(len(row[n]) for row in [header, *rows]) for n in range(len(header))]
    for row in [header, *rows]:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
