"""The files of a workspace: MEMORY.md and memory/**/*.md under one folder, read without ever leaving it."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory.encodings import readable_part
from memory.errors import InvalidMemory, NotThere

if TYPE_CHECKING:
    from pathlib import Path

ROOT_FILE = "MEMORY.md"
FOLDER = "memory"
OF_PROJECT = "project/"
"""Stands before the files of a project where those of an agent are beside them."""
ENDING = ".md"
MAX_DEPTH = 16
MAX_PATH = 1000
LINK = "It is a link; links are not followed."
UNUSABLE_NAME = "Its name has a backslash, or is no UTF-8. Rename it."
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Content:
    """The text of a file and its stamp, which changes when the file does. `unread` places of it are U+FFFD."""

    text: str
    stamp: str
    unread: int


@dataclass(frozen=True, slots=True)
class Scan:
    """The stamp of each memory file of a workspace, why others are left out, and the folders that were read."""

    files: dict[str, str]
    left_out: dict[str, str]
    folders: list[str]


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
    return parts[0] == FOLDER and has_ending(parts[-1]) and not any(map(is_hidden, parts))


def has_ending(name: str) -> bool:
    return name.lower().endswith(ENDING)


def is_hidden(name: str) -> bool:
    """Such names are those of programs: what they keep is no note."""
    return name.startswith(".")


def scan(root: Path) -> Scan:
    """The memory files under a workspace. Links are not followed; what vanishes meanwhile, and what is hidden, is not
    there."""
    found = Scan({}, {}, [])
    if root.is_symlink():
        found.left_out["."] = LINK
        return found
    try:
        told = (root / ROOT_FILE).stat(follow_symlinks=False)
        if stat.S_ISREG(told.st_mode):
            found.files[ROOT_FILE] = stamp_of(told)
        else:
            found.left_out[ROOT_FILE] = LINK if stat.S_ISLNK(told.st_mode) else "It is no file."
    except OSError:
        pass
    try:
        link = (root / FOLDER).is_symlink()
    except OSError as error:
        found.left_out["."] = _unreadable(error)
        return found
    if link:
        found.left_out[FOLDER] = LINK
    else:
        _scan_folder(os.fspath(root / FOLDER), FOLDER, MAX_DEPTH, found)
    return found


def _scan_folder(folder: str, prefix: str, depth: int, found: Scan) -> None:
    try:
        with os.scandir(folder) as entries:
            found.folders.append(folder)
            for entry in entries:
                if not is_hidden(entry.name):
                    _look_at(entry, f"{prefix}/{entry.name}", depth, found)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        found.left_out[spoken(prefix)] = _unreadable(error)


def _look_at(entry: os.DirEntry[str], name: str, depth: int, found: Scan) -> None:
    folder = is_folder(entry)
    if not folder and not has_ending(entry.name):
        return
    if entry.is_symlink():
        found.left_out[spoken(name)] = LINK
    elif spoken(name) != name or "\\" in name:
        found.left_out[spoken(name)] = UNUSABLE_NAME
    elif not folder and entry.is_file(follow_symlinks=False):
        with contextlib.suppress(FileNotFoundError):
            found.files[name] = stamp_of(entry.stat(follow_symlinks=False))
    elif folder and depth > 1:
        _scan_folder(entry.path, name, depth - 1, found)
    elif folder:
        found.left_out[name] = f"Folders are read {MAX_DEPTH} deep."


def is_folder(entry: os.DirEntry[str] | Path) -> bool:
    """Also a link that leads to one, or where nobody can follow it."""
    try:
        return entry.is_dir()
    except OSError:
        return entry.is_symlink()


def _unreadable(error: OSError) -> str:
    return f"The folder cannot be read: {error.strerror}."


def spoken(name: str) -> str:
    """A name as it can be spoken of, whatever its bytes are."""
    return name.encode("utf-8", "replace").decode()


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
    text, unread = readable_part(content)
    if "\0" in text:
        raise InvalidMemory("path", f"{path!r:.80} is no text")
    return Content(text, stamp_of(told), unread)


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
