"""The index against a plain model, through reloads, faults, crashes and people with editors."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import shutil
import tempfile
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sessions.files import Crash, FaultyFiles, OsFiles, StorageError, StorageFailed
from sessions.index import JOURNAL, SNAPSHOT, Index, IndexReport
from sessions.listing import BadCursor, PageQuery, SessionSort, fits, sieve_of
from sessions.record import SessionRecord
from sessions.snapshot import encode_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from sessions.entries import EndReason, JsonObject
    from sessions.index import Snapshot
    from sessions.record import SessionState

START = datetime(2026, 11, 30, tzinfo=UTC)
KEYS = ("agent:main:main", 'agent:main:chat:group:"ž","x\\', "agent:ops:chat:direct:5")
STATES: tuple[SessionState, ...] = ("active", "former", "archived")


def session_id(number: int) -> str:
    return f"01J{number:023d}"


def record(
    number: int, key: str = KEYS[0], *, state: SessionState = "active", ended: EndReason | None = None, minute: int = 0
) -> SessionRecord:
    at = START + timedelta(minutes=minute)
    return SessionRecord(
        session=session_id(number),
        key=key,
        agent=key.split(":")[1],
        type="group",
        state=state,
        ended=ended,
        active_at=at,
        title=f'title, "{number}":{{"open_turns":1}}',
    )


def load(folder: Path, files: OsFiles | None = None) -> tuple[Index, IndexReport]:
    return Index.load(files or OsFiles(), folder, stamp="S")


def write_snapshot(index: Index, *, clean: bool) -> None:
    index.commit_snapshot(index.prepare_snapshot(clean=clean))


def contents(index: Index) -> tuple[dict[str, SessionRecord], dict[str, str]]:
    """All records, and who holds which key."""
    holders = {key: found.session for key in KEYS if (found := index.active(key))}
    return {found.session: found for found in index.all()}, holders


@dataclasses.dataclass(frozen=True)
class Model:
    """The index as two plain dictionaries, with the rule of who holds a key written out."""

    records: dict[str, SessionRecord]
    holders: dict[str, str]

    def put(self, record: SessionRecord) -> Model:
        records, holders = dict(self.records), dict(self.holders)
        holder = holders.get(record.key)
        other = None if holder is None else records[holder]
        if record.state == "former":
            if holder == record.session:
                del holders[record.key]
        elif other is None or other.session == record.session:
            holders[record.key] = record.session
        else:
            winner, loser = sorted(
                (record, other), key=lambda r: (r.state == "active", r.ended is None, r.session), reverse=True
            )
            holders[record.key] = winner.session
            if loser.state == "active":
                lost = dataclasses.replace(loser, state="former")
                records[lost.session] = lost
                record = lost if loser is record else record
        records[record.session] = record
        return Model(records, holders)

    def remove(self, session: str) -> Model:
        records = {s: r for s, r in self.records.items() if s != session}
        return Model(records, {k: s for k, s in self.holders.items() if s != session})


class IndexMachine(RuleBasedStateMachine):
    """Random changes, flushes, snapshots, faults, stops and kills; a kill may lose only what was not flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.files = FaultyFiles()
        self.index, _ = load(self.folder, self.files)
        self.model = Model({}, {})
        self.changes = 0
        self.on_disk = (0, self.model)
        self.prepared: list[tuple[Snapshot, int, Model]] = []
        self.newest = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(
        number=st.integers(1, 6),
        state=st.sampled_from(STATES),
        ended=st.sampled_from([None, "daily"]),
        minute=st.integers(0, 5),
        open_turns=st.integers(0, 1),
    )
    def put(self, number: int, state: SessionState, ended: EndReason | None, minute: int, open_turns: int) -> None:
        new = record(number, KEYS[number % len(KEYS)], state=state, ended=ended, minute=minute)
        new = dataclasses.replace(new, open_turns=open_turns)
        self.model = self.model.put(new)
        assert self.index.put(new) == self.model.records[new.session]
        self.changes += 1

    @rule(number=st.integers(1, 6))
    def remove(self, number: int) -> None:
        self.index.remove(session_id(number))
        self.model = self.model.remove(session_id(number))
        self.changes += 1

    @rule(sync=st.booleans())
    def flush(self, sync: bool) -> None:
        self.index.flush(sync=sync)
        self.on_disk = (self.changes, self.model)

    @rule(step=st.sampled_from(["write", "sync"]), code=st.sampled_from([errno.ENOSPC, errno.EIO]))
    def flush_on_a_failing_disk(self, step: str, code: int) -> None:
        self.files.fail("write" if step == "write" else "sync", code, times=1)
        try:
            self.index.flush(sync=True)
        except StorageError:
            assert self.index.needs_snapshot
        else:
            self.on_disk = (self.changes, self.model)
        self.files.heal()

    @rule()
    def prepare(self) -> None:
        self.prepared.append((self.index.prepare_snapshot(clean=False), self.changes, self.model))

    @precondition(lambda self: self.prepared)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        snapshot, changes, model = self.prepared.pop(data.draw(st.integers(0, len(self.prepared) - 1)))
        self.index.commit_snapshot(snapshot)
        self.newest = max(self.newest, snapshot.number)
        if changes > self.on_disk[0]:
            self.on_disk = (changes, model)

    @precondition(lambda self: self.prepared)
    @rule()
    def commit_on_a_failing_disk(self) -> None:
        snapshot, _, _ = self.prepared.pop()
        self.files.fail("write", errno.ENOSPC)
        older = snapshot.number < self.newest  # it is not written at all
        with contextlib.nullcontext() if older else pytest.raises(StorageError):
            self.index.commit_snapshot(snapshot)
        self.files.heal()

    @rule()
    def kill(self) -> None:
        self.prepared.clear()
        self.newest = 0
        self.index, report = load(self.folder, self.files)
        assert (report.clean, report.damaged_lines, report.broken, report.edited) == (False, 0, None, False)
        self.changes, self.model = self.on_disk

    @rule()
    def stop_and_start(self) -> None:
        self.prepared.clear()
        self.newest = 0
        write_snapshot(self.index, clean=True)
        self.index, report = load(self.folder, self.files)
        assert report.clean
        self.on_disk = (self.changes, self.model)

    @invariant()
    def answers_as_the_model_does(self) -> None:
        records, holders = self.model.records, self.model.holders
        assert contents(self.index) == (records, holders)
        for number in range(1, 8):
            found = self.index.find(session_id(number))
            assert found == records.get(session_id(number))
        for key in KEYS:
            own = sorted((r for r in records.values() if r.key == key), key=lambda r: r.session, reverse=True)
            own.sort(key=lambda r: r.session != holders.get(key))
            assert self.index.sessions_of(key) == own
            assert self.index.sessions_of(key, limit=1) == own[:1]
        assert [r.session for r in self.index.with_open_turns()] == sorted(
            r.session for r in records.values() if r.open_turns
        )
        for state in STATES:
            own = sorted((r for r in records.values() if r.state == state), key=lambda r: (r.active_at, r.session))
            assert self.index.count(state) == len(own)
            assert walked(self.index, PageQuery(limit=2, state=state)) == own[::-1]


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def walked(index: Index, query: PageQuery) -> list[SessionRecord]:
    """All pages of a list."""
    found: list[SessionRecord] = []
    cursor: str | None = None
    while True:
        page, cursor = index.page(dataclasses.replace(query, cursor=cursor))
        assert len(page) <= query.limit
        found.extend(page)
        if cursor is None:
            return found


def test_a_snapshot_that_is_written_after_a_newer_one_takes_nothing_back(tmp_path: Path) -> None:
    index, _ = load(tmp_path)
    older = index.prepare_snapshot(clean=False)
    index.put(record(1))
    newer = index.prepare_snapshot(clean=False)
    index.commit_snapshot(newer)
    index.commit_snapshot(older)
    assert contents(load(tmp_path)[0]) == contents(index)


# --- crashes ----------------------------------------------------------------------------------------------------------


def test_a_crash_at_every_step_leaves_the_state_before_or_after(tmp_path: Path) -> None:
    def flush(index: Index) -> None:
        index.put(record(1, minute=7))
        index.flush(sync=True)

    def remove(index: Index) -> None:
        index.remove(session_id(3))
        index.flush(sync=True)

    def change(index: Index) -> None:
        index.put(record(2))
        index.put(record(1, minute=7))
        index.remove(session_id(3))

    def snapshot(index: Index) -> None:
        change(index)
        write_snapshot(index, clean=False)

    def stop(index: Index) -> None:
        change(index)
        write_snapshot(index, clean=True)

    for act in (flush, remove, snapshot, stop):
        outcomes: list[bool] = []
        for step in range(1, 100):
            folder = tmp_path / act.__name__ / str(step)
            files = FaultyFiles()
            index, _ = load(folder, files)
            for number in (1, 3):
                index.put(record(number, KEYS[number % 2]))
            index.flush()
            write_snapshot(index, clean=False)
            before = contents(index)
            files.crash_at(step)
            try:
                act(index)
            except Crash:
                files.crash_at(None)
            else:
                break
            found, report = load(folder)
            assert not report.clean or contents(found) == contents(index)
            assert contents(found) in (before, contents(index))
            assert report.broken is None
            outcomes.append(contents(found) == before)
            assert contents(load(folder)[0]) == contents(found)
        assert set(outcomes) == {True, False}
        assert outcomes == sorted(outcomes, reverse=True)


def test_a_journal_cut_or_spoilt_anywhere_keeps_its_other_lines(tmp_path: Path) -> None:
    index, _ = load(tmp_path)
    for number in (1, 2, 3):
        index.put(record(number, KEYS[number % 3]))
    index.flush()
    payload = (tmp_path / JOURNAL).read_bytes()
    lines = payload.splitlines(keepends=True)
    for cut in range(len(payload)):
        (tmp_path / JOURNAL).write_bytes(payload[:cut])
        found, report = load(tmp_path)
        assert len(list(found.all())) == max(0, sum(len(b"".join(lines[: n + 1])) - 1 <= cut for n in range(4)) - 1)
        assert report.damaged_lines <= 1
        found.put(record(9, KEYS[0]))
        found.flush()
        again, _ = load(tmp_path)
        assert again.find(session_id(9)) is not None
        assert len(list(again.all())) == len(list(found.all()))
    (tmp_path / JOURNAL).write_bytes(
        lines[0] + lines[1] + lines[2].replace(b"title", b"fable") + b"\0\0\0\n" + lines[3]
    )
    found, report = load(tmp_path)
    assert sorted(r.session for r in found.all()) == [session_id(1), session_id(3)]
    assert report.damaged_lines == 1


def test_changes_made_while_a_snapshot_is_written_survive_a_kill(tmp_path: Path) -> None:
    index, _ = load(tmp_path)
    index.put(record(1))
    snapshot = index.prepare_snapshot(clean=False)
    index.put(record(1, minute=5))
    index.flush()
    index.commit_snapshot(snapshot)
    index.put(record(2, KEYS[1]))
    index.flush(sync=True)
    assert contents(load(tmp_path)[0]) == contents(index)


def test_a_clean_snapshot_that_came_too_early_is_no_clean_stop(tmp_path: Path) -> None:
    index, _ = load(tmp_path)
    index.put(record(1))
    snapshot = index.prepare_snapshot(clean=True)
    index.put(record(2))
    index.flush()
    index.commit_snapshot(snapshot)
    found, report = load(tmp_path)
    assert not report.clean
    assert contents(found) == contents(index)


def test_flushing_from_many_threads_loses_no_change(tmp_path: Path) -> None:
    index, _ = load(tmp_path)
    stop = threading.Event()

    def keep_flushing() -> None:
        while not stop.is_set():
            index.flush()
            write_snapshot_in_thread()

    def write_snapshot_in_thread() -> None:
        for snapshot in prepared[:1]:
            prepared.clear()
            index.commit_snapshot(snapshot)

    prepared: list[Snapshot] = []
    threads = [threading.Thread(target=keep_flushing) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(400):
        index.put(record(number % 50, f"agent:main:c:group:{number % 50}", minute=number))
        if number % 40 == 0:
            prepared.append(index.prepare_snapshot(clean=False))
    stop.set()
    for thread in threads:
        thread.join()
    index.flush()
    assert {r.session: r for r in load(tmp_path)[0].all()} == {r.session: r for r in index.all()}


# --- the journal and the disk -----------------------------------------------------------------------------------------


def test_changes_of_one_session_between_two_flushes_cost_one_line(tmp_path: Path) -> None:
    index, _ = load(tmp_path)
    for minute in range(50):
        index.put(record(1, minute=minute))
    index.flush()
    assert (tmp_path / JOURNAL).read_bytes().count(b"\n") == 2


def test_a_snapshot_is_due_when_the_journal_has_grown(tmp_path: Path) -> None:
    index, _ = load(tmp_path)
    wide = dataclasses.replace(record(1), title="x" * 10_000)
    for minute in range(90):
        assert not index.needs_snapshot
        index.put(dataclasses.replace(wide, messages=minute))
        index.flush()
    while not index.needs_snapshot:
        index.put(wide)
        index.flush()
    write_snapshot(index, clean=False)
    assert not index.needs_snapshot
    assert (tmp_path / JOURNAL).stat().st_size < 100


def test_a_journal_somebody_removed_or_wrote_to_is_mended_by_a_snapshot(tmp_path: Path) -> None:
    spoils: list[Callable[[Path], object]] = [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes() + b"foreign"),
        lambda path: path.write_bytes(path.read_bytes()[:-9]),
    ]
    for number, spoil in enumerate(spoils):
        folder = tmp_path / str(number)
        index, _ = load(folder)
        index.put(record(1))
        index.flush()
        spoil(folder / JOURNAL)
        index.put(record(2, KEYS[1]))
        with pytest.raises(StorageError):
            index.flush()
        index.flush()
        assert index.needs_snapshot
        write_snapshot(index, clean=False)
        assert contents(load(folder)[0]) == contents(index)


def test_a_synced_flush_also_syncs_what_an_earlier_one_only_wrote(tmp_path: Path) -> None:
    files = FaultyFiles()
    index, _ = load(tmp_path, files)
    index.put(record(1))
    index.flush()
    files.fail("sync", errno.EIO)
    with pytest.raises(StorageFailed):
        index.flush(sync=True)
    files.heal()
    index.flush(sync=True)
    files.fail("sync", errno.EIO)
    index.flush(sync=True)


# --- people and broken files ------------------------------------------------------------------------------------------


def stopped(folder: Path) -> JsonObject:
    """A folder in which a daemon stopped in order; its snapshot, parsed."""
    index, _ = load(folder)
    index.put(record(1, KEYS[0], ended="daily"))
    index.put(record(2, KEYS[0]))
    index.put(record(3, KEYS[1], state="archived"))
    write_snapshot(index, clean=True)
    return orjson.loads((folder / SNAPSHOT).read_bytes())


def test_the_snapshot_is_json_a_person_can_read(tmp_path: Path) -> None:
    whole = stopped(tmp_path)
    assert {name: type(value) for name, value in whole.items()} == {
        "format": int,
        "clean": bool,
        "number": int,
        "count": int,
        "crc": int,
        "sessions": dict,
        "former": dict,
    }
    assert set(whole["sessions"]) == {KEYS[0], KEYS[1]}
    assert set(whole["former"]) == {session_id(1)}
    assert (tmp_path / SNAPSHOT).read_bytes().count(b"\n") == 6
    assert not (tmp_path / JOURNAL).exists()


def test_an_edited_snapshot_is_read_as_json_and_is_not_trusted_to_be_clean(tmp_path: Path) -> None:
    stopped(tmp_path)
    payload = (tmp_path / SNAPSHOT).read_bytes()
    pretty = orjson.dumps(orjson.loads(payload), option=orjson.OPT_INDENT_2)
    edited = pretty.replace(b"agent:main:main", b"agent:main:renamed", 1).replace(b'title, \\"2', b'mine, \\"2')
    (tmp_path / SNAPSHOT).write_bytes(edited)
    index, report = load(tmp_path)
    assert (report.edited, report.clean, report.records, report.skipped) == (True, False, 3, ())
    renamed = index.active("agent:main:renamed")
    assert renamed is not None
    assert renamed.title is not None
    assert renamed.title.startswith("mine")
    write_snapshot(index, clean=True)
    assert load(tmp_path)[1].clean


def test_a_record_edited_into_nonsense_is_skipped_and_named(tmp_path: Path) -> None:
    stopped(tmp_path)
    payload = (tmp_path / SNAPSHOT).read_bytes().replace(session_id(2).encode(), b"../../etc/passwd")
    (tmp_path / SNAPSHOT).write_bytes(payload)
    index, report = load(tmp_path)
    assert report.records == 2
    assert len(report.skipped) == 1
    assert "session of a session record cannot be" in report.skipped[0]
    assert index.active(KEYS[0]) is None


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"sessions":[]}', b"\0" * 40, b'{"sessions":{},"format":"x"}'])
def test_a_broken_snapshot_is_set_aside_and_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / SNAPSHOT).write_bytes(content)
    index, report = load(tmp_path)
    assert (index.count(), report.clean) == (0, False)
    assert report.broken is not None
    assert report.broken.startswith("sessions.json.broken-S: ")
    assert (tmp_path / "sessions.json.broken-S").read_bytes() == content
    assert not (tmp_path / SNAPSHOT).exists()


def test_a_missing_or_empty_snapshot_is_told_apart_from_a_clean_one(tmp_path: Path) -> None:
    assert load(tmp_path)[1] == IndexReport(records=0, clean=False)
    (tmp_path / SNAPSHOT).write_bytes(b"")
    assert load(tmp_path)[1] == IndexReport(records=0, clean=False, broken="sessions.json was empty")


def test_a_snapshot_of_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / SNAPSHOT).write_bytes(b'{"format":2,"sessions":{}}')
    with pytest.raises(StorageFailed, match="Update this one"):
        load(tmp_path)
    assert (tmp_path / SNAPSHOT).read_bytes() == b'{"format":2,"sessions":{}}'


@given(at=st.integers(0, 3000), value=st.integers(0, 255))
@settings(max_examples=150, deadline=None)
def test_one_changed_byte_never_stops_the_start(at: int, value: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stopped(folder)
        payload = bytearray((folder / SNAPSHOT).read_bytes())
        changed = payload[at % len(payload)] != value
        payload[at % len(payload)] = value
        (folder / SNAPSHOT).write_bytes(payload)
        try:
            index, report = load(folder)
        except StorageFailed:
            return
        assert not changed or report.edited or report.broken
        assert all(record == index.find(record.session) for record in index.all())


# --- lists ------------------------------------------------------------------------------------------------------------


def test_a_list_shows_what_fits_and_what_the_caller_may_see(tmp_path: Path) -> None:
    index, _ = load(tmp_path)
    for number in range(60):
        one = record(number, f"agent:a{number % 2}:c{number % 3}:group:{number}", minute=number)
        index.put(dataclasses.replace(one, channel=f"c{number % 3}", owner=f"u{number % 4}", title=f"Topic {number}"))
    every = walked(index, PageQuery(limit=7))
    assert [r.active_at for r in every] == sorted((r.active_at for r in every), reverse=True)
    assert len(every) == 60

    def numbers(query: PageQuery) -> set[int]:
        return {int(r.session[3:]) for r in walked(index, query)}

    assert numbers(PageQuery(limit=7, agent="a1", channel="c2")) == {n for n in range(60) if n % 2 == 1 and n % 3 == 2}
    assert numbers(PageQuery(limit=7, type="direct")) == set()
    assert numbers(PageQuery(limit=7, search="tOPIC 5")) == {5, *range(50, 60)}
    assert numbers(PageQuery(limit=7, allowed=lambda _, owner: owner == "u3")) == {n for n in range(60) if n % 4 == 3}


SOME_TEXT = st.one_of(
    st.sampled_from(["a", "1 Kk", "1 ", " Kk", " ", "Kk", '"', "\\", "s", 'x","owner":"ana', "ſ", "\u212a", "İ"]),
    st.text(max_size=4),
)


@settings(deadline=None)
@given(SOME_TEXT, st.sampled_from([None, "ana", "an", '"ana"']), SOME_TEXT, st.sampled_from([None, "ana", '"ana"']))
def test_no_row_that_fits_is_told_apart_by_its_bytes(title: str, owner: str | None, q: str, only: str | None) -> None:
    def allowed(_: str, of: str | None) -> bool:
        return only is None or of in (None, only)

    one = dataclasses.replace(record(1, "agent:main:c:group:1"), title=title, owner=owner)
    query = PageQuery(search=q, allowed=allowed, owner=only)
    row = encode_row(one)
    assert fits(row, query) == (q.casefold() in f"{one.key} {title}".casefold() and allowed(one.key, owner))
    assert sieve_of(query)(row) or not fits(row, query)


def test_what_belongs_to_others_is_told_without_being_decoded(tmp_path: Path) -> None:
    index, _ = load(tmp_path)
    for number in range(60):
        owner = None if number == 7 else f"u{number % 4}"
        index.put(dataclasses.replace(record(number, f"agent:main:c:group:{number}", minute=number), owner=owner))
    looked: list[str | None] = []
    query = PageQuery(allowed=lambda _, owner: looked.append(owner) is None and owner == "u3", owner="u3")
    assert len(index.page(query)[0]) == 14
    assert set(looked) == {"u3", None}


def test_a_list_can_be_ordered_by_everything_that_is_shown(tmp_path: Path) -> None:
    index, _ = load(tmp_path)
    rows: dict[int, dict[str, Any]] = {
        1: {"messages": 9, "context_tokens": 10, "window": 1000, "cost": "0.5"},
        2: {"messages": 100, "context_tokens": 900, "window": 1000, "cost": "10"},
        3: {"messages": 20, "context_tokens": None, "window": 1000, "cost": "0.0000001"},
        4: {"messages": 20, "context_tokens": 50, "window": 60, "cost": None},
    }
    for number, fields in rows.items():
        one = dataclasses.replace(record(number, f"agent:main:c:group:{number}", minute=number), **fields)
        index.put(dataclasses.replace(one, created_at=START - timedelta(minutes=number)))

    def order(sort: SessionSort, limit: int = 1) -> list[int]:
        return [int(r.session[3:]) for r in walked(index, PageQuery(limit=limit, sort=sort))]

    assert order("active") == [4, 3, 2, 1]
    assert order("idle") == [1, 2, 3, 4]
    assert order("created") == [1, 2, 3, 4]
    assert order("messages") == [2, 4, 3, 1]
    assert order("context") == [2, 4, 1, 3]
    assert order("cost") == [2, 1, 3, 4]
    assert order("cost", limit=3) == [2, 1, 3, 4]


@given(
    ranks=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=25),
    sort=st.sampled_from(get_args(SessionSort)),
    limit=st.integers(1, 7),
)
def test_pages_of_every_order_show_every_session_once(
    ranks: list[tuple[int, int]], sort: SessionSort, limit: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        index, _ = load(Path(name))
        for number, (messages, minute) in enumerate(ranks):
            one = record(number, f"agent:main:c:group:{number}", minute=minute)
            index.put(dataclasses.replace(one, messages=messages))
        found = [r.session for r in walked(index, PageQuery(limit=limit, sort=sort))]
        assert len(found) == len(ranks) == len(set(found))


async def test_nobody_waits_while_twenty_thousand_rows_are_ranked_or_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By work, not by time: between two turns of others no more than STEP rows are read."""
    monkeypatch.setattr("sessions.index.STEP", 10)
    index, _ = load(tmp_path)
    for number in range(95):
        one = record(number, f"agent:main:c:group:{number}", minute=number)
        index.put(dataclasses.replace(one, messages=number % 7, compaction={"outcome": "done"}))
    read = turns = most = 0

    def allowed(_: str, __: str | None) -> bool:
        nonlocal read, most
        read += 1
        most = max(most, read)
        return True

    async def others() -> None:
        nonlocal read, turns
        while True:
            read, turns = 0, turns + 1
            await asyncio.sleep(0)

    rare = PageQuery(allowed=lambda key, owner: allowed(key, owner) and key.endswith(":0"))
    wide = PageQuery(allowed=allowed, limit=100)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(others())
        for query in (*(dataclasses.replace(wide, sort=sort) for sort in get_args(SessionSort)), rare):
            expected = index.page(query)
            read = turns = most = 0
            assert await index.page_beside(query) == expected
            assert turns >= 9
            assert most <= 10
        read = turns = most = 0
        assert len(await index.fitting(wide, lambda row: b'"messages":3' in row)) == 14
        assert await index.used_since(wide, START + timedelta(minutes=90)) == 5
        assert turns >= 9
        assert most <= 10
        task.cancel()


async def test_a_list_is_right_when_sessions_change_and_go_while_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessions.index.STEP", 2)
    index, _ = load(tmp_path)
    for number in range(20):
        index.put(record(number, f"agent:main:c:group:{number}", minute=number))

    async def change() -> None:
        await asyncio.sleep(0)
        index.remove(session_id(0))
        index.remove(session_id(19))
        index.put(record(10, "agent:main:c:group:10", minute=100))

    (ranked, _), _ = await asyncio.gather(index.page_beside(PageQuery(sort="cost")), change())
    assert {one.session for one in ranked} == {session_id(number) for number in range(1, 19)}


def test_a_cursor_of_another_order_is_refused(tmp_path: Path) -> None:
    index, _ = load(tmp_path)
    for number in range(3):
        index.put(record(number, f"agent:main:c:group:{number}"))
    _, cursor = index.page(PageQuery(limit=1, sort="cost"))
    orders: tuple[SessionSort, ...] = ("active", "messages")
    for sort in orders:
        with pytest.raises(BadCursor, match="this list"):
            index.page(PageQuery(limit=1, sort=sort, cursor=cursor))


def test_a_list_of_a_rare_filter_looks_at_a_bounded_number_of_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessions.index.SCAN_LIMIT", 10)
    index, _ = load(tmp_path)
    for number in range(35):
        index.put(record(number, f"agent:main:c:group:{number}", minute=number))
    looked: list[str] = []
    query = PageQuery(allowed=lambda key, _: looked.append(key) is None and key.endswith(":0"))
    page, cursor = index.page(query)
    assert (page, len(looked)) == ([], 10)
    assert cursor is not None
    assert [r.session for r in walked(index, query)] == [session_id(0)]


@pytest.mark.parametrize("cursor", ["", "x", "1", "1.", ".a", "٣.a", "1e5.a", "9" * 200 + ".a"])
def test_a_cursor_nobody_gave_out_is_refused(tmp_path: Path, cursor: str) -> None:
    index, _ = load(tmp_path)
    with pytest.raises(BadCursor, match="Leave it out"):
        index.page(PageQuery(cursor=cursor))


# --- who holds a key --------------------------------------------------------------------------------------------------


def test_a_reply_that_ends_in_a_session_left_behind_does_not_bring_it_back(tmp_path: Path) -> None:
    index, _ = load(tmp_path)
    index.put(record(1))
    index.put(record(2))
    assert index.put(record(1, minute=3)).state == "former"
    active = index.active(KEYS[0])
    assert active is not None
    assert active.session == session_id(2)


def test_a_resumed_session_takes_its_key_back(tmp_path: Path) -> None:
    index, _ = load(tmp_path)
    index.put(record(1, ended="new"))
    index.put(record(2))
    index.put(record(2, ended="resume"))
    assert index.put(record(1)).state == "active"
    assert [r.session for r in index.sessions_of(KEYS[0])] == [session_id(1), session_id(2)]


def test_archiving_a_former_session_leaves_the_active_one_alone(tmp_path: Path) -> None:
    index, _ = load(tmp_path)
    index.put(record(1))
    index.put(record(2))
    index.put(record(1, state="archived"))
    active = index.active(KEYS[0])
    assert active is not None
    assert (active.session, active.state) == (session_id(2), "active")
    assert index.count("archived") == 1


def test_the_part_of_a_transcript_a_record_stands_for_is_known_without_reading_it(tmp_path: Path) -> None:
    index, _ = load(tmp_path)
    index.put(dataclasses.replace(record(1), generation=3, size=4711))
    index.put(record(2, KEYS[1]))
    assert [index.covered(session_id(number)) for number in (1, 2, 3)] == [(3, 4711), (1, 0), None]


@given(
    st.lists(st.datetimes(datetime(1960, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)), min_size=2, max_size=5)
)
@settings(deadline=None, max_examples=50)
def test_times_finer_than_the_file_keeps_do_not_confuse_the_lists(times: list[datetime]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        index, _ = load(Path(folder))
        for at in times:
            index.put(dataclasses.replace(record(1), active_at=at))
        (only,) = walked(index, PageQuery())
        assert timedelta(0) <= times[-1] - only.active_at < timedelta(milliseconds=1)
