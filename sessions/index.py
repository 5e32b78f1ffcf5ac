"""The index of all sessions: a snapshot, and a journal of what changed since.

Records are kept as JSON bytes and decoded when asked for: 100,000 sessions cost about a kilobyte each.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import orjson
from sortedcontainers import SortedList

from sessions.entries import DamagedEntry
from sessions.lines import decode_line, encode_line
from sessions.record import SessionRecord, record_from_json, record_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from sessions.entries import JsonObject
    from sessions.files import Files

FORMAT = 1
SNAPSHOT = "sessions.json"
JOURNAL = "sessions.journal.jsonl"
MIN_JOURNAL_BYTES = 1 << 20
SCAN_LIMIT = 20_000

Place = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """What loading found. `records` 0 with transcripts on disk means the index is rebuilt from them."""

    records: int
    clean: bool
    edited: bool = False
    broken: str | None = None
    damaged_lines: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """Which sessions a list shows, newest activity first. `allowed` gets a record's key and owner."""

    limit: int = 50
    cursor: str | None = None
    state: str = "active"
    agent: str | None = None
    channel: str | None = None
    type: str | None = None
    search: str | None = None
    allowed: Callable[[str, str | None], bool] | None = None


class BadCursor(ValueError):
    """A cursor that no list has given out."""


class Index:
    """In memory at once; `flush` and the snapshot bring it to disk behind that."""

    def __init__(self, files: Files, data_dir: Path) -> None:
        self._files = files
        self._snapshot_path = data_dir / SNAPSHOT
        self._journal_path = data_dir / JOURNAL
        self._raw: dict[str, bytes] = {}
        self._active: dict[str, str] = {}
        self._former: dict[str, tuple[str, ...]] = {}
        self._open: set[str] = set()
        self._lists: dict[str, SortedList[Place]] = {state: SortedList() for state in ("active", "former", "archived")}
        self._places: dict[str, tuple[str, Place]] = {}
        self._queued: list[bytes] = []
        self._journal_size = 0
        self._snapshot_size = 0

    # --- reading --------------------------------------------------------------------------------------------------

    def find(self, session: str) -> SessionRecord | None:
        raw = self._raw.get(session)
        return None if raw is None else record_from_json(orjson.loads(raw))

    def active(self, key: str) -> SessionRecord | None:
        session = self._active.get(key)
        return None if session is None else self.find(session)

    def sessions_of(self, key: str) -> list[SessionRecord]:
        """All sessions of a key, the active one first, then by age."""
        active = self._active.get(key)
        ids = ([active] if active else []) + sorted(self._former.get(key, ()), reverse=True)
        return [record for session in ids if (record := self.find(session)) is not None]

    def with_open_turns(self) -> list[SessionRecord]:
        return [record for session in sorted(self._open) if (record := self.find(session)) is not None]

    def count(self, state: str | None = None) -> int:
        return len(self._raw) if state is None else len(self._lists[state])

    def all(self) -> Iterator[SessionRecord]:
        for raw in list(self._raw.values()):
            yield record_from_json(orjson.loads(raw))

    def page(self, query: PageQuery) -> tuple[list[SessionRecord], str | None]:
        """One page, and the cursor of the next. Looks at no more than SCAN_LIMIT records: a page of a rare filter may
        be short and still have a cursor. Raises BadCursor."""
        places = self._lists[query.state]
        before = None if query.cursor is None else _parse_cursor(query.cursor)
        found: list[SessionRecord] = []
        looked = 0
        last: Place | None = None
        for place in places.irange(maximum=before, inclusive=(True, False), reverse=True):
            if len(found) == query.limit or looked == SCAN_LIMIT:
                assert last is not None  # noqa: S101
                return found, f"{last[0]}.{last[1]}"
            looked, last = looked + 1, place
            record = self.find(place[1])
            if record is not None and _fits(record, query):
                found.append(record)
        return found, None

    # --- changing -------------------------------------------------------------------------------------------------

    def put(self, record: SessionRecord) -> None:
        """Takes over a record. An active record makes the one that was active for its key a former one."""
        if record.state != "former":
            held = self._active.get(record.key)
            if held is not None and held != record.session:
                self._demote(held)
            self._active[record.key] = record.session
        self._set(record)

    def _demote(self, session: str) -> None:
        record = self.find(session)
        if record is None:
            return
        fields = record_to_json(record) | {"state": "former"}
        self._set(record_from_json(fields))

    def _set(self, record: SessionRecord) -> None:
        fields = record_to_json(record)
        self._enter(record, orjson.dumps(fields))
        self._queued.append(encode_line(fields))

    def _enter(self, record: SessionRecord, raw: bytes) -> None:
        self._raw[record.session] = raw
        place = (int(record.active_at.timestamp() * 1000), record.session)
        known = self._places.get(record.session)
        if known != (record.state, place):
            if known is not None:
                self._lists[known[0]].remove(known[1])
            self._lists[record.state].add(place)
            self._places[record.session] = (record.state, place)
        former = self._former.get(record.key, ())
        if record.state == "former":
            if self._active.get(record.key) == record.session:
                del self._active[record.key]
            if record.session not in former:
                self._former[record.key] = (*former, record.session)
        elif record.session in former:
            self._former[record.key] = tuple(s for s in former if s != record.session)
        if record.open_turns:
            self._open.add(record.session)
        else:
            self._open.discard(record.session)

    def remove(self, session: str) -> None:
        """Forgets a session; the newest former one of its key does not take its place."""
        record = self.find(session)
        if record is None:
            return
        self._drop(record)
        self._queued.append(encode_line({"removed": session}))

    def _drop(self, record: SessionRecord) -> None:
        session = record.session
        del self._raw[session]
        state, place = self._places.pop(session)
        self._lists[state].remove(place)
        self._open.discard(session)
        if self._active.get(record.key) == session:
            del self._active[record.key]
        former = tuple(s for s in self._former.get(record.key, ()) if s != session)
        if former:
            self._former[record.key] = former
        else:
            self._former.pop(record.key, None)

    # --- on disk --------------------------------------------------------------------------------------------------

    @property
    def needs_snapshot(self) -> bool:
        return self._journal_size >= max(MIN_JOURNAL_BYTES, self._snapshot_size)

    def flush(self, *, sync: bool = False) -> None:
        """Blocking: writes queued changes to the journal. They stay queued when that fails (StorageError)."""
        queued = self._queued
        if not queued:
            return
        count = len(queued)
        payload = b"".join(queued[:count])
        on_disk = self._files.size(self._journal_path)
        if on_disk is None:
            self._files.create(self._journal_path, payload, sync=sync)
            self._journal_size = len(payload)
        else:
            self._journal_size = self._files.append(self._journal_path, payload, expected_size=on_disk, sync=sync)
        del queued[:count]

    def prepare_snapshot(self, *, clean: bool) -> Snapshot:
        """A copy that may be written in a thread while changes go on; they go to a journal of their own."""
        return Snapshot(
            active=[(key, self._raw[session]) for key, session in self._active.items()],
            former=[(s, self._raw[s]) for sessions in self._former.values() for s in sessions],
            clean=clean,
            covered=len(self._queued),
        )

    def commit_snapshot(self, snapshot: Snapshot) -> None:
        """Blocking: writes the snapshot, then starts the journal anew with what changed since. Raises StorageError."""
        payload = snapshot.encode()
        if not snapshot.clean:
            self._files.replace(self._snapshot_path, payload)
            del self._queued[: snapshot.covered]
            self._files.replace(self._journal_path, b"")
            self._journal_size = 0
        else:
            self._files.replace(self._journal_path, b"")
            self._files.replace(self._snapshot_path, payload)
            self._files.remove(self._journal_path)
        self._snapshot_size = len(payload)

    @staticmethod
    def load(files: Files, data_dir: Path, *, stamp: str) -> tuple[Index, IndexReport]:
        """Snapshot and journal. A broken snapshot is set aside as `sessions.json.broken-<stamp>`. Blocking."""
        index = Index(files, data_dir)
        files.make_folder(data_dir)
        clean, edited, broken = index._load_snapshot(stamp)
        journal, damaged = index._load_journal()
        report = IndexReport(
            records=len(index._raw),
            clean=clean and not journal,
            edited=edited,
            broken=broken,
            damaged_lines=damaged,
        )
        if report.clean:
            files.create(index._journal_path, b"", sync=True)
        return index, report

    def _load_snapshot(self, stamp: str) -> tuple[bool, bool, str | None]:
        size = self._files.size(self._snapshot_path)
        if not size:
            return False, False, None
        payload = self._files.read(self._snapshot_path)
        try:
            clean, edited = self._read_snapshot(payload)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            name = f"{SNAPSHOT}.broken-{stamp}"
            self._files.replace(self._snapshot_path.with_name(name), payload)
            self._files.remove(self._snapshot_path)
            self.__init__(self._files, self._snapshot_path.parent)
            return False, False, f"{name}: {error}"
        self._snapshot_size = len(payload)
        return clean, edited, None

    def _read_snapshot(self, payload: bytes) -> tuple[bool, bool]:
        """(clean, edited). Our own layout is read line by line; what a person edited, as JSON. Raises ValueError."""
        head, _, body = payload.partition(b"\n")
        fields: Any = None
        try:
            fields = orjson.loads(head.removesuffix(b',"sessions":{') + b"}")
        except orjson.JSONDecodeError:
            fields = {}
        if fields.get("crc") == zlib.crc32(body):
            for line in body.splitlines():
                at = line.find(b'":{')
                if at > 0 and not line.endswith(b":{"):
                    self._take(line[at + 2 :].rstrip(b","))
            return bool(fields.get("clean")), False
        whole = cast("JsonObject", orjson.loads(payload))
        for record in (*whole["sessions"].values(), *whole.get("former", {}).values()):
            self._take(orjson.dumps(record))
        return False, True

    def _take(self, raw: bytes) -> None:
        record = record_from_json(orjson.loads(raw))
        if record.state != "former":
            self._active[record.key] = record.session
        self._enter(record, raw)

    def _load_journal(self) -> tuple[bool, int]:
        """(whether there is a journal at all, how many of its lines could not be read)."""
        if self._files.size(self._journal_path) is None:
            return False, 0
        payload = self._files.read(self._journal_path)
        damaged = 0
        for line in payload.split(b"\n"):
            if not line:
                continue
            try:
                fields = decode_line(line)
                if "removed" in fields:
                    self.remove(str(fields["removed"]))
                else:
                    self.put(record_from_json(fields))
            except (DamagedEntry, ValueError):
                damaged += 1
        self._queued.clear()
        if payload and not payload.endswith(b"\n"):
            self._queued.append(b"\n")
        self._journal_size = len(payload)
        return True, damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The index at one moment. `covered` journal lines that were still queued are inside it."""

    active: list[tuple[str, bytes]]
    former: list[tuple[str, bytes]]
    clean: bool
    covered: int

    def encode(self) -> bytes:
        """JSON, one record a line, with a checksum over the lines, so that an untouched file is read fast."""
        body = b'%b\n},\n"former":{\n%b\n}}\n' % (_lines(self.active), _lines(self.former))
        head = orjson.dumps({"format": FORMAT, "clean": self.clean, "crc": zlib.crc32(body)})
        return head[:-1] + b',"sessions":{\n' + body


def _lines(records: Iterable[tuple[str, bytes]]) -> bytes:
    return b",\n".join(orjson.dumps(name) + b":" + raw for name, raw in records)


def _parse_cursor(raw: str) -> Place:
    millis, _, session = raw.partition(".")
    if not session or not millis.removeprefix("-").isdecimal() or len(raw) > 100:
        raise BadCursor("This cursor is not from a list of sessions. Leave it out to start at the beginning.")
    return int(millis), session


def _fits(record: SessionRecord, query: PageQuery) -> bool:
    return (
        (query.agent is None or record.agent == query.agent)
        and (query.channel is None or record.channel == query.channel)
        and (query.type is None or record.type == query.type)
        and (query.search is None or query.search in f"{record.key} {record.title or ''}".casefold())
        and (query.allowed is None or query.allowed(record.key, record.owner))
    )
