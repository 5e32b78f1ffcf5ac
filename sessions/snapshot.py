"""The two files of the index as bytes: the snapshot `sessions.json`, and the lines of its journal."""

from __future__ import annotations

import dataclasses
import re
import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import orjson

from sessions.entries import EPOCH, DamagedEntry
from sessions.lines import decode_line, dump, seal, sealed
from sessions.record import SessionRecord, record_from_json, record_to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sessions.entries import JsonObject
    from sessions.record import SessionState

FORMAT = 1
JOURNAL_HEAD = seal(b'{"type":"journal","format":1}')

_TEXT = rb'"((?:[^"\\]*+(?:\\.)?)*+)"'
_HEAD = re.compile(
    rb'\{"session":"([0-9A-Za-z_-]+)","active_at":"([^"\\]+)","state":"(active|former|archived)","key":%b' % _TEXT
)
_CHANGE = re.compile(rb'\{"n":(\d{1,18}),"(hold|put)":(\{.*\}),"crc":\d+\}')
_BETWEEN = b'\n},"former":{\n'


class BrokenSnapshot(ValueError):
    """A `sessions.json` that is no index; the message says why."""


class NewerSnapshot(ValueError):
    """A `sessions.json` of a format this version does not know."""


class Head(NamedTuple):
    """What the index reads of a row without decoding the rest. `at_ms`: milliseconds since 1970.

    A tuple, because 100,000 of them are made at start.
    """

    session: str
    at_ms: int
    state: SessionState
    key: str


def encode_row(record: SessionRecord) -> bytes:
    """The record as the index keeps it, in memory as on disk."""
    return memoryview(dump(record_to_json(record))).tobytes()  # orjson's own has room for 4 KB and more behind it


def decode_row(row: bytes) -> SessionRecord:
    return record_from_json(orjson.loads(row))


def head_of(row: bytes) -> Head:
    """Raises ValueError when the row was not made by encode_row."""
    found = _HEAD.match(row)
    if found is None:
        raise ValueError("not a row of the index")
    session, at, state, key = found.groups()
    text = orjson.loads(b'"%b"' % key) if b"\\" in key else key.decode()
    return Head(
        session.decode(), at_ms(datetime.fromisoformat(at.decode())), cast("SessionState", state.decode()), text
    )


def at_ms(at: datetime) -> int:
    """Milliseconds since 1970, as the index sorts by; cut off, as in the text of a time."""
    return (at - EPOCH) // timedelta(milliseconds=1)


# --- the journal ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the journal. `row` None: the session was removed. `holds`: messages to its key go to it."""

    number: int
    session: str
    row: bytes | None
    holds: bool = False


def encode_change(change: Change) -> bytes:
    """The sealed line of a change."""
    if change.row is None:
        return seal(b'{"n":%d,"removed":"%b"}' % (change.number, change.session.encode()))
    return seal(b'{"n":%d,"%b":%b}' % (change.number, b"hold" if change.holds else b"put", change.row))


def read_journal(payload: bytes, after: int) -> tuple[list[Change], int]:
    """The changes numbered above `after`, in order, and how many lines could not be read."""
    changes: list[Change] = []
    damaged = 0
    for line in payload.split(b"\n"):
        text = line.strip(b"\0\r ")
        if not text:
            continue
        try:
            change = _read_change(text)
        except (DamagedEntry, ValueError, KeyError, TypeError):
            damaged += 1
            continue
        if change is not None and change.number > after:
            changes.append(change)
    return changes, damaged


def _read_change(line: bytes) -> Change | None:
    found = _CHANGE.fullmatch(line)
    if found is not None and sealed(line):
        row = found[3]
        return Change(int(found[1]), row[12 : row.index(b'"', 12)].decode(), row, found[2] == b"hold")
    fields = decode_line(line)
    if fields.get("type") == "journal":
        return None
    if "removed" in fields:
        return Change(int(fields["n"]), str(fields["removed"]), None)
    record = record_from_json(fields.get("hold") or fields["put"])
    return Change(int(fields["n"]), record.session, encode_row(record), "hold" in fields)


# --- the snapshot -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a snapshot holds: rows by session, and which of them hold their key. `number`: the last change inside it."""

    rows: dict[str, bytes]
    holding: set[str]
    number: int
    clean: bool
    edited: bool
    skipped: tuple[str, ...] = ()


def encode_snapshot(
    holding: Iterable[bytes], others: Iterable[bytes], *, number: int, count: int, clean: bool
) -> bytes:
    """JSON with one record a line, by key and then by session id. The checksum is that of the first line up to it
    and of all other lines: an untouched file is read line by line, an edited one as JSON."""
    first = b",\n".join(b"%b:%b" % (_key_text(row), row) for row in holding)
    second = b",\n".join(b"%b:%b" % (row[11 : row.index(b'"', 12) + 1], row) for row in others)
    body = b"%b%b%b\n}}\n" % (first, _BETWEEN, second)
    head = orjson.dumps({"format": FORMAT, "clean": clean, "number": number, "count": count})[:-1]
    return b'%b,"crc":%d,"sessions":{\n%b' % (head, zlib.crc32(body, zlib.crc32(head)), body)


def _key_text(row: bytes) -> bytes:
    start = row.index(b',"key":') + 7
    return row[start : row.index(b'","', start) + 1]


def read_snapshot(payload: bytes) -> Content:
    """Raises BrokenSnapshot and NewerSnapshot."""
    start = payload.find(b"\n") + 1
    head = _read_head(payload[:start], memoryview(payload)[start:])
    return _read_edited(payload) if head is None else _read_ours(payload, start, head)


def _read_head(line: bytes, body: memoryview) -> JsonObject | None:
    """The fields of the first line; None when the file is not as we wrote it."""
    text, _, rest = line.partition(b',"crc":')
    crc = zlib.crc32(body, zlib.crc32(text))
    if rest != b'%d,"sessions":{\n' % crc:
        return None
    head: JsonObject = orjson.loads(text + b"}")
    return head if head["format"] == FORMAT else None


def _read_ours(payload: bytes, start: int, head: JsonObject) -> Content:
    between = payload.index(_BETWEEN, start)
    first = dict(_rows(payload, start, between))
    second = dict(_rows(payload, between + len(_BETWEEN), len(payload) - len(b"\n}}\n")))
    return Content(
        rows={**first, **second},
        holding=set(first),
        number=head["number"],
        clean=head["clean"],
        edited=False,
    )


def _rows(payload: bytes, start: int, end: int) -> Iterator[tuple[str, bytes]]:
    """(session, row) of the lines in between."""
    while start < end:
        stop = payload.find(b"\n", start, end)
        stop = end if stop < 0 else stop
        row_at = payload.index(b'":{"session":"', start) + 2
        row = payload[row_at : stop - 1 if payload[stop - 1] == 0x2C else stop]
        yield row[12 : row.index(b'"', 12)].decode(), row
        start = stop + 1


def _read_edited(payload: bytes) -> Content:
    try:
        whole: Any = orjson.loads(payload.removeprefix(b"\xef\xbb\xbf"))
        found = int(whole.get("format", FORMAT))
        sections = [
            cast("JsonObject", whole["sessions"]).items(),
            cast("JsonObject", whole.get("former") or {}).items(),
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokenSnapshot(f"it is no index: {error}") from error
    if found > FORMAT:
        raise NewerSnapshot(f"format {found} is newer than {FORMAT}")
    rows: dict[str, bytes] = {}
    holding: set[str] = set()
    skipped: list[str] = []
    for named, section in zip(("key", "session"), sections, strict=True):
        for name, fields in section:
            try:
                record = _edited_record(fields, named, name)
                rows[record.session] = encode_row(record)
            except (ValueError, TypeError) as error:
                skipped.append(f"{name[:80]}: {error}")
                continue
            if named == "key":
                holding.add(record.session)
    number = whole.get("number")
    return Content(
        rows=rows,
        holding=holding,
        number=number if isinstance(number, int) else 0,
        clean=False,
        edited=True,
        skipped=tuple(skipped),
    )


def _edited_record(fields: JsonObject, named: str, name: str) -> SessionRecord:
    """A record as its place in the file tells: under a key it is in use. Raises ValueError and TypeError."""
    record = record_from_json({**fields, named: name})
    in_use = named == "key" and record.state == "former"
    return dataclasses.replace(record, state="active") if in_use else record


def last_changes(changes: Sequence[Change]) -> list[Change]:
    """The last change of each session, in the order these were made."""
    last: dict[str, Change] = {}
    for change in changes:
        last.pop(change.session, None)
        last[change.session] = change
    return list(last.values())
