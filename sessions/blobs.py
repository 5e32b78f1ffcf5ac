"""Attachments: bytes stored once under their SHA-256."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from sessions.files import StorageFailed

if TYPE_CHECKING:
    from pathlib import Path

    from sessions.files import Files

_SHA = re.compile(r"[0-9a-f]{64}")


class Blobs:
    """The folder `blobs/` of a data directory. Blocking."""

    def __init__(self, files: Files, data_dir: Path) -> None:
        self._files = files
        self._folder = data_dir / "blobs"

    def put(self, content: bytes) -> str:
        """Stores the bytes, synced, unless they are there already; their SHA-256. Raises StorageError."""
        sha256 = hashlib.sha256(content).hexdigest()
        path = self._path(sha256)
        if self._files.size(path) != len(content):
            self._files.replace(path, content)
        return sha256

    def load(self, sha256: str) -> bytes:
        """The bytes, checked. Raises StorageError when they are gone or damaged."""
        content = self._files.read(self._path(sha256))
        if hashlib.sha256(content).hexdigest() != sha256:
            raise StorageFailed(f"The attachment {sha256[:12]} is damaged on disk. Restore it from a backup.")
        return content

    def remove(self, sha256: str) -> None:
        """Removes the bytes; the caller has seen that no entry refers to them any more. Raises StorageError."""
        self._files.remove(self._path(sha256))

    def _path(self, sha256: str) -> Path:
        if not _SHA.fullmatch(sha256):
            raise StorageFailed(f"{sha256[:70]!r} is no SHA-256 of an attachment.")
        return self._folder / sha256[:2] / sha256
