"""Attachments: bytes stored once under their SHA-256, kept as long as a session refers to them.

Beside `<sha256>` stands an empty file `<sha256>.<session id>` for every session that does.
"""

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

    def refer(self, sha256: str, session: str) -> None:
        """Notes that a session refers to the bytes. Raises StorageError."""
        marker = self._marker(sha256, session)
        if self._files.size(marker) is None:
            self._files.replace(marker, b"")

    def release(self, sha256: str, session: str) -> None:
        """Takes the note back; the bytes go with the last one. Raises StorageError."""
        path = self._path(sha256)
        self._files.remove(self._marker(sha256, session))
        others = self._files.list_sizes(path.parent)
        if not any(name.startswith(f"{sha256}.") for name in others):
            self._files.remove(path)

    def release_all(self, session: str) -> None:
        """Takes back every note of a session, when its entries cannot be asked any more."""
        for folder in self._files.folders(self._folder):
            for name in self._files.list_sizes(folder):
                sha256, _, holder = name.partition(".")
                if holder == session:
                    self.release(sha256, session)

    def _marker(self, sha256: str, session: str) -> Path:
        return self._path(sha256).with_name(f"{sha256}.{session}")

    def _path(self, sha256: str) -> Path:
        if not _SHA.fullmatch(sha256):
            raise StorageFailed(f"{sha256[:70]!r} is no SHA-256 of an attachment.")
        return self._folder / sha256[:2] / sha256
