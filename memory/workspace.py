"""The files of a workspace: MEMORY.md and memory/**/*.md under one folder, read without ever leaving it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory.errors import InvalidMemory, NotThere

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOT_FILE = "MEMORY.md"
FOLDER = "memory"
ENDING = ".md"
MAX_DEPTH = 16
MAX_PATH = 1000
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Content:
    """The text of a file and its stamp, which changes when the file does."""

    text: str
    stamp: str


def checked_path(path: str) -> tuple[str, ...]:
    """The parts of a path inside a workspace. Raises InvalidMemory for everything that could lead elsewhere."""
    parts = tuple(path.split("/"))
    unsafe = "\0" in path or "\\" in path or len(path) > MAX_PATH or len(parts) > MAX_DEPTH
    if unsafe or any(part in ("", ".", "..") for part in parts) or not _is_wanted(parts):
        raise InvalidMemory("path", f"{path!r:.80} is no memory file; they are {ROOT_FILE} and {FOLDER}/…{ENDING}")
    return parts


def _is_wanted(parts: tuple[str, ...]) -> bool:
    if len(parts) == 1:
        return parts[0] == ROOT_FILE
    return parts[0] == FOLDER and parts[-1].endswith(ENDING)


def scan(root: Path) -> dict[str, str]:
    """The memory files under a workspace, each with its stamp. Links are not followed; what vanishes meanwhile is not
    there."""
    found: dict[str, str] = {}
    try:
        told = (root / ROOT_FILE).stat(follow_symlinks=False)
        if stat.S_ISREG(told.st_mode):
            found[ROOT_FILE] = stamp_of(told)
    except OSError:
        pass
    found.update(_scan_folder(os.fspath(root / FOLDER), FOLDER, MAX_DEPTH))
    return found


def _scan_folder(folder: str, prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = f"{prefix}/{entry.name}"
                if entry.is_dir(follow_symlinks=False) and depth > 1:
                    yield from _scan_folder(entry.path, name, depth - 1)
                elif entry.name.endswith(ENDING) and entry.is_file(follow_symlinks=False) and _is_text(name):
                    yield name, stamp_of(entry.stat(follow_symlinks=False))
    except OSError:
        return


def _is_text(name: str) -> bool:
    """Whether a name is UTF-8; others cannot be spoken of."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return "\\" not in name


def stamp_of(told: os.stat_result) -> str:
    return f"{told.st_mtime_ns}-{told.st_size}-{told.st_ino}"


def stamp_now(root: Path, path: str) -> str | None:
    """The stamp of a file now; None when it is not there."""
    try:
        return stamp_of((root / path).stat(follow_symlinks=False))
    except (OSError, ValueError):
        return None


def read(root: Path, path: str, *, max_bytes: int) -> Content:
    """A whole file. Raises InvalidMemory and NotThere."""
    parts = checked_path(path)
    handle = _open(root, parts)
    try:
        told = os.fstat(handle)
        if not stat.S_ISREG(told.st_mode):
            raise NotThere(f"file {path!r:.80}")
        if told.st_size > max_bytes:
            raise InvalidMemory("path", f"{path!r:.80} has {told.st_size} bytes; at most {max_bytes} are read")
        content = _read_all(handle, max_bytes)
    finally:
        os.close(handle)
    if b"\0" in content:
        raise InvalidMemory("path", f"{path!r:.80} is no text")
    return Content(content.decode("utf-8-sig", "replace"), stamp_of(told))


def _open(root: Path, parts: tuple[str, ...]) -> int:
    """Folder by folder, none of them a link: what is checked is what is opened."""
    try:
        at = os.open(root, _FOLDER_FLAGS)
        for part in parts[:-1]:
            above, at = at, -1
            try:
                at = os.open(part, _FOLDER_FLAGS, dir_fd=above)
            finally:
                os.close(above)
        try:
            return os.open(parts[-1], _FILE_FLAGS, dir_fd=at)
        finally:
            os.close(at)
    except OSError as error:
        raise NotThere(f"file {'/'.join(parts)!r:.80}") from error


def _read_all(handle: int, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size <= max_bytes and (piece := os.read(handle, 1 << 20)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)[:max_bytes]
