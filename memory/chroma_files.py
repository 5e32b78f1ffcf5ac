"""What Chroma leaves in its files of removed vectors, and how that goes."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

BUSY_S = 10
_M_PERTURB = -6
_ZEROS = 0xFF


def clear_files(folder: Path, database: Path) -> None:
    """Rewrites the database, and deletes files of collections that are no more. Raises sqlite3.Error and OSError."""
    with contextlib.closing(sqlite3.connect(database, timeout=BUSY_S)) as raw:
        raw.execute("VACUUM")
        used = {str(row[0]) for row in raw.execute("SELECT id FROM segments")}
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name not in used:
            shutil.rmtree(entry)


def fill_new_memory() -> None:
    """From now on memory that is taken from the C library holds zeros.

    Chroma's index takes room for more vectors than it has, and writes that room to its file as it finds it: vectors
    that were in this memory before would be in the file. Other C libraries than glibc have no such switch.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_PERTURB, _ZEROS)


def load_numbers(path: Path) -> set[int]:
    """The collections that have lost points since they were written."""
    try:
        return {int(word) for word in path.read_text("ascii").split()}
    except FileNotFoundError:
        return set()


def save_numbers(path: Path, numbers: Iterable[int]) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.touch(mode=0o600)
    fresh.write_text(" ".join(str(number) for number in sorted(numbers)), "ascii")
    fresh.replace(path)
