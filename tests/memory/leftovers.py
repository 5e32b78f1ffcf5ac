"""Looks for what should be gone, byte by byte, in every file of a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from memory.embed import Vectors


def files_with_text(folder: Path, text: str) -> list[str]:
    return [name for name, content in _contents(folder) if text.encode() in content]


def files_with_vector(folder: Path, vector: Vectors) -> list[str]:
    """Files that hold the vector as 32-bit floats, at any place; also when somebody normalised it once more, which
    changes the last bits."""
    return [name for name, content in _contents(folder) if _holds(content, vector.astype("<f4"))]


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


def _contents(folder: Path) -> list[tuple[str, bytes]]:
    return [(str(one.relative_to(folder)), one.read_bytes()) for one in sorted(folder.rglob("*")) if one.is_file()]
