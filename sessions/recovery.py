"""What the start of the daemon mends: the index is brought up to what the transcripts hold."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from sessions.context import open_turns, uncarried
from sessions.entries import CarriedEntry, CompactionEntry, EndedEntry, SummaryEntry, UserEntry
from sessions.files import TEMPORARY, StorageError, StorageFailed
from sessions.index import Index
from sessions.keys import MalformedKey, parse_key
from sessions.lines import Scan, scan
from sessions.packing import SUFFIX, packed_path, read_transcript, unpacked
from sessions.record import SessionRecord, SessionSettings
from sessions.tally import tallied
from sessions.transcript import TORN, torn_path, transcript_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from sessions.entries import Entry
    from sessions.files import Files
    from sessions.index import IndexReport
    from sessions.keys import SessionKey

log = structlog.get_logger()

_NAME = re.compile(r"(?P<session>[0-9A-Z]{26})\.(?P<generation>\d{1,9})\.jsonl(?P<packed>\.zst)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartReport:
    """What the start found: `reread` transcripts were ahead of the index, `unreadable` ones tell no key."""

    index: IndexReport
    clean: bool
    sessions: int
    reread: tuple[str, ...] = ()
    finished_deletions: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.reread or self.finished_deletions)


@dataclass(frozen=True, slots=True)
class TranscriptFile:
    """One generation's file; `path` is that of its plain form, `size` that of the form that is there."""

    folder: Path
    name: str
    session: str
    generation: int
    size: int
    packed: bool = False

    @property
    def path(self) -> Path:
        """Made when asked for: most files are only counted."""
        return self.folder / self.name


def reconcile(files: Files, data_dir: Path, *, now: datetime, stamp: str) -> tuple[Index, StartReport]:
    """Loads the index, and finishes deletions. After anything but a clean stop, transcripts whose size differs from it
    are read.

    Blocking. Raises StorageError when the directory itself cannot be read.
    """
    index, index_report = Index.load(files, data_dir, stamp=stamp)
    if index_report.clean:
        buried = _finish_deletions(files, data_dir, index)
        return index, StartReport(
            index=index_report, clean=True, sessions=index.count(), finished_deletions=tuple(buried)
        )
    found = list_transcripts(files, data_dir)
    present = _one_form_each(files, index, found)
    newest, leftovers = _newest_generations(files, index, present)
    for path in found.unfinished:
        files.remove(path)
        leftovers.append(path.name)
    reread: list[str] = []
    deleted: list[str] = []
    unreadable = list(found.unnamed)
    for file in newest.values():
        record = None
        if file.packed:
            record = index.find(file.session)
            if record is not None and (record.state, record.generation) == ("archived", file.generation):
                continue
        elif index.covered(file.session) == (file.generation, file.size):
            continue
        record = record or index.find(file.session)
        try:
            payload = read_transcript(files, file.path)
        except StorageFailed as error:
            if not file.packed:
                raise
            log.warning("archive.damaged", file=file.name, error=str(error))
            unreadable.append(file.path.name)
            continue
        content = scan(payload)
        before = None if content.header is None or record else index.find(content.header.previous or "")
        rebuilt = _record(content, file, record, before, now, len(payload))
        if rebuilt is None:
            unreadable.append(file.path.name)
            continue
        if rebuilt.ended == "deleted" and _removed(files, file.path):
            index.remove(file.session)
            deleted.append(file.session)
            continue
        index.put(rebuilt)
        reread.append(file.session)
    deleted += _finish_deletions(files, data_dir, index)
    for name in unreadable:
        log.warning("transcript.unreadable", file=name)
    return index, StartReport(
        index=index_report,
        clean=False,
        sessions=index.count(),
        reread=tuple(reread),
        finished_deletions=tuple(deleted),
        leftovers=tuple(leftovers),
        unreadable=tuple(unreadable),
    )


@dataclass(frozen=True, slots=True)
class Found:
    """The transcript files of a data directory; `unfinished` ones were never whole, so nothing in them counted."""

    named: list[TranscriptFile]
    packed: list[TranscriptFile]
    unnamed: list[str]
    unfinished: list[Path]


def list_transcripts(files: Files, data_dir: Path) -> Found:
    """All transcript files by their names, and `.jsonl` files with another name. Raises StorageError."""
    root = data_dir / "transcripts"
    named: list[TranscriptFile] = []
    packed: list[TranscriptFile] = []
    unnamed: list[str] = []
    unfinished: list[Path] = []
    for folder in files.folders(root):
        for name, size in files.list_sizes(folder).items():
            match = _NAME.fullmatch(name)
            if match is not None:
                plain = name.removesuffix(SUFFIX)
                file = TranscriptFile(folder, plain, match["session"], int(match["generation"]), size, plain != name)
                (packed if file.packed else named).append(file)
            elif name.endswith(".jsonl"):
                unnamed.append(name)
            elif name.endswith(TEMPORARY):
                unfinished.append(folder / name)
    return Found(named, packed, unnamed, unfinished)


def _newest_generations(
    files: Files, index: Index, named: list[TranscriptFile]
) -> tuple[dict[str, TranscriptFile], list[str]]:
    """The file each session goes on in. A generation without pointer counts when the one before it says so; else it is
    a leftover of a compaction that was cut, and goes."""
    by_session: dict[str, list[TranscriptFile]] = {}
    for file in named:
        by_session.setdefault(file.session, []).append(file)
    newest: dict[str, TranscriptFile] = {}
    leftovers: list[str] = []
    for session, generations in by_session.items():
        if len(generations) == 1:
            newest[session] = generations[0]
            continue
        generations.sort(key=lambda file: file.generation)
        last, covered = generations[-1], index.covered(session)
        if covered is None or last.generation > covered[0]:
            before = generations[-2]
            if not last.packed and _is_leftover(files, before, last):
                files.remove(last.path)
                leftovers.append(last.path.name)
                last = before
        newest[session] = last
    return newest, leftovers


def _one_form_each(files: Files, index: Index, found: Found) -> list[TranscriptFile]:
    """Finishes what a clean-up or a restoring has begun: of each file one form stays.

    An archived session's plain file goes when it says the same as the packed one; else the plain one counts. Where the
    index does not know, a session is archived when its newest generation is.
    """
    plain = {(file.session, file.generation): file for file in found.named}
    present = dict(plain)
    newest = dict(sorted(plain))
    packed_newest = {file.session: file.generation for file in sorted(found.packed, key=lambda f: f.generation)}
    for file in found.packed:
        beside = plain.get((file.session, file.generation))
        if beside is None:
            present[file.session, file.generation] = file
            continue
        record = index.find(file.session)
        archived = record.state == "archived" if record else newest[file.session] < packed_newest[file.session]
        if archived and _same(files, file.path):
            files.remove(file.path)
            present[file.session, file.generation] = file
        else:
            files.remove(packed_path(file.path))
    return list(present.values())


def _same(files: Files, path: Path) -> bool:
    try:
        return unpacked(files, path) == files.read(path)
    except StorageFailed as error:
        log.warning("archive.damaged", file=path.name, error=str(error))
        return False


def clear_leftover(files: Files, path: Path, *, stamp: str) -> None:
    """Makes room for a generation where a commit that has failed may have left one. Should something have been said in
    it, its bytes go to `torn_path` first. Blocking. Raises StorageError."""
    if files.size(path) is None:
        return
    payload = files.read(path)
    if not _only_opens(payload):
        files.replace(torn_path(path, stamp), payload)
    log.warning("transcript.leftover", file=path.name)
    files.remove(path)


def _is_leftover(files: Files, before: TranscriptFile, last: TranscriptFile) -> bool:
    """Whether nobody was told of the last generation and nothing was said in it: so it is also without an index."""
    if before.generation != last.generation - 1 or _leads_to(files, before, last.generation):
        return False
    return _only_opens(files.read(last.path))


def _only_opens(payload: bytes) -> bool:
    return all(isinstance(entry, SummaryEntry | CarriedEntry) for entry in scan(payload).entries)


def _leads_to(files: Files, before: TranscriptFile, generation: int) -> bool:
    """Where something was said behind the line, its commit has failed, and the session has gone on in this file."""
    entries = scan(read_transcript(files, before.path)).entries
    last = entries[-1] if entries else None
    return isinstance(last, CompactionEntry) and last.generation == generation


def _record(
    content: Scan,
    file: TranscriptFile,
    known: SessionRecord | None,
    before: SessionRecord | None,
    now: datetime,
    size: int,
) -> SessionRecord | None:
    """The record of a transcript, going on from what the index knew of it; None when nothing tells its key. What a
    person has set for the chat is taken over from the session `before`."""
    base = known
    if base is None or base.generation != file.generation:
        if content.header is None:
            return None
        try:
            key = parse_key(content.header.key)
        except MalformedKey:
            return None
        header = content.header
        base = base or SessionRecord(
            session=file.session,
            key=header.key,
            agent=header.agent,
            type=key.type,
            channel=key.channel,
            owner=header.owner or _owner_told(key, content.entries),
            created_at=header.at,
            active_at=header.at,
            previous=header.previous,
            settings=SessionSettings() if before is None else before.settings,
        )
        base = dataclasses.replace(base, generation=file.generation)
    fresh = [e for e in (content.entries if known else uncarried(content.entries)) if e.seq > base.last_seq]
    record = tallied(base, fresh)
    ended = next((e.reason for e in reversed(content.entries) if isinstance(e, EndedEntry)), None)
    deleted = "deleted" if ended == "deleted" else record.ended
    return dataclasses.replace(
        record,
        size=size,
        state="archived" if file.packed else record.state,
        open_turns=len(open_turns(uncarried(content.entries))),
        ended=deleted,
        active_at=min(record.active_at, now),
    )


def _finish_deletions(files: Files, data_dir: Path, index: Index) -> list[str]:
    """Removes what is left of sessions with a tombstone; where the disk refuses, the next start tries again."""
    done: list[str] = []
    for session in index.with_tombstones():
        record = index.find(session)
        if record is not None and _removed(files, transcript_path(data_dir, record.agent, session, record.generation)):
            index.remove(session)
            done.append(session)
    return done


def _removed(files: Files, newest: Path) -> bool:
    try:
        remove_session(files, newest)
    except StorageError as error:
        log.warning("deletion.not_finished", file=newest.name, error=str(error))
        return False
    return True


def remove_session(files: Files, newest: Path) -> None:
    """Removes all files of a session, also those nothing points to. Its newest generation, which has the tombstone, is
    the last. The folder is not looked through: there may be a hundred thousand sessions in it.

    Blocking. Raises StorageError.
    """
    session, generation, _ = newest.name.split(".", 2)
    torn = newest.parent / TORN
    for name in files.names(torn, f"{session}."):
        files.remove(torn / name)
    for number in range(int(generation) + 1, 0, -1):
        path = newest.with_name(f"{session}.{number}.jsonl")
        for one in (path, packed_path(path), path.with_name(path.name + TEMPORARY)):
            if one != newest and files.size(one) is not None:
                files.remove(one)
    files.remove(newest)


def _owner_told(key: SessionKey, entries: Sequence[Entry]) -> str | None:
    """Whose an older transcript is, which does not say so itself: of a private chat, the first person who spoke."""
    if key.type in ("group", "channel"):
        return None
    return next((entry.user for entry in entries if isinstance(entry, UserEntry) and entry.user), None)
