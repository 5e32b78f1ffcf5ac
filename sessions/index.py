"""The index of all sessions: in memory at once, behind that on disk as a snapshot with a journal.

Records are kept as JSON bytes and decoded when asked for: 100,000 sessions cost less than a kilobyte each.
"""

from __future__ import annotations

import asyncio
import bisect
import dataclasses
import heapq
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

import orjson
from sortedcontainers import SortedList

from sessions.files import StorageFailed
from sessions.listing import cursor_of, fits, place_of, rank_of, sieve_of
from sessions.snapshot import (
    JOURNAL_HEAD,
    BrokenSnapshot,
    Change,
    Content,
    NewerSnapshot,
    at_ms,
    decode_row,
    encode_change,
    encode_row,
    encode_snapshot,
    head_of,
    last_changes,
    read_journal,
    read_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from sessions.files import Files
    from sessions.listing import PageQuery, Place
    from sessions.record import SessionRecord, SessionState
    from sessions.snapshot import Head

SNAPSHOT = "sessions.json"
JOURNAL = "sessions.journal.jsonl"
MIN_JOURNAL_BYTES = 1 << 20
SCAN_LIMIT = 20_000
STEP = 250
"""Records looked at in one go: a millisecond or two."""

T = TypeVar("T")
Page = tuple["list[SessionRecord]", "str | None"]
Looking = Generator[None, None, T]
"""Comes to its end in steps, between which others may have a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """What loading found. `records` 0 with transcripts on disk means the index is rebuilt from them.

    `clean`: the last daemon stopped in order, and nothing was touched since. `broken`: why there is no snapshot, and
    where it was put. `skipped`: records of an edited snapshot that cannot be.
    """

    records: int
    clean: bool
    edited: bool = False
    broken: str | None = None
    damaged_lines: int = 0
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """The index at one moment. `since` collects the journal lines that are written while it is on its way."""

    rows: dict[str, bytes]
    holders: tuple[str, ...]
    places: list[Place]
    number: int
    clean: bool
    since: list[bytes] = field(default_factory=list[bytes])

    def encode(self) -> bytes:
        """By age, so that loading finds the rows in the order it sorts them in."""
        holding = set(self.holders)
        return encode_snapshot(
            [self.rows[session] for _, session in self.places if session in holding],
            [self.rows[session] for _, session in self.places if session not in holding],
            number=self.number,
            count=len(self.rows),
            clean=self.clean,
        )


class Index:
    """Of the sessions of a key, one holds it: messages to the key go there. All others are former or archived.

    Looking and changing are for one thread; `flush` and `commit_snapshot` block, and may run in others meanwhile.
    """

    def __init__(self, files: Files, data_dir: Path) -> None:
        self._files = files
        self._snapshot_path = data_dir / SNAPSHOT
        self._journal_path = data_dir / JOURNAL
        self._rows: dict[str, bytes] = {}
        self._holder: dict[str, str] = {}
        self._others: dict[str, list[str]] = {}
        self._open: set[str] = set()
        self._lists: dict[SessionState, SortedList[Place]] = {
            "active": SortedList(),
            "former": SortedList(),
            "archived": SortedList(),
        }
        self._number = 0
        self._queue: dict[str, bytes] = {}
        self._queue_lock = Lock()
        self._journal_lock = Lock()
        self._snapshot_lock = Lock()
        self._pending: list[Snapshot] = []
        self._journal_size = 0
        self._journal_ends_open = False
        self._synced = True
        self._suspect = False
        self._snapshot_size = 0
        self._snapshot_number = 0
        self.holds_deleted = False
        """Whether the files may still name a session that was removed."""

    # --- looking --------------------------------------------------------------------------------------------------

    def find(self, session: str) -> SessionRecord | None:
        """The record of a session, whatever its state."""
        row = self._rows.get(session)
        return None if row is None else decode_row(row)

    def active(self, key: str) -> SessionRecord | None:
        """The session that holds the key."""
        session = self._holder.get(key)
        return None if session is None else self.find(session)

    def sessions_of(self, key: str, *, limit: int | None = None) -> list[SessionRecord]:
        """All sessions of a key: the one that holds it, then by age, newest first."""
        holder = self._holder.get(key)
        ids = ([holder] if holder else []) + self._others.get(key, [])[::-1]
        return [decode_row(self._rows[session]) for session in ids[:limit]]

    def with_open_turns(self) -> list[SessionRecord]:
        """Sessions in which a message waits for its reply."""
        return [decode_row(self._rows[session]) for session in sorted(self._open)]

    def going_on(self) -> list[str]:
        """Sessions that hold their key and have not ended; rows are looked at as bytes, as below."""
        return [session for session in self._holder.values() if b'"ended":' not in self._rows[session]]

    def with_tombstones(self) -> list[str]:
        """Sessions whose deletion has begun; rows are looked at as bytes, since there may be very many."""
        return [session for session, row in self._rows.items() if b'"ended":"deleted"' in row]

    def private_of_nobody(self) -> list[SessionRecord]:
        """Private chats without an owner; rows are looked at as bytes, since there may be very many."""
        return [
            decode_row(row) for row in list(self._rows.values()) if b'"owner":' not in row and b'"type":"direct"' in row
        ]

    def covered(self, session: str) -> tuple[int, int] | None:
        """(generation, bytes of its transcript) that the record of a session stands for; quicker than find."""
        row = self._rows.get(session)
        if row is None:
            return None
        fields = orjson.loads(row)
        return fields.get("generation", 1), fields.get("size", 0)

    @property
    def number(self) -> int:
        """Of the last change: equal numbers mean that nothing was changed in between."""
        return self._number

    def sessions(self) -> list[str]:
        """The ids of all sessions, in no order."""
        return list(self._rows)

    def oldest(self, state: SessionState, before: datetime | None = None) -> list[str]:
        """The sessions of a state, longest unused first; those last used before a time."""
        maximum = None if before is None else (at_ms(before), "")
        return [session for _, session in self._lists[state].irange(maximum=maximum)]

    def count(self, state: SessionState | None = None) -> int:
        return len(self._rows) if state is None else len(self._lists[state])

    def all(self) -> Iterator[SessionRecord]:
        """Every record, as of now, in no order."""
        for row in list(self._rows.values()):
            yield decode_row(row)

    def page(self, query: PageQuery) -> Page:
        """One page, and the cursor of the next. Looks at no more than SCAN_LIMIT records: a page of a rare filter may
        be short and still have a cursor. Raises BadCursor."""
        looking = self._page(query)
        while True:
            try:
                next(looking)
            except StopIteration as end:
                return end.value

    async def page_beside(self, query: PageQuery) -> Page:
        """The same page, while others go on: after every STEP records they have a turn. Raises BadCursor."""
        return await _beside(self._page(query))

    async def used_since(self, query: PageQuery, since: datetime) -> int:
        """How many sessions that fit were used since a time; SCAN_LIMIT at most where they are looked at one by one."""
        places, start = self._lists[query.state], (at_ms(since), "")
        if query.allowed is None:
            return len(places) - places.bisect_left(start)
        return len(await _beside(self._looked(query, lambda session, _: session, start)))

    async def fitting(self, query: PageQuery, wanted: Callable[[bytes], bool]) -> list[SessionRecord]:
        """Those that fit, and whose row is wanted, among the SCAN_LIMIT used last; the last used first."""
        return await _beside(self._looked(query, lambda _, row: decode_row(row) if wanted(row) else None))

    def _page(self, query: PageQuery) -> Looking[Page]:
        return self._by_use(query) if query.by_use else self._ranked(query)

    def _by_use(self, query: PageQuery) -> Looking[Page]:
        passes, after = sieve_of(query), place_of(query)
        found: list[SessionRecord] = []
        looked, last = 0, None
        while True:
            part = list(islice(self._walk(query, after), STEP))
            for place in part:
                if last is not None and (len(found) >= query.limit or looked >= SCAN_LIMIT):
                    return found, cursor_of(last, query.sort)
                last = after = place
                looked += 1
                row = self._rows[place[1]]
                if passes(row) and fits(row, query):
                    found.append(decode_row(row))
            if len(part) < STEP:
                return found, None
            yield

    def _walk(self, query: PageQuery, after: Place | None) -> Iterator[Place]:
        places = self._lists[query.state]
        if query.sort == "idle":
            return places.irange(minimum=after, inclusive=(False, True))
        return places.irange(maximum=after, inclusive=(True, False), reverse=True)

    def _ranked(self, query: PageQuery) -> Looking[Page]:
        """A page of an order the index does not keep: found among the SCAN_LIMIT sessions used last."""
        before = place_of(query)

        def taken(session: str, row: bytes) -> Place | None:
            place = rank_of(row, query.sort), session
            return place if before is None or place < before else None

        places = yield from self._looked(query, taken)
        shown = heapq.nlargest(query.limit, places)
        cursor = cursor_of(shown[-1], query.sort) if len(places) > len(shown) else None
        return [decode_row(self._rows[session]) for _, session in shown if session in self._rows], cursor

    def _looked(
        self, query: PageQuery, taken: Callable[[str, bytes], T | None], since: Place | None = None
    ) -> Looking[list[T]]:
        """What is taken of those that fit among the SCAN_LIMIT used last. They may change or go meanwhile."""
        passes = sieve_of(query)
        found: list[T] = []
        places = list(islice(self._lists[query.state].irange(minimum=since, reverse=True), SCAN_LIMIT))
        for looked, (_, session) in enumerate(places, 1):
            row = self._rows.get(session)
            if row is not None and passes(row) and fits(row, query) and (one := taken(session, row)) is not None:
                found.append(one)
            if looked % STEP == 0:
                yield
        return found

    # --- changing -------------------------------------------------------------------------------------------------

    def put(self, record: SessionRecord) -> SessionRecord:
        """Takes over a record, and returns it as it is kept.

        Where two sessions want one key, the one that is not archived, has not ended, and is newer gets it, in this
        order; an active one that does not becomes former. So a reply that ends in a session somebody has just left
        does not bring it back.
        """
        record, holds = self._contest(record)
        self._change(record, holds=holds)
        return record

    def remove(self, session: str) -> None:
        """Forgets a session; the newest former one of its key does not take its place."""
        row = self._rows.get(session)
        if row is None:
            return
        self._forget(session, head_of(row))
        self._number += 1
        self._enqueue(Change(self._number, session, None))
        self.holds_deleted = True

    def _contest(self, record: SessionRecord) -> tuple[SessionRecord, bool]:
        """The record as it is to be kept, and whether it holds its key; who held it before is told."""
        holder = self._holder.get(record.key)
        if record.state == "former":
            return record, False
        if holder is None or holder == record.session:
            return record, True
        other = decode_row(self._rows[holder])
        if _rank(record) < _rank(other):
            return _loser(record), False
        self._change(_loser(other), holds=False)
        return record, True

    def _change(self, record: SessionRecord, *, holds: bool) -> None:
        row = encode_row(record)
        place = (at_ms(record.active_at), record.session)
        self._enter(row, place, record.state, record.key, holds=holds, open_turns=record.open_turns > 0)
        self._number += 1
        self._enqueue(Change(self._number, record.session, row, holds))

    def _enter(self, row: bytes, place: Place, state: SessionState, key: str, *, holds: bool, open_turns: bool) -> None:
        session = place[1]
        known = self._rows.get(session)
        if known is None:
            self._lists[state].add(place)
        else:
            head = head_of(known)
            if (head.at_ms, head.state) != (place[0], state):
                self._lists[head.state].remove((head.at_ms, session))
                self._lists[state].add(place)
            if head.key != key:
                self._unlink(session, head.key)
        self._rows[session] = row
        self._link(session, key, holds=holds)
        if open_turns:
            self._open.add(session)
        else:
            self._open.discard(session)

    def _link(self, session: str, key: str, *, holds: bool) -> None:
        if holds == (self._holder.get(key) == session) and (holds or session in self._others.get(key, ())):
            return
        self._unlink(session, key)
        if holds:
            self._holder[key] = session
        else:
            bisect.insort(self._others.setdefault(key, []), session)

    def _unlink(self, session: str, key: str) -> None:
        if self._holder.get(key) == session:
            del self._holder[key]
        others = self._others.get(key)
        if others is not None and session in others:
            others.remove(session)
            if not others:
                del self._others[key]

    def _forget(self, session: str, head: Head) -> None:
        del self._rows[session]
        self._lists[head.state].remove((head.at_ms, session))
        self._open.discard(session)
        self._unlink(session, head.key)

    # --- the journal ----------------------------------------------------------------------------------------------

    def _enqueue(self, change: Change) -> None:
        line = encode_change(change)
        with self._queue_lock:
            self._queue.pop(change.session, None)
            self._queue[change.session] = line

    def flush(self, *, sync: bool = False) -> None:
        """Blocking: writes queued changes to the journal. They stay queued when that fails (StorageError)."""
        with self._journal_lock:
            with self._queue_lock:
                queued, self._queue = self._queue, {}
            if not queued and (self._synced or not sync):
                return
            try:
                self._append(b"".join(queued.values()), sync=sync)
            except BaseException:
                self._suspect = True
                with self._queue_lock:
                    self._queue = {**{s: line for s, line in queued.items() if s not in self._queue}, **self._queue}
                raise
            self._synced = sync
            for snapshot in self._pending:
                snapshot.since.extend(queued.values())

    def _append(self, lines: bytes, *, sync: bool) -> None:
        if self._suspect:
            self._mend_journal()
        payload = b"\n" + lines if self._journal_ends_open else lines
        self._journal_size = self._files.append(
            self._journal_path, payload, expected_size=self._journal_size, sync=sync
        )
        self._journal_ends_open = False

    def _mend_journal(self) -> None:
        """After a failure: what lies beyond the acknowledged bytes is cut. A new snapshot follows soon in any case,
        because a failed sync says nothing of the lines before it either."""
        size = self._files.size(self._journal_path)
        if size is None:
            self._files.create(self._journal_path, JOURNAL_HEAD, sync=True)
            self._journal_size = len(JOURNAL_HEAD)
        elif size > self._journal_size:
            self._files.truncate(self._journal_path, self._journal_size)
        elif size < self._journal_size:
            self._journal_size, self._journal_ends_open = size, size > 0

    # --- the snapshot ---------------------------------------------------------------------------------------------

    @property
    def needs_snapshot(self) -> bool:
        """The journal has grown to the snapshot's size, or cannot be relied on."""
        return self._suspect or self._journal_size >= max(MIN_JOURNAL_BYTES, self._snapshot_size)

    def prepare_snapshot(self, *, clean: bool) -> Snapshot:
        """A copy for commit_snapshot, which may run in a thread while changes go on. `clean`: nothing more is to come,
        the next start may trust it."""
        snapshot = Snapshot(
            rows=self._rows.copy(),
            holders=tuple(self._holder.values()),
            places=[place for places in self._lists.values() for place in places],
            number=self._number,
            clean=clean,
        )
        with self._journal_lock:
            self._pending.append(snapshot)
        self.holds_deleted = False
        return snapshot

    def commit_snapshot(self, snapshot: Snapshot) -> None:
        """Blocking: writes the snapshot, then starts the journal anew with what was written to it since; without one
        when the snapshot is clean. One that comes after a newer one is in that already. Raises StorageError; then the
        old ones count, or the new ones do."""
        try:
            with self._snapshot_lock:
                if snapshot.number < self._snapshot_number:
                    return
                payload = snapshot.encode()
                self._files.replace(self._snapshot_path, payload)
                self._snapshot_number = snapshot.number
                with self._journal_lock:
                    self._restart_journal(snapshot)
                self._snapshot_size = len(payload)
        finally:
            with self._journal_lock:
                self._pending.remove(snapshot)

    def _restart_journal(self, snapshot: Snapshot) -> None:
        with self._queue_lock:
            all_written = not self._queue or self._number == snapshot.number
        if snapshot.clean and all_written and not snapshot.since:
            self._files.remove(self._journal_path)
            self._journal_size = 0
        else:
            journal = b"".join((JOURNAL_HEAD, *snapshot.since))
            self._files.replace(self._journal_path, journal)
            self._journal_size = len(journal)
        self._journal_ends_open, self._synced, self._suspect = False, True, False

    # --- loading --------------------------------------------------------------------------------------------------

    @staticmethod
    def load(files: Files, data_dir: Path, *, stamp: str) -> tuple[Index, IndexReport]:
        """Snapshot and journal. A broken snapshot is set aside as `sessions.json.broken-<stamp>`. Blocking.

        From here on there is a journal, which is the mark of a daemon that has not stopped in order. Raises
        StorageError.
        """
        index = Index(files, data_dir)
        files.make_folder(data_dir)
        content, broken = index._load_snapshot(stamp)
        journal = files.read(index._journal_path) if files.size(index._journal_path) is not None else None
        changes, damaged = read_journal(journal or b"", content.number)
        index._fill(content, last_changes(changes))
        index._number = max([content.number, *(change.number for change in changes)])
        if journal is None:
            files.create(index._journal_path, JOURNAL_HEAD, sync=True)
        index._journal_size = len(JOURNAL_HEAD if journal is None else journal)
        index._journal_ends_open = bool(journal) and not journal.endswith(b"\n")
        report = IndexReport(
            records=len(index._rows),
            clean=content.clean and journal is None,
            edited=content.edited,
            broken=broken,
            damaged_lines=damaged,
            skipped=content.skipped,
        )
        return index, report

    def _load_snapshot(self, stamp: str) -> tuple[Content, str | None]:
        empty = Content(rows={}, holding=set(), number=0, clean=False, edited=False)
        size = self._files.size(self._snapshot_path)
        if not size:
            return empty, None if size is None else f"{SNAPSHOT} was empty"
        payload = self._files.read(self._snapshot_path)
        try:
            content = read_snapshot(payload)
        except NewerSnapshot as error:
            raise StorageFailed(f"{SNAPSHOT} was written by a newer sessiond ({error}). Update this one.") from error
        except BrokenSnapshot as error:
            aside = self._snapshot_path.with_name(f"{SNAPSHOT}.broken-{stamp}")
            self._files.replace(aside, payload)
            self._files.remove(self._snapshot_path)
            return empty, f"{aside.name}: {error}"
        self._snapshot_size = len(payload)
        return content, None

    def _fill(self, content: Content, changes: list[Change]) -> None:
        rows, holding = content.rows, content.holding
        for change in changes:
            (holding.add if change.holds else holding.discard)(change.session)
            if change.row is None:
                rows.pop(change.session, None)
            else:
                rows[change.session] = change.row
        places: dict[SessionState, list[Place]] = {"active": [], "former": [], "archived": []}
        disputed: list[str] = []
        for session, row in rows.items():
            head = head_of(row)
            places[head.state].append((head.at_ms, session))
            if session in holding and self._holder.setdefault(head.key, session) == session:
                pass
            else:
                self._others.setdefault(head.key, []).append(session)
                if head.state == "active":
                    disputed.append(session)
            if b'"open_turns":' in row:
                self._open.add(session)
        for others in self._others.values():
            others.sort()
        self._rows = rows
        self._lists = {state: SortedList(found) for state, found in places.items()}
        for session in disputed:
            self.put(decode_row(rows[session]))


def _rank(record: SessionRecord) -> tuple[bool, bool, str]:
    """Ids are ULIDs: the later one is the newer one."""
    return record.state == "active", record.ended is None, record.session


def _loser(record: SessionRecord) -> SessionRecord:
    return dataclasses.replace(record, state="former") if record.state == "active" else record


async def _beside(looking: Looking[T]) -> T:
    while True:
        try:
            next(looking)
        except StopIteration as end:
            return end.value
        await asyncio.sleep(0)
