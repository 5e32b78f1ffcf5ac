"""Documents of agents and projects: add, list, remove; by the daemon, or in a data directory of this machine."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from gateway.cli.chat import Url
from gateway.cli.client import Daemon
from gateway.cli.data import data_folder
from gateway.cli.output import REFUSED, USAGE, fail, say, show_table
from gateway.cli.server import DataDir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

app = typer.Typer(help="Documents that agents and projects search.", no_args_is_help=True, rich_markup_mode=None)

Agent = Annotated[str | None, typer.Option(help="The agent it is for.")]
Project = Annotated[str | None, typer.Option(help="The project it is for; its members find it.")]

MAX_SOURCE_BYTES = 100_000_000


@app.callback()
def group() -> None:
    """Documents that agents and projects search.

    With --url, or SESSIOND_URL set, the daemon there keeps them; else they go into the data directory of this machine.
    """


@app.command()
def add(
    files: Annotated[list[Path], typer.Argument(help="Markdown, text, HTML, PDF, or OpenAPI as JSON or YAML.")],
    agent: Agent = None,
    project: Project = None,
    data_dir: DataDir = None,
    url: Url = None,
) -> None:
    """Take documents over as Markdown; one with the same name is replaced. The daemon finds them by itself.

    What is refused is named, and the others are taken.
    """
    whose = _whose(agent, project)
    keep = _by_daemon(Daemon(url), whose) if _remote(data_dir, url) else _here(_folder(agent, project, data_dir))
    refused: list[int] = []
    for file in files:
        try:
            name, size_bytes = keep(file, _content(file))
        except typer.Exit as ended:
            if ended.exit_code not in (USAGE, REFUSED):
                raise
            refused.append(ended.exit_code)
        else:
            say(f"{file} -> memory/documents/{name} ({size_bytes} bytes)")
    if refused:
        raise typer.Exit(refused[0])


@app.command("list")
def show(agent: Agent = None, project: Project = None, data_dir: DataDir = None, url: Url = None) -> None:
    """The documents of an agent or a project."""
    whose = _whose(agent, project)
    if _remote(data_dir, url):
        found = Daemon(url).call("GET", "/v1/documents", query=whose)
        _show((one["name"], one["size_bytes"]) for one in found["documents"])
        return
    from gateway.documents import list_documents

    _show(list_documents(_folder(agent, project, data_dir)))


@app.command()
def remove(
    name: Annotated[str, typer.Argument(help="As `list` shows it, or as the file that was added is called.")],
    agent: Agent = None,
    project: Project = None,
    data_dir: DataDir = None,
    url: Url = None,
) -> None:
    """Delete a document; the daemon forgets it within seconds."""
    whose = _whose(agent, project)
    if _remote(data_dir, url):
        Daemon(url).call("DELETE", f"/v1/documents/{quote(name, safe='')}", query=whose)
    else:
        from gateway.documents import remove_document

        if not remove_document(_folder(agent, project, data_dir), name):
            fail(f"There is no document {name!r} here. `sessiond documents list` shows them.", USAGE)
    typer.echo(f"Removed {name}.")


def _by_daemon(daemon: Daemon, whose: dict[str, Any]) -> Callable[[Path, bytes], tuple[str, int]]:
    """Keeps a document there; says its name and its bytes."""

    def keep(file: Path, content: bytes) -> tuple[str, int]:
        body = {"name": file.name, "base64": base64.b64encode(content).decode(), **whose}
        try:
            kept = daemon.call("POST", "/v1/documents", body)
        except typer.Exit:
            say(f"{file} was not taken.", err=True)
            raise
        return kept["name"], kept["size_bytes"]

    return keep


def _here(folder: Path) -> Callable[[Path, bytes], tuple[str, int]]:
    """Keeps a document in a folder of this machine; says its name and its bytes."""
    from gateway.cli.server import read_config
    from gateway.documents import put_document

    max_bytes = read_config(None).memory.files.max_bytes

    def keep(file: Path, content: bytes) -> tuple[str, int]:
        text = _converted(file, content, max_bytes)
        return put_document(folder, file.name, text), len(text.encode())

    return keep


def _remote(data_dir: Path | None, url: str | None) -> bool:
    return data_dir is None and (url is not None or bool(os.environ.get("SESSIOND_URL")))


def _whose(agent: str | None, project: str | None) -> dict[str, Any]:
    if (agent is None) == (project is None):
        fail("Say whose it is: --agent NAME or --project NAME.", USAGE)
    return {"agent": agent} if agent is not None else {"project": project}


def _folder(agent: str | None, project: str | None, data_dir: Path | None) -> Path:
    from gateway.cli.server import read_config
    from gateway.documents import shelf_folder
    from gateway.known import projects_on_disk, unknown_agent, unknown_project

    folder, agents = data_folder(data_dir), read_config(None).agents
    if project is not None:
        refusal = unknown_project(project, projects_on_disk(folder, agents))
    else:
        refusal = unknown_agent(agent or "", agents, folder)
    if refusal is not None:
        fail(refusal, USAGE)
    return shelf_folder(folder, agent, project)


def _show(documents: Iterable[tuple[str, int]]) -> None:
    show_table([[name, str(size)] for name, size in documents], ["NAME", "BYTES"])


def _content(file: Path) -> bytes:
    try:
        if (size := file.stat().st_size) > MAX_SOURCE_BYTES:
            fail(f"{file} has {size} bytes; at most {MAX_SOURCE_BYTES} are read. Divide it.", USAGE)
        return file.read_bytes()
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}.", USAGE)


def _converted(file: Path, content: bytes, max_bytes: int) -> str:
    from gateway.documents import converted, kept_name
    from memory.errors import InvalidMemory

    try:
        kept_name(file.name)
        return converted(file.name, content, max_bytes=max_bytes)
    except InvalidMemory as error:
        fail(f"{file}: {error.why}.", USAGE)
