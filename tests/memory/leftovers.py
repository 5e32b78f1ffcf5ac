"""Looks for what should be gone, byte by byte, in every file of a folder."""

from __future__ import annotations

import contextlib
import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory.embed import Vectors


def files_with_text(folder: Path, text: str | bytes) -> list[str]:
    wanted = text.encode() if isinstance(text, str) else text
    return [name for name, content in _contents(folder) if wanted in content]


def files_with_vector(folder: Path, vector: Vectors) -> list[str]:
    """Files that hold the vector as 32-bit floats, at any place; also when somebody normalised it once more, which
    changes the last bits."""
    return [name for name, content in _contents(folder) if _holds(content, vector.astype("<f4"))]


@contextlib.contextmanager
def not_collected() -> Iterator[None]:
    """What is dropped without being closed stays open in here, as it may for minutes in a daemon."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def open_files(folder: Path) -> list[str]:
    """Files of the folder that this process has open."""
    found: list[str] = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            path = link.readlink()
            if path.is_relative_to(folder):
                found.append(path.name)
    return found


def _holds(content: bytes, vector: Vectors) -> bool:
    largest, size = int(np.argmax(np.abs(vector))), len(vector)
    for shift in range(4):
        numbers = np.frombuffer(content[shift : shift + (len(content) - shift) // 4 * 4], dtype="<f4")
        with np.errstate(invalid="ignore", over="ignore"):
            starts = np.flatnonzero(np.abs(numbers - vector[largest]) < 1e-6) - largest
            parts = (numbers[start : start + size] for start in starts if 0 <= start <= len(numbers) - size)
            if any(bool((np.abs(part - vector) < 1e-6).all()) for part in parts):
                return True
    return False


def _contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """A file that a running daemon removes meanwhile, as SQLite's logs, holds nothing."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for path in (Path(parent, name) for name in sorted(names)):
            with contextlib.suppress(FileNotFoundError):
                yield str(path.relative_to(folder)), path.read_bytes()
