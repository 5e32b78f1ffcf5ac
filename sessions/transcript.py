"""The only writer of a transcript file."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from urllib.parse import quote

from sessions.files import StorageError
from sessions.lines import Scan, encode_entry, encode_header, scan

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sessions.entries import Entry, Header
    from sessions.files import Files

MAX_FOLDER = 100


def agent_folder(agent: str) -> str:
    """A folder name that cannot leave its parent: all but letters, digits, `-` and `_` is percent-encoded."""
    safe = quote(agent, safe="").replace(".", "%2E").replace("~", "%7E")
    if len(safe) > MAX_FOLDER:
        return f"{safe[:40]}-{hashlib.sha256(agent.encode()).hexdigest()[:32]}"
    return safe


def transcript_path(data_dir: Path, agent: str, session: str, generation: int) -> Path:
    """`transcripts/<agent>/<session id>.<generation>.jsonl`; the key is never part of a path."""
    return data_dir / "transcripts" / agent_folder(agent) / f"{session}.{generation}.jsonl"


class Transcript:
    """The file of one generation of a session. Blocking; one object writes it, one call at a time."""

    def __init__(self, files: Files, path: Path, *, header: Header | None, size: int, sync: bool) -> None:
        self._files = files
        self._header = header
        self._sync = sync
        self._suspect = False
        self._ends_open = False
        self.path = path
        self.size = size

    @staticmethod
    def create(files: Files, path: Path, header: Header, *, sync: bool) -> Transcript:
        """A transcript that is not on disk yet: header and first entries appear together."""
        return Transcript(files, path, header=header, size=0, sync=sync)

    @staticmethod
    def open(files: Files, path: Path, *, stamp: str, sync: bool) -> tuple[Transcript, Scan]:
        """Reads a transcript. A torn last line is cut off; its bytes go to `<file>.torn-<stamp>` first.

        Raises StorageError.
        """
        payload = files.read(path)
        content = scan(payload)
        if content.torn:
            files.replace(path.with_name(f"{path.name}.torn-{stamp}"), content.torn)
            files.truncate(path, content.whole_bytes)
        transcript = Transcript(files, path, header=None, size=content.whole_bytes, sync=sync)
        transcript._ends_open = (
            content.whole_bytes > 0 and payload[content.whole_bytes - 1 : content.whole_bytes] != b"\n"
        )
        return transcript, content

    def append(self, entries: Sequence[Entry]) -> None:
        """Writes the lines of `entries` with one write, synced. Raises StorageError; then none of them is there."""
        lines = b"".join(encode_entry(entry) for entry in entries)
        if self._suspect:
            self._check()
        if self._header is not None:
            payload = encode_header(self._header) + lines
            self._files.create(self.path, payload, sync=self._sync)
            self._header, self.size = None, len(payload)
            return
        payload = b"\n" + lines if self._ends_open else lines
        try:
            self.size = self._files.append(self.path, payload, expected_size=self.size, sync=self._sync)
        except StorageError:
            self._suspect = True
            raise
        self._ends_open = False

    def _check(self) -> None:
        """After a failure: what lies beyond the last acknowledged byte was never acknowledged, and is cut.

        Raises StorageError while the disk still fails.
        """
        size = self._files.size(self.path)
        if size is None or size < self.size:
            raise StorageError(f"{self.path.name} is shorter than what was written. Check the disk, then restart.")
        if size > self.size:
            self._files.truncate(self.path, self.size)
        self._suspect = False
