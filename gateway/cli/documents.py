"""Documents of agents and projects: add, list, remove. They are files in the data directory, found within seconds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.data import data_folder
from gateway.cli.output import USAGE, fail, show_table
from gateway.cli.server import DataDir

if TYPE_CHECKING:
    from collections.abc import Iterator

app = typer.Typer(help="Documents that agents and projects search.", no_args_is_help=True, rich_markup_mode=None)

Agent = Annotated[str | None, typer.Option(help="The agent it is for.")]
Project = Annotated[str | None, typer.Option(help="The project it is for; its members find it.")]
_UNSAFE = re.compile(r"[^\w.-]+")


@app.callback()
def group() -> None:
    """Documents that agents and projects search."""


@app.command()
def add(
    files: Annotated[list[Path], typer.Argument(help="Markdown, text, HTML, PDF, or OpenAPI as JSON or YAML.")],
    agent: Agent = None,
    project: Project = None,
    data_dir: DataDir = None,
) -> None:
    """Take documents over as Markdown; one with the same name is replaced. The daemon finds them by itself."""
    folder = _folder(agent, project, data_dir)
    converted = [(file, _converted(file)) for file in files]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file, text in converted:
        target = folder / f"{_UNSAFE.sub('-', file.name)[:100].lstrip('.-') or 'document'}.md"
        fresh = target.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text(text, "utf-8")
        fresh.replace(target)
        typer.echo(f"{file} -> memory/documents/{target.name} ({len(text)} characters)")


@app.command("list")
def show(agent: Agent = None, project: Project = None, data_dir: DataDir = None) -> None:
    """The documents of an agent or a project."""
    rows = [[file.name, str(file.stat().st_size)] for file in _documents(_folder(agent, project, data_dir))]
    show_table(rows, ["NAME", "BYTES"])


@app.command()
def remove(
    name: Annotated[str, typer.Argument(help="As `list` shows it.")],
    agent: Agent = None,
    project: Project = None,
    data_dir: DataDir = None,
) -> None:
    """Delete a document; the daemon forgets it within seconds."""
    folder = _folder(agent, project, data_dir)
    found = next((file for file in _documents(folder) if file.name == name), None)
    if found is None:
        fail(f"There is no document {name!r} here. `sessiond documents list` shows them.", USAGE)
    found.unlink()
    typer.echo(f"Removed {name}.")


def _documents(folder: Path) -> Iterator[Path]:
    return iter(sorted(folder.glob("*.md"))) if folder.is_dir() else iter(())


def _folder(agent: str | None, project: str | None, data_dir: Path | None) -> Path:
    from sessions.folders import agent_folder

    if (agent is None) == (project is None):
        fail("Say whose it is: --agent NAME or --project NAME.", USAGE)
    root = data_folder(data_dir)
    shelf = root / "workspaces" / agent_folder(agent) if agent else root / "documents" / agent_folder(project or "")
    return shelf / "memory" / "documents"


def _converted(file: Path) -> str:
    from memory.documents import to_markdown
    from memory.errors import InvalidMemory

    try:
        content = file.read_bytes()
        ending = file.suffix.lstrip(".").lower()
        return _openapi(content) if ending in ("json", "yaml", "yml") else to_markdown(ending, content)
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}.", USAGE)
    except InvalidMemory as error:
        fail(f"{file}: {error.why}.", USAGE)


def _openapi(content: bytes) -> str:
    import yaml

    from memory.documents import is_openapi, render_openapi
    from memory.errors import InvalidMemory

    try:
        value = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMemory("document", "it is neither JSON nor YAML") from error
    if not is_openapi(value):
        raise InvalidMemory("document", "it is no OpenAPI description; other JSON and YAML is not taken")
    return render_openapi(value)
