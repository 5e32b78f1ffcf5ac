"""The transcript files of a session, one for each generation; packed or not. All of it is blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from sessions.context import uncarried
from sessions.entries import CarriedEntry, Header, UserEntry
from sessions.lines import scan
from sessions.packing import read_transcript, transcript_size
from sessions.transcript import Transcript, transcript_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from sessions.entries import Entry
    from sessions.files import Files
    from sessions.lines import Scan
    from sessions.record import SessionRecord

log = structlog.get_logger()


class Generations:
    """Where the transcripts of one data directory are, and what they hold."""

    def __init__(self, files: Files, data_dir: Path, *, sync: bool) -> None:
        self._files = files
        self._data_dir = data_dir
        self._sync = sync

    def create(self, record: SessionRecord) -> Transcript:
        """The current one, which is not on disk yet."""
        path = self._path(record, record.generation)
        return Transcript.create(self._files, path, _header(record), sync=self._sync)

    def open(self, record: SessionRecord, stamp: str) -> tuple[Transcript, Scan]:
        """The current one, read; `stamp` names what is cut from its end. Raises StorageError."""
        path = self._path(record, record.generation)
        return Transcript.open(self._files, path, stamp=stamp, sync=self._sync, header=_header(record))

    def paths(self, record: SessionRecord) -> list[Path]:
        """Of all generations, oldest first; whether packed or not."""
        return [self._path(record, generation) for generation in range(1, record.generation + 1)]

    def current(self, record: SessionRecord) -> Sequence[Entry]:
        """Entries of the current one. Raises StorageError."""
        return scan(read_transcript(self._files, self._path(record, record.generation))).entries

    def former(self, record: SessionRecord, *, limit_bytes: int | None = None) -> list[Entry]:
        """Entries of the generations before the current one, from the newest back until `limit_bytes` were read.

        Raises StorageError.
        """
        found: list[Entry] = []
        size_bytes = 0
        for generation in range(record.generation - 1, 0, -1):
            if limit_bytes is not None and size_bytes >= limit_bytes:
                break
            path = self._path(record, generation)
            if transcript_size(self._files, path) is None:
                log.warning("transcript.missing", session=record.session, generation=generation)
                continue
            payload = read_transcript(self._files, path)
            size_bytes += len(payload)
            found.extend(e for e in scan(payload).entries if not isinstance(e, CarriedEntry))
        return found

    def attached_before(self, record: SessionRecord) -> set[str]:
        """Hashes of the files that generations before the current one refer to. Raises StorageError."""
        found: set[str] = set()
        for path in self.paths(record)[:-1]:
            if transcript_size(self._files, path) is not None:
                found |= attached(scan(read_transcript(self._files, path)).entries)
        return found

    def _path(self, record: SessionRecord, generation: int) -> Path:
        return transcript_path(self._data_dir, record.agent, record.session, generation)


def _header(record: SessionRecord) -> Header:
    return Header(
        session=record.session,
        generation=record.generation,
        key=record.key,
        agent=record.agent,
        at=record.created_at,
        previous=record.previous,
        owner=record.owner,
    )


def attached(entries: Iterable[Entry]) -> set[str]:
    """Hashes of the files that entries refer to."""
    return {a.sha256 for e in uncarried(entries) if isinstance(e, UserEntry) for a in e.attachments}
