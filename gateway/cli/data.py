"""Commands on data: export, verify, repair, backup, cleanup."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.chat import Url
from gateway.cli.client import Daemon, key_path
from gateway.cli.output import FAILED, USAGE, fail, show_json, show_table, written_file
from gateway.cli.server import DataDir

if TYPE_CHECKING:
    from collections.abc import Callable

    from sessions.upkeep import Report


def register(app: typer.Typer) -> None:
    app.command("export")(export_session)
    app.command()(verify)
    app.command()(repair)
    app.command()(backup)
    app.command()(cleanup)


def export_session(
    key: Annotated[str, typer.Argument(help="Session key.")],
    form: Annotated[str, typer.Option("--format", help="jsonl, markdown or openai.")] = "jsonl",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; else standard output.")] = None,
    url: Url = None,
) -> None:
    """Write a session as JSONL, Markdown or OpenAI messages."""
    content = Daemon(url).text("GET", key_path(key, "/export"), query={"format": form})
    if output is None:
        sys.stdout.buffer.write(content)
        return
    with written_file(output) as file:
        file.write(content)
    typer.echo(f"Wrote {output} ({len(content)} bytes).", err=True)


def verify(data_dir: DataDir = None, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Read every transcript and say what is damaged; changes nothing."""
    from sessions import upkeep
    from sessions.files import OsFiles

    report = upkeep.verify(OsFiles(), data_folder(data_dir), _progress("verified"))
    _show(report, as_json=as_json)
    raise typer.Exit(FAILED if report.found else 0)


def repair(data_dir: DataDir = None, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Cut torn lines and rebuild the index, while no daemon runs."""
    import os

    from gateway.clock import SystemClock
    from sessions import upkeep
    from sessions.files import AlreadyRunning, DirectoryLock, OsFiles

    folder = data_folder(data_dir)
    now = datetime.now(UTC)
    try:
        lock = DirectoryLock.acquire(folder / "lock", pid=os.getpid(), boot_id="", started_at=now)
    except AlreadyRunning as error:
        fail(f"{error} A running daemon mends its files by itself.", USAGE)
    try:
        report = upkeep.repair(OsFiles(), folder, now=now, stamp=SystemClock().new_id(), progress=_progress("repaired"))
    finally:
        lock.release()
    _show(report, as_json=as_json)


def backup(
    folder: Annotated[Path, typer.Argument(help="Folder to make; it must not exist.")],
    data_dir: DataDir = None,
    url: Url = None,
) -> None:
    """Copy everything to a folder, through the daemon where it runs."""
    from gateway.backup import BackupRefused, copy_folder

    daemon = Daemon(url)
    if data_dir is None and daemon.reachable():
        copied = daemon.call("POST", "/v1/backup", {"folder": str(folder.absolute())})
        typer.echo(f"Copied {copied['files']} files, {copied['size_bytes']} bytes, to {copied['folder']}.")
        return
    try:
        done = copy_folder(data_folder(data_dir), folder)
    except BackupRefused as error:
        fail(str(error), USAGE)
    typer.echo(f"Copied {done.files} files, {done.size_bytes} bytes, to {done.folder}.")


def cleanup(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would go.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
    url: Url = None,
) -> None:
    """Archive and delete sessions that are not used any more, as the settings under cleanup say."""
    report = Daemon(url).call("POST", "/v1/cleanup", {"dry_run": dry_run})
    if as_json:
        show_json(report)
        return
    rows = [
        [s["action"], s["reason"], s["key"], s["used_at"][:10], str(s["size_bytes"]), s["title"] or ""]
        for s in report["steps"]
    ]
    if rows:
        show_table(rows, ["ACTION", "FOR ITS", "KEY", "LAST USED", "BYTES", "TITLE"])
    words = "would be" if dry_run else "were"
    about = "about " if dry_run else ""
    freed, before = report["freed_bytes"], report["bytes_before"]
    typer.echo(f"{len(rows)} {words} archived or deleted; that frees {about}{freed} of {before} bytes.")
    if report["failed"]:
        fail(f"{len(report['failed'])} could not be moved; they stay as they were. The log says why.", FAILED)


def data_folder(data_dir: Path | None) -> Path:
    """The data directory, which must be there."""
    from gateway.cli.server import read_config

    folder = data_dir or read_config(None).data_dir
    if not folder.is_dir():
        fail(f"There is no folder {folder}. Name the data directory with --data-dir.", USAGE)
    return folder


def _progress(done: str) -> Callable[[int, int], None]:
    """A line that counts, on a terminal only."""
    if not sys.stderr.isatty():
        return lambda number, count: None
    return lambda number, count: typer.echo(f"\r{done} {number} of {count}", nl=number == count, err=True)


def _show(report: Report, *, as_json: bool) -> None:
    if as_json:
        show_json({"transcripts": report.transcripts, "entries": report.entries, "found": list(report.found)})
        return
    for line in report.found:
        typer.echo(line)
    typer.echo(f"{report.transcripts} transcripts, {report.entries} entries, {len(report.found)} findings.")
