"""Checks a data directory and mends what can be mended; both say what they found. For a stopped daemon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sessions.files import StorageError
from sessions.lines import scan
from sessions.packing import unpacked
from sessions.recovery import list_transcripts, reconcile
from sessions.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from sessions.files import Files


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, and lines for people about what was found or done."""

    transcripts: int
    entries: int
    found: tuple[str, ...]


def verify(files: Files, data_dir: Path, progress: Callable[[int, int], None]) -> Report:
    """Reads every transcript; changes nothing. Raises StorageError."""
    listed = list_transcripts(files, data_dir)
    found = [f"{name}: no transcript's name" for name in listed.unnamed]
    entries = 0
    for number, file in enumerate(listed.named, 1):
        content = scan(files.read(file.path))
        entries += len(content.entries)
        for problem in content.problems:
            seq = "" if problem.seq is None else f", seq {problem.seq}"
            found.append(f"{file.path.name}: {problem.kind} at byte {problem.offset}{seq} {problem.detail}".rstrip())
        progress(number, len(listed.named))
    for file in listed.packed:
        try:
            content = scan(unpacked(files, file.path))
        except StorageError as error:
            found.append(str(error))
            continue
        entries += len(content.entries)
        found.extend(f"{file.path.name}: {problem.kind} at byte {problem.offset}" for problem in content.problems)
    return Report(len(listed.named) + len(listed.packed), entries, tuple(found))


def repair(files: Files, data_dir: Path, *, now: datetime, stamp: str, progress: Callable[[int, int], None]) -> Report:
    """Cuts torn last lines (their bytes are kept beside the file) and rebuilds the index from the transcripts.

    What the daemon does at its start, without starting it. Raises StorageError.
    """
    done: list[str] = []
    entries = 0
    listed = list_transcripts(files, data_dir)
    for number, file in enumerate(listed.named, 1):
        _, content = Transcript.open(files, file.path, stamp=stamp, sync=True)
        entries += len(content.entries)
        if content.torn:
            done.append(f"{file.path.name}: cut {len(content.torn)} bytes of a torn last line")
        progress(number, len(listed.named))
    index, report = reconcile(files, data_dir, now=now, stamp=stamp)
    index.commit_snapshot(index.prepare_snapshot(clean=True))
    done.extend(f"index: read again from {session}" for session in report.reread)
    done.extend(f"{session}: finished its deletion" for session in report.finished_deletions)
    done.extend(f"{name}: removed, left over from a compaction that was cut" for name in report.leftovers)
    if report.index.broken is not None:
        done.append(f"index: was broken and is rebuilt; {report.index.broken}")
    return Report(len(listed.named), entries, tuple(done))
