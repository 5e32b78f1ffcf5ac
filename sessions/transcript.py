"""The only writer of a transcript file."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

from sessions.files import StorageFailed
from sessions.folders import agent_folder
from sessions.lines import Scan, encode_entry, encode_header, scan
from sessions.packing import read_transcript

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sessions.entries import Entry, Header
    from sessions.files import Files

TORN = "torn"
_SESSION = re.compile(r"[0-9A-Za-z_-]{1,64}")


def transcript_path(data_dir: Path, agent: str, session: str, generation: int) -> Path:
    """`transcripts/<agent>/<session id>.<generation>.jsonl`; the key is never part of a path.

    Raises ValueError for what is no session id or no agent.
    """
    if not agent or not _SESSION.fullmatch(session) or generation < 1:
        raise ValueError(f"{agent!r}, {session!r}, {generation} name no transcript")
    return data_dir / "transcripts" / agent_folder(agent) / f"{session}.{generation}.jsonl"


def torn_path(path: Path, stamp: str) -> Path:
    """Where bytes that are cut from a transcript go: a folder with few files, which a deletion can look through."""
    return path.parent / TORN / f"{path.name}.torn-{stamp}"


class Transcript:
    """The file of one generation of a session. Blocking; one object writes it, one call at a time.

    `size` is the number of bytes that are acknowledged: what lies beyond them in the file never counted.
    """

    def __init__(
        self, files: Files, path: Path, *, header: Header | None, content: bytes, ends_open: bool, sync: bool
    ) -> None:
        self._files = files
        self._header = header
        self._crc = zlib.crc32(content)
        self._ends_open = ends_open
        self._sync = sync
        self._suspect = False
        self.path = path
        self.size = len(content)

    @staticmethod
    def create(files: Files, path: Path, header: Header, *, sync: bool) -> Transcript:
        """A transcript that is not on disk yet: header and first entries appear together."""
        return Transcript(files, path, header=header, content=b"", ends_open=False, sync=sync)

    @staticmethod
    def open(
        files: Files, path: Path, *, stamp: str, sync: bool, header: Header | None = None
    ) -> tuple[Transcript, Scan]:
        """Reads a transcript. A torn last line is cut off; its bytes go to `torn_path` first. What is
        packed is read, and cannot be appended to.

        `header` is written with the next entries should not one whole line be left. Raises StorageError.
        """
        payload = read_transcript(files, path)
        content = scan(payload)
        if content.torn and files.size(path) is not None:
            _cut(files, path, content.whole_bytes, content.torn, stamp)
        transcript = Transcript(
            files,
            path,
            header=header if content.whole_bytes == 0 else None,
            content=payload[: content.whole_bytes],
            ends_open=content.ends_open,
            sync=sync,
        )
        return transcript, content

    def append(self, entries: Sequence[Entry]) -> None:
        """Writes the lines of `entries`, at least one, with one write, synced.

        Raises StorageError; then none of them counts, and the next call looks at the file first.
        """
        payload = b"".join(encode_entry(entry) for entry in entries)
        if self._header is not None:
            payload = encode_header(self._header) + payload
        if self._ends_open:
            payload = b"\n" + payload
        if self._suspect:
            self._check(stamp=entries[0].id or "unacknowledged")
        self._suspect = True
        if self.size == 0 and self._files.size(self.path) is None:
            self._files.create(self.path, payload, sync=self._sync)
        else:
            self._files.append(self.path, payload, expected_size=self.size, sync=self._sync)
        self._suspect = False
        self.size += len(payload)
        self._crc = zlib.crc32(payload, self._crc)
        self._header, self._ends_open = None, False

    def _check(self, stamp: str) -> None:
        """After a failure: the acknowledged bytes must be there, and what lies beyond them is cut.

        A failed sync says nothing of what reached the disk, so the file is read again. Raises StorageError.
        """
        if self.size == 0 and self._files.size(self.path) is None:
            return
        payload = self._files.read(self.path)
        if zlib.crc32(payload[: self.size]) != self._crc or len(payload) < self.size:
            raise StorageFailed(
                f"{self.path.name} no longer holds what was written to it. Check the disk, then restart sessiond."
            )
        if len(payload) > self.size:
            _cut(self._files, self.path, self.size, payload[self.size :], stamp)
        self._suspect = False


def _cut(files: Files, path: Path, size: int, torn: bytes, stamp: str) -> None:
    """The cut bytes are on disk under their own name before they go from the file."""
    files.replace(torn_path(path, stamp), torn)
    files.truncate(path, size)
