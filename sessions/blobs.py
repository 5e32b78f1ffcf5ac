"""Attachments: bytes stored once under their SHA-256, kept as long as a session or a fresh upload refers to them.

Beside `<sha256>` stands an empty file `<sha256>.<session id>` for every session that does, and for every upload a file
that says whose it is: `<sha256>.upload-<id>`, or `<sha256>.used-<id>` once a message has brought it into a session.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ulid import ULID

from sessions.files import StorageFailed, StorageMissing

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from pathlib import Path

    from sessions.files import Files

_SHA = re.compile(r"[0-9a-f]{64}")
_UPLOAD = re.compile(r"(?P<id>[0-7][0-9A-HJKMNP-TV-Z]{25})-(?P<sha256>[0-9a-f]{64})")
_FRESH, _USED = "upload-", "used-"


@dataclass(frozen=True, slots=True)
class Upload:
    """Bytes that were sent ahead of the message they belong to. `owner` is who may use them."""

    sha256: str
    owner: str
    media_type: str
    size_bytes: int
    name: str | None = None


class Blobs:
    """The folder `blobs/` of a data directory. Blocking."""

    def __init__(self, files: Files, data_dir: Path) -> None:
        self._files = files
        self._folder = data_dir / "blobs"
        self._held: Counter[str] = Counter()
        self._holding = threading.Lock()

    def put(self, content: bytes) -> str:
        """Stores the bytes, synced, unless they are there already; their SHA-256. Raises StorageError."""
        sha256 = hashlib.sha256(content).hexdigest()
        path = self._path(sha256)
        if self._files.size(path) != len(content):
            self._files.replace(path, content)
        return sha256

    def hold(self, content: bytes) -> str:
        """Stores bytes for somebody who uses them before any session refers to them; `let_go` ends that.

        Raises StorageError.
        """
        sha256 = hashlib.sha256(content).hexdigest()
        with self._holding:
            self._held[sha256] += 1
        try:
            return self.put(content)
        except BaseException:
            self.let_go(sha256)
            raise

    def let_go(self, sha256: str) -> None:
        """The opposite of `hold`: the bytes go, unless a session or an upload has them. Raises StorageError."""
        with self._holding:
            self._held[sha256] -= 1
            if self._held[sha256] <= 0:
                del self._held[sha256]
                self._remove_unheld(sha256)

    def load(self, sha256: str) -> bytes:
        """The bytes, checked. Raises StorageError when they are gone or damaged."""
        content = self._files.read(self._path(sha256))
        if hashlib.sha256(content).hexdigest() != sha256:
            raise StorageFailed(f"The attachment {sha256[:12]} is damaged on disk. Restore it from a backup.")
        return content

    def refer(self, sha256: str, session: str) -> bool:
        """Notes that a session refers to the bytes; False when it did already. Raises StorageError."""
        marker = self._marker(sha256, session)
        if self._files.size(marker) is not None:
            return False
        self._files.replace(marker, b"")
        return True

    def release(self, sha256: str, session: str) -> None:
        """Takes the note back; the bytes go with the last one. Raises StorageError."""
        with self._holding:
            self._files.remove(self._marker(sha256, session))
            self._remove_unheld(sha256)

    def _remove_unheld(self, sha256: str) -> None:
        """Bytes that nobody uses now, no session and no unused upload; a used upload has gone with its sessions."""
        if self._held[sha256] > 0:
            return
        path = self._path(sha256)
        notes = [name for name in self._files.list_sizes(path.parent) if name.startswith(f"{sha256}.")]
        if all(name.startswith(f"{sha256}.{_USED}") for name in notes):
            for name in notes:
                self._files.remove(path.with_name(name))
            self._files.remove(path)

    def put_upload(self, content: bytes, upload_id: str, *, owner: str, media_type: str, name: str | None) -> str:
        """Stores bytes ahead of their message; the reference by which it names them. Raises StorageError."""
        sha256 = hashlib.sha256(content).hexdigest()
        said = {"owner": owner, "media_type": media_type, "size_bytes": len(content), "name": name}
        # the note first: a clean-up must not find the bytes without it
        self._files.replace(self._marker(sha256, f"{_FRESH}{upload_id}"), json.dumps(said).encode())
        self.put(content)
        return f"{upload_id}-{sha256}"

    def upload(self, reference: str, owner: str) -> Upload | None:
        """What a reference means for its owner; None for others, when there is none, and after it has expired."""
        match = _UPLOAD.fullmatch(reference)
        if match is None:
            return None
        for kind in (_FRESH, _USED):
            try:
                said = json.loads(self._files.read(self._marker(match["sha256"], f"{kind}{match['id']}")))
            except StorageMissing:
                continue
            found = Upload(match["sha256"], said["owner"], said["media_type"], said["size_bytes"], said["name"])
            return found if found.owner == owner else None
        return None

    def use(self, reference: str) -> None:
        """Notes that a message has brought an upload into a session, with which it goes. Raises StorageError."""
        match = _UPLOAD.fullmatch(reference)
        if match is None:
            return
        fresh, used = (self._marker(match["sha256"], f"{kind}{match['id']}") for kind in (_FRESH, _USED))
        if self._files.size(fresh) is not None:
            self._files.replace(used, self._files.read(fresh))
            self._files.remove(fresh)

    def expire_uploads(self, now: datetime, after: timedelta) -> int:
        """Forgets uploads older than `after`, with the bytes no session holds; how many. Raises StorageError."""
        expired = 0
        for folder in self._files.folders(self._folder):
            for name in self._files.list_sizes(folder):
                sha256, _, holder = name.partition(".")
                kind, _, upload_id = holder.partition("-")
                if f"{kind}-" in (_FRESH, _USED) and now - ULID.from_str(upload_id).datetime > after:
                    with self._holding:
                        self._files.remove(folder / name)
                        self._remove_unheld(sha256)
                    expired += 1
        return expired

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
