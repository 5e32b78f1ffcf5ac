"""Lines of a transcript: encoding with a checksum, and reading back whatever is on the disk."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

import orjson

from sessions.entries import (
    DamagedEntry,
    Entry,
    Header,
    JsonObject,
    UnknownEntry,
    entry_from_json,
    entry_to_json,
    header_from_json,
    header_to_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ProblemKind = Literal[
    "torn",
    "no_newline",
    "damaged",
    "checksum",
    "spliced",
    "nul",
    "blank",
    "bom",
    "crlf",
    "header",
    "duplicate",
    "gap",
    "unknown_type",
]
BOM = b"\xef\xbb\xbf"
_CRC = b',"crc":'
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Problem:
    """Something about a line that is not as it was written; `offset` is the line's first byte in the file."""

    kind: ProblemKind
    offset: int
    seq: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a transcript holds. `whole_bytes` is where the last whole line ends, `torn` what follows it."""

    header: Header | None = None
    entries: tuple[Entry, ...] = ()
    problems: tuple[Problem, ...] = ()
    whole_bytes: int = 0
    torn: bytes = b""


def encode_line(fields: JsonObject) -> bytes:
    """One line: the object with `crc` as its last field, the CRC-32 of the line without it."""
    body = orjson.dumps(fields)
    return b'%b,"crc":%d}\n' % (body[:-1], zlib.crc32(body))


def encode_entry(entry: Entry) -> bytes:
    return encode_line(entry_to_json(entry))


def encode_header(header: Header) -> bytes:
    return encode_line(header_to_json(header))


def decode_line(line: bytes) -> JsonObject:
    """The object of one line without its checksum. A missing checksum is fine. Raises DamagedEntry."""
    at = line.rfind(_CRC)
    digits = line[at + len(_CRC) : -1]
    if at > 0 and digits.isdigit() and line.endswith(b"}"):
        body = line[:at] + b"}"
        if zlib.crc32(body) != int(digits):
            raise DamagedEntry("checksum does not fit; remove the crc field if the line was edited by hand")
    else:
        body = line
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise DamagedEntry(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise DamagedEntry("not a JSON object")
    return cast("JsonObject", fields)


@dataclass(slots=True)
class _Reading:
    header: Header | None = None
    entries: list[Entry] = field(default_factory=list[Entry])
    problems: list[Problem] = field(default_factory=list[Problem])
    seen: set[int] = field(default_factory=set[int])
    last_seq: int = 0

    def problem(self, kind: ProblemKind, offset: int, detail: str = "", seq: int | None = None) -> None:
        self.problems.append(Problem(kind, offset, seq, detail))

    def take(self, fields: JsonObject, offset: int) -> None:
        """Adds one record. Raises DamagedEntry."""
        if fields.get("type") == "session":
            if self.header is not None:
                raise DamagedEntry("a second header")
            self.header = header_from_json(fields)
            return
        entry = entry_from_json(fields)
        if entry.seq in self.seen:
            self.problem("duplicate", offset, "an entry with this seq came before", entry.seq)
            return
        if self.last_seq and entry.seq > self.last_seq + 1:
            self.problem("gap", offset, f"seq {self.last_seq + 1} to {entry.seq - 1} are missing", entry.seq)
        if isinstance(entry, UnknownEntry):
            self.problem("unknown_type", offset, f"type {entry.raw.get('type')!r} of a newer version", entry.seq)
        self.seen.add(entry.seq)
        self.last_seq = max(self.last_seq, entry.seq)
        self.entries.append(entry)


def scan(payload: bytes) -> Scan:
    """Reads a whole transcript. Never raises: what cannot be read is reported with its place, the rest is kept."""
    reading = _Reading()
    whole, offset = 0, 0
    torn = b""
    for line, end in _lines(payload):
        terminated = end > offset + len(line)
        if terminated or _is_record(line):
            if not terminated:
                reading.problem("no_newline", offset, "the last line has no line end")
            _read_line(reading, line, offset)
            whole = end
        elif line:
            torn = line
            reading.problem("torn", offset, f"{len(line)} bytes of a line that was not finished")
        offset = end
    if reading.header is None and (reading.entries or reading.problems):
        reading.problem("header", 0, "no readable first line; key and agent come from the index")
    return Scan(
        header=reading.header,
        entries=tuple(reading.entries),
        problems=tuple(reading.problems),
        whole_bytes=whole,
        torn=torn,
    )


def _lines(payload: bytes) -> Iterator[tuple[bytes, int]]:
    """(line without its end, offset after its end)."""
    offset = 0
    while offset < len(payload):
        at = payload.find(b"\n", offset)
        if at < 0:
            yield payload[offset:], len(payload)
            return
        yield payload[offset:at], at + 1
        offset = at + 1


def _is_record(line: bytes) -> bool:
    """Whether an unterminated last line holds a whole record all the same (only its line end was cut)."""
    try:
        return "type" in decode_line(line.removeprefix(BOM)) and _CRC in line
    except DamagedEntry:
        return False


def _read_line(reading: _Reading, raw: bytes, offset: int) -> None:
    line = raw
    if offset == 0 and line.startswith(BOM):
        line = line[len(BOM) :]
        reading.problem("bom", offset)
    if line.endswith(b"\r"):
        line = line[:-1]
        reading.problem("crlf", offset)
    if b"\0" in line:
        line = line.replace(b"\0", b"")
        reading.problem("nul", offset, f"{len(raw) - len(line)} NUL bytes")
    if not line.strip():
        reading.problem("blank", offset)
        return
    try:
        reading.take(decode_line(line), offset)
    except DamagedEntry as error:
        _read_damaged(reading, line, offset, error)


def _read_damaged(reading: _Reading, line: bytes, offset: int, error: DamagedEntry) -> None:
    """A line that is no single record: perhaps several on one line, perhaps a whole one behind half a one."""
    records, rest = _split_records(line)
    taken = 0
    for record in records:
        try:
            reading.take(decode_line(record), offset)
            taken += 1
        except DamagedEntry as inner:
            reading.problem(_kind_of(inner), offset, str(inner))
    if taken > 1 or (taken == 1 and rest):
        reading.problem("spliced", offset, f"{taken} records on one line")
    if (rest or not records) and taken < 2:
        reading.problem(_kind_of(error), offset, str(error))


def _kind_of(error: DamagedEntry) -> ProblemKind:
    return "checksum" if "checksum" in str(error) else "damaged"


def _split_records(line: bytes) -> tuple[list[bytes], bool]:
    """The JSON objects that can be found in a line, and whether anything else was there."""
    text = line.decode("utf-8", "replace")
    found: list[bytes] = []
    rest = False
    at = 0
    while at < len(text):
        start = text.find('{"', at)
        if start < 0:
            return found, rest or bool(text[at:].strip())
        rest = rest or bool(text[at:start].strip())
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            at, rest = start + 2, True
            continue
        if isinstance(value, dict) and "type" in value:
            found.append(text[start:end].encode())
        else:
            rest = True
        at = end
    return found, rest
