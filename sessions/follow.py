"""Takes what is new in transcripts into the full-text index, a piece at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from sessions.files import StorageError
from sessions.found import Origin, Place
from sessions.lines import scan
from sessions.packing import read_transcript, transcript_size
from sessions.transcript import transcript_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sessions.files import Files
    from sessions.record import SessionRecord
    from sessions.search import Change, SearchIndex

PIECE_BYTES = 256 * 1024

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Followed:
    """What one step came to: which sessions were read, which of them have more, which could not be read, and whether
    one was taken out."""

    read: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    forgot: bool = False


def follow(
    index: SearchIndex, files: Files, data_dir: Path, wanted: Sequence[tuple[str, SessionRecord | None]]
) -> Followed:
    """One step in one transaction, of about PIECE_BYTES. A session without a record is taken out. Blocking.

    Raises SearchFailed and DamagedIndex.
    """
    places = index.places([session for session, _ in wanted])
    unfinished: list[str] = []
    unread: list[str] = []
    forgot, read_bytes = False, 0
    with index.changing() as change:
        for session, record in wanted:
            place = places.get(session)
            if record is None or record.ended == "deleted":
                if place is not None:
                    change.forget(session)
                    forgot = True
                continue
            if read_bytes >= PIECE_BYTES:
                unfinished.append(session)
                continue
            try:
                reached, count = _advance(change, files, data_dir, record, place)
            except StorageError as error:
                log.warning("archive.transcript_not_read", session=session, error=str(error))
                unread.append(session)
                continue
            read_bytes += count
            if reached != Place(record.generation, record.size):
                unfinished.append(session)
    read = [session for session, _ in wanted if session not in unread]
    return Followed(tuple(read), tuple(unfinished), tuple(unread), forgot)


def _advance(
    change: Change, files: Files, data_dir: Path, record: SessionRecord, place: Place | None
) -> tuple[Place, int]:
    """Takes in the next piece of a session; how far it is then, and how many bytes were read.

    A transcript that is not the one that was followed, because somebody edited it, or that has become another
    person's, is taken in from the beginning.
    """
    origin = Origin(record.session, record.key, record.owner)
    if place is not None and change.is_of_another(origin):
        change.forget(record.session)
        return Place(1, 0), 0
    end = Place(record.generation, record.size)
    start = place or Place(1, 0)
    path = transcript_path(data_dir, record.agent, record.session, start.generation)
    bound = record.size if start.generation == record.generation else transcript_size(files, path) or 0
    piece = _piece(files, path, start.position, bound) if bound > start.position else b""
    if piece is None or (start.generation, start.position) > (end.generation, max(bound, end.position)):
        change.forget(record.session)
        return Place(1, 0), 0
    reached = Place(start.generation, start.position + len(piece))
    if reached.position >= bound and reached.generation < record.generation:
        reached = Place(reached.generation + 1, 0)
    entries = scan(piece, base_offset=start.position).entries if piece else ()
    change.add(origin, entries, reached)
    return reached, len(piece)


def _piece(files: Files, path: Path, position: int, bound: int) -> bytes | None:
    """Whole lines from `position` on, about PIECE_BYTES of them; None when no line begins there."""
    if position == 0:
        rest = read_transcript(files, path)[:bound]
    else:
        rest = read_transcript(files, path, position - 1)[: bound - position + 1]
        if b"\n" not in rest[:2]:
            return None
        rest = rest[1:]
    if len(rest) <= PIECE_BYTES:
        return rest
    line_end = rest.find(b"\n", PIECE_BYTES)
    return rest if line_end < 0 else rest[: line_end + 1]
