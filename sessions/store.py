"""The store: from a session key to its session, and every append to a transcript."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import structlog

from sessions.blobs import Blobs
from sessions.cache import SessionCache
from sessions.context import uncarried
from sessions.entries import (
    EPOCH,
    CompactionEntry,
    EndedEntry,
    EndReason,
    Entry,
    ResumedEntry,
    session_of_turn,
    turn_id,
)
from sessions.files import StorageError
from sessions.generations import Generations, attached
from sessions.index_writer import IndexWriter
from sessions.keys import MalformedKey, parse_key, person_of
from sessions.packing import pack_beside, remove_packed, remove_plain, unpack_beside
from sessions.record import SessionRecord, SessionSettings
from sessions.recovery import StartReport, clear_leftover, reconcile, remove_session
from sessions.session import Request, Session, SessionGone
from sessions.tally import tallied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from datetime import datetime
    from pathlib import Path

    from sessions.files import Files
    from sessions.index import Index
    from sessions.keys import SessionKey
    from sessions.policy import SessionsPolicy
    from sessions.transcript import Transcript

WRITERS = 32
FORMER_REQUESTS_BYTES = 16 * 1024 * 1024  # how far back a request id is looked for after a restart

log = structlog.get_logger()

T = TypeVar("T")


class StoreClock(Protocol):
    """What the store needs of time and chance."""

    def now(self) -> datetime: ...
    def new_id(self) -> str: ...
    def sleep(self, seconds: float) -> Awaitable[None]: ...


class SessionStore:
    """All sessions of one data directory. One object in one process: the daemon's lock sees to that."""

    def __init__(
        self, data_dir: Path, policy: SessionsPolicy, files: Files, clock: StoreClock, blobs: Blobs | None = None
    ) -> None:
        self._data_dir = data_dir
        self._policy = policy
        self._files = files
        self._clock = clock
        self._blobs = blobs or Blobs(files, data_dir)
        self._sync = policy.durability == "fsync"
        self._generations = Generations(files, data_dir, sync=self._sync)
        self._threads = ThreadPoolExecutor(WRITERS, thread_name_prefix="transcript")
        self._index: Index
        self._writer: IndexWriter
        self._live: WeakValueDictionary[str, Session] = WeakValueDictionary()
        self._kept = SessionCache(policy.cache_bytes)
        self._fresh: dict[str, Session] = {}
        self._opening: dict[str, asyncio.Future[Session]] = {}
        self._writes: set[asyncio.Task[Any]] = set()
        self.changed: list[Callable[[str], None]] = []
        """Told the id of every session whose transcript has grown, moved on or gone; they must not wait."""
        self.after_append: list[Callable[[Session, Sequence[Entry]], None]] = []

    # --- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> StartReport:
        """Loads the index, and reads what transcripts hold beyond it. Raises StorageError."""
        self._index, report = await self._in_thread(
            lambda: reconcile(self._files, self._data_dir, now=self._clock.now(), stamp=self._clock.new_id())
        )
        self._writer = IndexWriter(self._index, self._in_thread, self._clock.sleep, sync=self._sync)
        for session in report.finished_deletions:
            await self._in_thread(lambda session=session: self._blobs.release_all(session))
        given = self._give_private_chats()
        if report.changed or given:
            self._writer.soon()
        return report

    def _give_private_chats(self) -> int:
        """Private chats that a job opened before a person spoke belonged to nobody: they are that person's."""
        given = 0
        for record in self._index.private_of_nobody():
            with contextlib.suppress(MalformedKey):
                owner = person_of(parse_key(record.key), self._policy.identities)
                self._index.put(dataclasses.replace(record, owner=owner))
                self._tell(record.session)
                given += 1
        if given:
            log.info("store.private_chats_given", sessions=given)
        return given

    async def run(self) -> None:
        """Writes index changes behind the replies."""
        await self._writer.run()

    def clear_deleted(self) -> None:
        """Sees to it that the index on disk names no deleted session: to be called now and then."""
        self._writer.clear_deleted()

    async def stop(self) -> None:
        """Waits for running writes, then leaves a snapshot that the next start can trust."""
        if self._writes:
            index = asyncio.ensure_future(self.run())  # what moves to the archive waits for it
            await asyncio.wait(self._writes)
            index.cancel()
            await asyncio.wait({index})
        await self._writer.close()
        self._threads.shutdown()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    # --- looking --------------------------------------------------------------------------------------------------

    @property
    def index(self) -> Index:
        """For listing; changes go through this store."""
        return self._index

    def find(self, key: SessionKey) -> SessionRecord | None:
        """The record of the key's active session; nothing is read from disk."""
        fresh = self._fresh.get(str(key))
        return fresh.record if fresh else self._index.active(str(key))

    async def open(self, session_id: str) -> Session:
        """A session by id, read from disk once. Raises SessionGone and StorageError."""
        live = self._live.get(session_id)
        if live is not None:
            self._kept.keep(live)
            return live
        opening = self._opening.get(session_id)
        if opening is None:
            record = self._index.find(session_id)
            if record is None:
                raise SessionGone(session_id)
            opening = asyncio.ensure_future(self._read(record))
            self._opening[session_id] = opening
            opening.add_done_callback(lambda _: self._opening.pop(session_id, None))
        return await asyncio.shield(opening)

    async def active(self, key: SessionKey, *, owner: str | None = None) -> Session:
        """The key's active session; a new one, not yet on disk, when there is none or it has ended."""
        text = str(key)
        fresh = self._fresh.get(text)
        if fresh is not None:
            return fresh
        record = self._index.active(text)
        if record is not None and record.ended is None:
            return await self.open(record.session)
        return self._fresh.setdefault(text, self._new(key, record, owner))

    def damaged(self) -> list[SessionRecord]:
        """Sessions in memory whose transcript holds lines that cannot be read."""
        return [session.record for session in self._kept if session.problems]

    def sessions_of(self, key: SessionKey) -> list[SessionRecord]:
        """All sessions of a key that are on disk, newest first."""
        return self._index.sessions_of(str(key))

    def goes_on(self, session_id: str) -> bool:
        """Whether a session is there, has not ended, and is not in the archive."""
        record = self._index.find(session_id)
        return record is not None and record.ended is None and record.state == "active"

    def former(self, key: SessionKey) -> SessionRecord | None:
        """The session of the key before its active one."""
        known = self._index.sessions_of(str(key), limit=2)
        skip = 0 if str(key) in self._fresh else 1
        return known[skip] if len(known) > skip else None

    def succeed(self, session: Session) -> Session:
        """A new session for the key of one that has turns to finish; from now on it is the active one."""
        following = self._new(session.key, session.record, session.record.owner)
        self._fresh[session.record.key] = following
        return following

    def forget_unused(self, key: SessionKey, before: SessionRecord | None) -> None:
        """Lets go of a new session that nothing was written in; not of what the key had `before`."""
        fresh = self._fresh.get(str(key))
        if fresh is not None and not fresh.record.entries and (before is None or before.session != fresh.id):
            del self._fresh[str(key)]

    async def request(self, session: Session, request_id: str) -> Request | None:
        """What a request id has opened, in this session or the one before it."""
        found = await self._request_in(session, request_id)
        if found is not None:
            return found
        former = self.former(session.key)
        if former is None or former.session == session.id:
            return None
        return await self._request_in(await self.open(former.session), request_id)

    async def _request_in(self, session: Session, request_id: str) -> Request | None:
        """Also from generations before the one that was read at open: they are read once, the newest first."""
        if request_id not in session.requests and not session.requests_whole:
            record = session.record
            former = await self._in_thread(lambda: self._generations.former(record, limit_bytes=FORMER_REQUESTS_BYTES))
            session.know_requests(former)
        return session.requests.get(request_id)

    def _new(self, key: SessionKey, previous: SessionRecord | None, owner: str | None) -> Session:
        now = self._clock.now()
        record = SessionRecord(
            session=self._clock.new_id(),
            key=str(key),
            agent=key.agent,
            type=key.type,
            channel=key.channel,
            created_at=now,
            active_at=now,
            owner=(previous.owner if previous else owner) or person_of(key, self._policy.identities),
            settings=previous.settings if previous else SessionSettings(),
            previous=previous.session if previous else None,
        )
        return Session(record, self._generations.create(record), ())

    async def _read(self, record: SessionRecord) -> Session:
        stamp = self._clock.new_id()
        transcript, scan = await self._in_thread(lambda: self._generations.open(record, stamp))
        for problem in scan.problems:
            log.warning(
                "transcript.problem", session=record.session, kind=problem.kind, offset=problem.offset, seq=problem.seq
            )
        if scan.entries and scan.entries[-1].seq > record.last_seq:
            record = tallied(record, [e for e in scan.entries if e.seq > record.last_seq])
        session = Session(record, transcript, scan.entries)
        session.problems = scan.problems
        self._live[session.id] = session
        self._kept.keep(session)
        return session

    # --- writing --------------------------------------------------------------------------------------------------

    async def append(
        self,
        session: Session,
        *drafts: Entry,
        opens_turn: bool = False,
        change: Callable[[SessionRecord], SessionRecord] | None = None,
        only_if: Callable[[], bool] | None = None,
    ) -> list[Entry]:
        """Writes drafts at the end of the session, synced, and returns them stamped.

        `opens_turn`: they belong to a turn of their own, named after the first one's seq. `change` is applied to the
        index record together with them. `only_if` is asked when what is being written has come to its end; if it says
        no, nothing is written. Once begun it is carried through, also when the caller is cancelled.
        Raises StorageError (nothing was written) and SessionGone.
        """
        return await self._whole(self._append(session, drafts, opens_turn, change, only_if))

    async def _append(
        self,
        session: Session,
        drafts: Sequence[Entry],
        opens_turn: bool,
        change: Callable[[SessionRecord], SessionRecord] | None,
        only_if: Callable[[], bool] | None,
    ) -> list[Entry]:
        async with session.lock:
            if session.deleted:
                raise SessionGone(session.id)
            if only_if is not None and not only_if():
                return []
            if session.record.state == "archived":
                await self._unarchive(session)
            entries = self._stamped(session, drafts, opens_turn)
            await self._in_thread(lambda: self._write(session, entries))
            record = tallied(session.record, entries)
            session.committed(entries, record if change is None else change(record))
            self._enter(session)
            for hook in self.after_append:
                hook(session, entries)
            return entries

    def _write(self, session: Session, entries: Sequence[Entry]) -> None:
        fresh = [sha256 for sha256 in attached(entries) if self._blobs.refer(sha256, session.id)]
        try:
            session.transcript.append(entries)
        except StorageError:
            with contextlib.suppress(StorageError):  # the disk may take nothing at all now
                for sha256 in fresh:
                    self._blobs.release(sha256, session.id)
            raise

    def _stamped(self, session: Session, drafts: Sequence[Entry], opens_turn: bool) -> list[Entry]:
        last_seq = session.record.last_seq
        return self._stamped_after(last_seq, drafts, turn_id(session.id, last_seq + 1) if opens_turn else None)

    def _stamped_after(self, last_seq: int, drafts: Sequence[Entry], opened: str | None = None) -> list[Entry]:
        now = self._clock.now()
        return [
            draft.stamped(
                seq=seq,
                id=self._clock.new_id(),
                at=now if draft.at == EPOCH else draft.at,
                turn=opened if draft.turn is None else draft.turn,
            )
            for seq, draft in enumerate(drafts, last_seq + 1)
        ]

    def _enter(self, session: Session) -> None:
        if self._fresh.get(session.record.key) is session:
            del self._fresh[session.record.key]
        self._live[session.id] = session
        self._kept.keep(session)
        self._index.put(session.record)
        self._writer.soon()
        self._tell(session.id)

    def _tell(self, session_id: str) -> None:
        for told in self.changed:
            told(session_id)

    async def update(self, session: Session, change: Callable[[SessionRecord], SessionRecord]) -> None:
        """Changes what only the index knows (settings, title, flags); on disk when this returns."""
        async with session.lock:
            if session.deleted:
                raise SessionGone(session.id)
            session.record = change(session.record)
            if self._fresh.get(session.record.key) is session:
                return
            self._index.put(session.record)
            await self._writer.written()

    async def move_generation(
        self,
        session: Session,
        build: Callable[[Sequence[Entry]], Sequence[Entry] | None],
        *,
        anchor: int,
        replay_from: int,
        change: Callable[[SessionRecord], SessionRecord],
    ) -> bool:
        """Lets a session go on in a new file that opens with what `build` makes of its entries; compare-and-set.

        `build` gets the entries as they are now and answers None when they are not what it expected: then nothing
        happens, and this returns False. The old file says where the session goes on, and stays. Once begun it is
        carried through, also when the caller is cancelled. Raises StorageError; then the session goes on as it was.
        """
        return await self._whole(self._move_generation(session, build, anchor, replay_from, change))

    async def _move_generation(
        self,
        session: Session,
        build: Callable[[Sequence[Entry]], Sequence[Entry] | None],
        anchor: int,
        replay_from: int,
        change: Callable[[SessionRecord], SessionRecord],
    ) -> bool:
        async with session.lock:
            if session.deleted:
                raise SessionGone(session.id)
            if session.record.state == "archived":
                await self._unarchive(session)
            drafts = build(session.entries)
            if drafts is None:
                return False
            old = session.record
            generation = old.generation + 1
            outcome = CompactionEntry(generation=generation, anchor=anchor, replay_from=replay_from)
            (last,) = self._stamped(session, [outcome], False)
            following = dataclasses.replace(old, generation=generation, last_seq=last.seq, previous=f"{old.generation}")
            opening = self._stamped_after(last.seq, drafts)
            transcript = self._generations.create(following)
            await self._in_thread(lambda: self._lead_on(session.transcript, last, transcript, opening))
            record = change(tallied(following, opening))
            session.moved(opening, dataclasses.replace(record, entries=old.entries + 1), transcript)
            self._index.put(session.record)
            self._tell(session.id)
            with contextlib.suppress(StorageError):  # the transcripts say it too, and the index is written later
                await self._writer.written()
            for hook in self.after_append:
                hook(session, [last])
            return True

    def _lead_on(self, old: Transcript, last: Entry, new: Transcript, opening: Sequence[Entry]) -> None:
        """The new file is whole before the old one leads to it, and goes again where that cannot be written.

        A line whose sync has failed may be on disk all the same. It leads nowhere then: it is cut before the next
        append, and after a crash the old file is the newest.
        """
        clear_leftover(self._files, new.path, stamp=last.id)
        new.append(opening)
        try:
            old.append([last])
        except StorageError:
            with contextlib.suppress(StorageError):  # the next attempt looks for it
                self._files.remove(new.path)
            raise

    async def end(self, session: Session, reason: EndReason, *, key: SessionKey | None = None) -> Session:
        """Ends a session and returns the next one of its key, not yet on disk. A session nobody used just goes on.

        `key`: the same key with another agent, for the next session.
        """
        if session.record.entries == 0:
            return session
        if not session.ended:
            await self.append(session, EndedEntry(reason=reason), only_if=lambda: not session.ended)
        return await self.active(key or session.key)

    async def close(self, session: Session, reason: EndReason) -> None:
        """Ends a session that nobody is writing in; the next one of its key begins with the next message."""
        if session.record.entries and not session.ended:
            await self.append(session, EndedEntry(reason=reason), only_if=lambda: not session.ended)
            self._kept.drop(session.id)

    async def resume(self, current: Session | None, former_id: str) -> Session:
        """Makes a former session the active one of its key again; the current one ends."""
        former = await self.open(former_id)
        if current is not None and current.record.entries and not current.ended:
            await self.append(current, EndedEntry(reason="resume"))
        self._fresh.pop(former.record.key, None)
        await self.append(former, ResumedEntry(), change=lambda r: dataclasses.replace(r, state="active"))
        return former

    async def delete(self, session_id: str) -> None:
        """Removes a session for good. The tombstone comes first: what is cut half-way is finished at the next start.

        Once begun it is carried through, also when the caller is cancelled. Raises SessionGone and StorageError.
        """
        await self._whole(self._delete(await self.open(session_id)))

    async def _delete(self, session: Session) -> None:
        if session.record.state == "archived":
            await self._bury(session)
        elif session.record.ended != "deleted":
            await self.append(session, EndedEntry(reason="deleted"))
        await self._writer.written()
        async with session.lock:
            session.deleted = True
            await self._in_thread(lambda: self._remove_files(session))
            self._index.remove(session.id)
            self._tell(session.id)
            fresh = self._fresh.get(session.record.key)
            if fresh is not None and fresh.record.previous == session.id:
                del self._fresh[session.record.key]
            await self._writer.written()
        self._live.pop(session.id, None)
        self._kept.drop(session.id)

    def _remove_files(self, session: Session) -> None:
        record = session.record
        for sha256 in attached(session.entries) | self._generations.attached_before(record):
            self._blobs.release(sha256, record.session)
        remove_session(self._files, self._generations.paths(record)[-1])

    # --- the archive ----------------------------------------------------------------------------------------------

    async def archive(self, session_id: str) -> bool:
        """Packs a session's transcripts and takes it out of the list; False when a turn is open in it, or it is there.

        The plain files go last, once the packed ones are checked and the index knows of them on disk. Once begun it is
        carried through. Raises StorageError (then it is as before, or finished at the next start) and SessionGone.
        """
        return await self._whole(self._archive(await self.open(session_id)))

    async def restore(self, session_id: str) -> SessionRecord:
        """Takes a session out of the archive. Raises StorageError and SessionGone."""
        session = await self.open(session_id)
        await self._whole(self._restore(session))
        return session.record

    async def _whole(self, work: Coroutine[Any, Any, T]) -> T:
        """Carried through, also when the caller is cancelled or the daemon stops."""
        task = asyncio.ensure_future(work)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return await asyncio.shield(task)

    async def _archive(self, session: Session) -> bool:
        async with session.lock:
            if session.deleted:
                raise SessionGone(session.id)
            record = session.record
            paths = self._generations.paths(record)
            if session.open or self._index.find(session.id) is None:
                return False
            await self._in_thread(lambda: pack_beside(self._files, paths))
            if record.state != "archived":
                session.record = self._index.put(dataclasses.replace(record, state="archived"))
                await self._writer.written()
            await self._in_thread(lambda: remove_plain(self._files, paths))
            return True

    async def _restore(self, session: Session) -> None:
        async with session.lock:
            if session.deleted:
                raise SessionGone(session.id)
            if session.record.state == "archived":
                await self._unarchive(session)

    async def _unarchive(self, session: Session) -> None:
        """In the session's lock: what is said in an archived session takes it out of the archive first."""
        record = session.record
        paths = self._generations.paths(record)
        await self._in_thread(lambda: unpack_beside(self._files, paths))
        restored = dataclasses.replace(record, state="active", resumed_at=self._clock.now())
        session.record = self._index.put(restored)
        await self._writer.written()
        await self._in_thread(lambda: remove_packed(self._files, paths))
        stamp = self._clock.new_id()
        session.transcript, _ = await self._in_thread(lambda: self._generations.open(record, stamp))

    async def _bury(self, session: Session) -> None:
        """The tombstone of an archived session is a plain file of its own, which counts before the packed one."""
        async with session.lock:
            if session.record.ended == "deleted":
                return
            entries = self._stamped(session, [EndedEntry(reason="deleted")], False)
            tombstone = self._generations.create(session.record)
            if await self._in_thread(lambda: self._files.size(tombstone.path)) is not None:
                tombstone = session.transcript
            await self._in_thread(lambda: tombstone.append(entries))
            session.record = self._index.put(tallied(session.record, entries))
            for hook in self.after_append:
                hook(session, entries)

    # --- finding --------------------------------------------------------------------------------------------------

    async def session_of(self, turn: str) -> Session | None:
        """The session a turn belongs to; None when there is no such session."""
        parts = session_of_turn(turn)
        if parts is None:
            return None
        fresh_or_live = self._live.get(parts[0])
        if fresh_or_live is not None:
            return fresh_or_live
        try:
            return await self.open(parts[0])
        except SessionGone:
            return None

    async def everything(self, session: Session) -> list[Entry]:
        """All entries of all generations by seq, each once. Reads the files of the earlier ones."""
        if session.record.generation == 1:
            return list(session.entries)
        former = await self._in_thread(lambda: self._generations.former(session.record))
        return [entry for _, entry in sorted({e.seq: e for e in (*session.entries, *former)}.items())]

    async def peek(self, session_id: str, *, former: bool) -> list[Entry]:
        """A session's entries, with those of the generations before if `former`, without keeping it in memory.

        Raises SessionGone and StorageError.
        """
        record = self._index.find(session_id)
        if record is None:
            raise SessionGone(session_id)
        current = await self._in_thread(lambda: self._generations.current(record))
        earlier = await self._in_thread(lambda: self._generations.former(record)) if former else []
        return [*earlier, *uncarried(current)]

    def with_open_turns(self) -> list[SessionRecord]:
        """Sessions in which a message still waits for its reply, after a crash or a stop."""
        return self._index.with_open_turns()
