"""How commands speak: plain text for people, JSON for programs, and one exit code for each kind of end."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import typer

FAILED, USAGE, UNREACHABLE, REFUSED = 1, 2, 3, 4


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Ends the command with a message on standard error."""
    typer.echo(message, err=True)
    raise typer.Exit(code)


def show_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))


def show_table(rows: list[list[str]], header: list[str]) -> None:
    """Columns as wide as their widest cell."""
    widths = [max(len(row[n]) for row in [header, *rows]) for n in range(len(header))]
    for row in [header, *rows]:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
