"""A copy of a data directory that opens and verifies, taken while the daemon runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sessions.files import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.parts import Parts

COPIED = ("transcripts", "blobs", "workspaces")


class BackupRefused(ValueError):
    """The folder cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Backup:
    """What was copied."""

    folder: str
    files: int
    size_bytes: int


async def copy_live(parts: Parts, folder: str) -> Backup:
    """A transcript only grows, so its copy is whole up to a torn last line, which opening cuts. No clean-up moves files
    meanwhile."""
    async with parts.cleanup.lock:
        return await asyncio.to_thread(copy_folder, parts.data_dir, Path(folder))


def copy_folder(data_dir: Path, target: Path) -> Backup:
    """Copies a data directory; the index is left out, because it is rebuilt from the transcripts, which are the truth.

    Settings of sessions are in the index's snapshot, so that is copied first: what came after it is read from the
    transcripts. The copy gets its name when it is whole; one that failed leaves nothing. Raises BackupRefused.
    """
    if target.exists():
        raise BackupRefused(f"{target} exists already. Name a folder that does not.")
    if target.resolve().is_relative_to(data_dir.resolve()):
        raise BackupRefused(f"{target} is inside the data directory. Name a folder outside of it.")
    partial = target.with_name(f"{target.name}.partial")
    try:
        partial.mkdir(mode=0o700, parents=True)
    except FileExistsError as error:
        raise BackupRefused(
            f"{partial} exists: another backup is being written there, or was cut. If none is, remove it."
        ) from error
    except OSError as error:
        raise BackupRefused(f"{partial} could not be made ({error.strerror}). Name another folder.") from error
    try:
        _fill(data_dir, partial)
        partial.rename(target)
    except (OSError, sqlite3.Error) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise BackupRefused(_why(error, data_dir, target)) from error
    files = [path for path in target.rglob("*") if path.is_file()]
    return Backup(str(target), len(files), sum(path.stat().st_size for path in files))


def _fill(data_dir: Path, target: Path) -> None:
    for name in ("sessions.json", "sessions.journal.jsonl"):
        with suppress(FileNotFoundError):
            shutil.copy2(data_dir / name, target / name)
    (target / "sessions.journal.jsonl").touch(mode=0o600)
    for name in COPIED:
        if (data_dir / name).is_dir():
            copy_tree(data_dir / name, target / name, unfinished=None if name == "workspaces" else TEMPORARY)
    if (data_dir / "state.db").exists():
        _copy_database(data_dir / "state.db", target / "state.db")


def _copy_as_it_is(source: str, target: Path) -> None:
    shutil.copy2(source, target, follow_symlinks=False)


def copy_tree(
    source: Path,
    target: Path,
    *,
    unfinished: str | None = None,
    copy: Callable[[str, Path], object] = _copy_as_it_is,
) -> None:
    """Copies a folder in which files come and go. What goes meanwhile was deleted, which a backup need not have, or is
    there under another name: packed, unpacked, or written anew. So a folder is looked through again until nothing has
    gone in between. Files ending in `unfinished` are not whole yet, and nothing counts on them. Raises OSError."""
    target.mkdir(mode=0o700)
    done: set[str] = set()
    again = True
    while again:
        again = False
        for entry in _entries(source):
            if entry.name in done or (unfinished is not None and entry.name.endswith(unfinished)):
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    copy_tree(Path(entry.path), target / entry.name, unfinished=unfinished, copy=copy)
                else:
                    copy(entry.path, target / entry.name)
                done.add(entry.name)
            except FileNotFoundError:
                if os.path.lexists(entry.path):
                    raise
                again = True
    with suppress(FileNotFoundError):
        shutil.copystat(source, target)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing when it has gone."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _why(error: OSError | sqlite3.Error, data_dir: Path, target: Path) -> str:
    """What went wrong, and what to do."""
    place = error.filename if isinstance(error, OSError) else None
    if isinstance(error, PermissionError) and place is not None and Path(place).is_relative_to(data_dir):
        return f"{place} may not be read. Give the daemon's user that right, and try again."
    why = getattr(error, "strerror", None) or error
    return f"{target} could not be written ({why}). Free some space there, and try again."


def _copy_database(source: Path, target: Path) -> None:
    """SQLite's own backup: consistent also while it is being written."""
    with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(target)) as copy:
        live.backup(copy)
    target.chmod(0o600)
