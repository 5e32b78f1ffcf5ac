"""Lines of a transcript: encoding with a checksum, and reading back whatever is on the disk."""

from __future__ import annotations

import json
import math
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import orjson

from sessions.entries import (
    FORMAT,
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
    "torn",  # the last line was not finished; its bytes are in Scan.torn
    "no_newline",  # the last line is whole but for its line end
    "damaged",  # bytes that are no entry; skipped
    "checksum",  # an entry whose checksum does not fit; skipped
    "spliced",  # more than one record, or a record and other bytes, on one line
    "nul",
    "blank",
    "bom",
    "crlf",
    "header",  # the first line is missing, damaged, or of a newer format
    "duplicate_seq",
    "out_of_order",
    "gap",
    "unknown_type",  # kept as UnknownEntry
]

BOM = b"\xef\xbb\xbf"
_CRC = b',"crc":'
_BLANK = b" \t\r\0"
_START = re.compile(rb'\{"(?:seq|type)"')
_SEQ = re.compile(rb'"seq":(\d{1,18})[,}]')
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["{}]', re.DOTALL)
_MAX_TRIES = 16
"""How many places of one damaged line may turn out to be no record; more would make a hostile line quadratic."""


class ChecksumMismatch(DamagedEntry):
    """A line that is JSON, but not what its checksum was made of."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written. `offset` is its first byte in the file; `seq` the entry it concerns,
    for damaged ones the seq that can still be read there or was next."""

    kind: ProblemKind
    offset: int
    seq: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a transcript holds. `offsets` are those of the lines of `entries`; `whole_bytes` is where the last whole
    line ends in the file, `torn` what follows it. `ends_open`: the last whole line still lacks its line end."""

    header: Header | None = None
    entries: tuple[Entry, ...] = ()
    offsets: tuple[int, ...] = ()
    problems: tuple[Problem, ...] = ()
    whole_bytes: int = 0
    torn: bytes = b""
    ends_open: bool = False


# --- writing ----------------------------------------------------------------------------------------------------------


def seal(body: bytes) -> bytes:
    """One line of a JSON object with at least one field: `crc`, the CRC-32 of the text without it, comes last."""
    return b'%b,"crc":%d}\n' % (body[:-1], zlib.crc32(body))


def dump(fields: JsonObject) -> bytes:
    """The object as JSON. Half characters (lone surrogates) become U+FFFD, NaN becomes null.

    Raises ValueError when the object is nested so deeply that nobody could read it back.
    """
    try:
        return orjson.dumps(fields)
    except TypeError:
        pass
    try:
        return json.dumps(_plain(fields), ensure_ascii=False, separators=(",", ":")).encode()
    except RecursionError as error:
        raise ValueError("the object is nested too deeply to be written") from error


def encode_line(fields: JsonObject) -> bytes:
    """The sealed line of an object. Raises ValueError as dump does."""
    return seal(dump(fields))


def encode_entry(entry: Entry) -> bytes:
    """The line of one entry."""
    return encode_line(entry_to_json(entry))


def encode_header(header: Header) -> bytes:
    """The first line of a transcript."""
    return encode_line(header_to_json(header))


def _plain(value: Any) -> Any:
    """The same value with nothing in it that JSON cannot hold."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {_plain(str(name)): _plain(item) for name, item in cast("dict[Any, Any]", value).items()}
        case list() | tuple():
            return [_plain(item) for item in cast("list[Any]", value)]
        case _:
            return value


# --- reading one line -------------------------------------------------------------------------------------------------


def decode_line(line: bytes) -> JsonObject:
    """The object of one line, without its checksum; a line without one is taken as it is. Raises DamagedEntry."""
    fields = _parse(line)
    if "crc" in fields:
        if not sealed(line):
            raise ChecksumMismatch("the checksum does not fit; remove the crc field of a line edited by hand")
        del fields["crc"]
    return fields


def sealed(line: bytes) -> bool:
    """Whether the line ends with a checksum that fits the text before it."""
    at = line.rfind(_CRC)
    digits = line[at + len(_CRC) : -1]
    if at < 0 or not digits.isdigit() or len(digits) > 10 or line[-1:] != b"}":
        return False
    return zlib.crc32(line[:at] + b"}") == int(digits)


def _parse(line: bytes) -> JsonObject:
    try:
        value: object = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        value = _parse_leniently(line)
        if value is None:
            raise DamagedEntry(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DamagedEntry("not a JSON object")
    return cast("JsonObject", value)


def _parse_leniently(line: bytes) -> object:
    """What other writers leave that orjson refuses: lone surrogates and NaN. None when it is no JSON at all."""
    if b"\\u" not in line and b"NaN" not in line and b"Infinity" not in line:
        return None
    try:
        return _plain(json.loads(line))
    except (ValueError, RecursionError):
        return None


# --- reading a file ---------------------------------------------------------------------------------------------------


def scan(payload: bytes, base_offset: int = 0, after_seq: int = 0) -> Scan:
    """Reads a transcript, or what follows `base_offset` in it, where `after_seq` was the last entry before.

    Never raises: what cannot be read is reported with its place, the rest is kept.
    """
    return _Reading(base_offset, after_seq).read(payload)


class _Reading:
    """One pass over the lines of a transcript."""

    def __init__(self, base_offset: int, after_seq: int) -> None:
        self._base = base_offset
        self._header: Header | None = None
        self._wants_header = base_offset == 0
        self._entries: list[Entry] = []
        self._offsets: list[int] = []
        self._problems: list[Problem] = []
        self._last_seq = after_seq
        self._knows_last = after_seq > 0
        self._skipped = 0
        self._by_seq: dict[int, list[Entry]] | None = None
        self._crlf: list[int] = []
        self._blank: tuple[int, int] | None = None

    def read(self, payload: bytes) -> Scan:
        at = 0
        if self._base == 0 and payload.startswith(BOM):
            self._problem("bom", 0, "byte order mark before the first line")
            at = len(BOM)
        end = payload.find(b"\n", at)
        while end >= 0:
            self._line(payload[at:end], self._base + at)
            at = end + 1
            end = payload.find(b"\n", at)
        whole = at + (self._last_line(payload[at:], self._base + at) if at < len(payload) else 0)
        self._conclude(payload)
        return Scan(
            header=self._header,
            entries=tuple(self._entries),
            offsets=tuple(self._offsets),
            problems=tuple(self._problems),
            whole_bytes=self._base + whole,
            torn=payload[whole:],
            ends_open=at < whole,
        )

    def _conclude(self, payload: bytes) -> None:
        self._end_blank_run()
        if self._crlf:
            self._problem("crlf", self._crlf[0], f"{len(self._crlf)} lines end with CR LF")
        if self._wants_header and self._base == 0:
            what = "there is no whole line" if payload else "the file is empty"
            self._problem("header", 0, f"{what}; key and agent come from the index")

    def _problem(self, kind: ProblemKind, offset: int, detail: str, seq: int | None = None) -> None:
        self._problems.append(Problem(kind, offset, seq, detail))

    def _line(self, line: bytes, offset: int) -> None:
        if line[-1:] == b"\r":
            line = line[:-1]
            self._crlf.append(offset)
        try:
            fields = decode_line(line)
        except DamagedEntry as error:
            self._odd_line(line, offset, error)
        else:
            self._take(fields, offset)

    def _odd_line(self, line: bytes, offset: int, error: DamagedEntry) -> None:
        if not line.strip(b" \t"):
            self._blank = (self._blank[0] if self._blank else offset, (self._blank[1] if self._blank else 0) + 1)
            return
        if isinstance(error, ChecksumMismatch):
            self._skip("checksum", line, offset, str(error))
            return
        self._pieces(line, offset, error)

    def _last_line(self, line: bytes, offset: int) -> int:
        """How many bytes of an unterminated last line count as whole. What is no whole record there is torn."""
        try:
            fields = decode_line(line)
        except ChecksumMismatch as error:
            self._skip("checksum", line, offset, str(error))
            whole = len(line)
        except DamagedEntry:
            whole = self._pieces(line, offset, None)
        else:
            self._take(fields, offset)
            whole = len(line)
        if whole:
            self._problem("no_newline", offset, "the last line has no line end")
        if whole < len(line):
            torn = line[whole:]
            kind = "NUL bytes" if not torn.strip(b"\0") else "bytes of a line that was not finished"
            self._problem("torn", offset + whole, f"{len(torn)} {kind}", self._seq_in(torn))
        return whole

    def _pieces(self, line: bytes, offset: int, error: DamagedEntry | None) -> int:
        """Takes the records out of a line that is not exactly one; returns where the last of them ends.

        With `error`, why the whole line cannot be read, what follows the last record is reported as damaged.
        """
        nul = line.count(b"\0")
        if nul:
            self._problem("nul", offset, f"{nul} NUL bytes")
        records, at = 0, 0
        damaged: list[tuple[int, int]] = []
        for start, end, fields in _records_in(line):
            if line[at:start].strip(_BLANK):
                damaged.append((at, start))
                self._damaged(line, offset, at, start, error)
            self._take(fields, offset + start)
            records, at = records + 1, end
        if error is not None and line[at:].strip(_BLANK):
            damaged.append((at, len(line)))
            self._damaged(line, offset, at, len(line), error)
        if records > 1 or (records and damaged):
            self._problem("spliced", offset, f"{records} records on one line, {len(damaged)} damaged pieces")
        return at

    def _damaged(self, line: bytes, offset: int, start: int, end: int, error: DamagedEntry | None) -> None:
        detail = str(error) if error is not None and end - start == len(line) else f"{end - start} bytes are no record"
        self._skip("damaged", line[start:end], offset + start, detail)

    def _skip(self, kind: ProblemKind, piece: bytes, offset: int, detail: str) -> None:
        self._end_blank_run()
        if self._wants_header:
            self._wants_header = False
            self._problem("header", offset, f"the first line cannot be read ({detail})")
            return
        self._problem(kind, offset, detail, self._seq_in(piece))
        self._skipped += 1

    def _seq_in(self, piece: bytes) -> int | None:
        found = _SEQ.search(piece)
        if found is not None:
            return int(found[1])
        return self._last_seq + self._skipped + 1 if self._knows_last else None

    def _take(self, fields: JsonObject, offset: int) -> None:
        if self._blank is not None:
            self._end_blank_run()
        if fields.get("type") == "session" and "seq" not in fields:
            self._take_header(fields, offset)
            return
        try:
            entry = entry_from_json(fields)
        except (DamagedEntry, OverflowError, RecursionError) as error:
            self._skip(
                "damaged", b'"seq":%d,' % seq if type(seq := fields.get("seq")) is int else b"", offset, str(error)
            )
            return
        if self._wants_header:
            self._wants_header = False
            self._problem("header", offset, "the first line is no header; key and agent come from the index")
        if self._in_place(entry, offset):
            if isinstance(entry, UnknownEntry):
                self._problem("unknown_type", offset, f"type {entry.raw.get('type')!r} is not known here", entry.seq)
            self._entries.append(entry)
            self._offsets.append(offset)
            if self._by_seq is not None:
                self._by_seq.setdefault(entry.seq, []).append(entry)

    def _take_header(self, fields: JsonObject, offset: int) -> None:
        if not self._wants_header:
            self._problem("header", offset, "a second header in the file")
            return
        self._wants_header = False
        try:
            self._header = header_from_json(fields)
        except (DamagedEntry, OverflowError) as error:
            self._problem("header", offset, str(error))
            return
        self._knows_last = self._header.generation == 1
        if self._header.format > FORMAT:
            self._problem("header", offset, f"format {self._header.format} is newer than {FORMAT}; update sessiond")

    def _in_place(self, entry: Entry, offset: int) -> bool:
        """Reports an entry whose seq is not the next one; False for one that is there already, word for word."""
        seq, expected = entry.seq, self._last_seq + 1
        if seq == expected or (seq > expected and not self._knows_last):
            pass
        elif seq > expected:
            if seq - expected > self._skipped:
                self._problem("gap", offset, f"seq {expected} to {seq - 1} are missing", seq)
        else:
            same = self._known(seq)
            if entry in same:
                self._problem("duplicate_seq", offset, "the same entry again; read once", seq)
                return False
            kind: ProblemKind = "duplicate_seq" if same else "out_of_order"
            self._problem(kind, offset, f"comes after seq {self._last_seq}", seq)
            return True
        self._last_seq, self._knows_last, self._skipped = seq, True, 0
        return True

    def _known(self, seq: int) -> list[Entry]:
        if self._by_seq is None:
            self._by_seq = {}
            for entry in self._entries:
                self._by_seq.setdefault(entry.seq, []).append(entry)
        return self._by_seq.get(seq, [])

    def _end_blank_run(self) -> None:
        if self._blank is not None:
            offset, count = self._blank
            self._blank = None
            self._problem("blank", offset, f"{count} blank lines")


# --- records inside a damaged line ------------------------------------------------------------------------------------


def _records_in(line: bytes) -> Iterator[tuple[int, int, JsonObject]]:
    """(start, end, object) of the records in a line.

    Behind damaged bytes a record counts only with a checksum that fits: what looks like one there may be the inside of
    another.
    """
    at, anchored, tries = 0, True, 0
    while tries < _MAX_TRIES:
        at += len(line) - at - len(line[at:].lstrip(_BLANK))
        if at >= len(line):
            return
        end = _object_end(line, at)
        piece = b"" if end is None else line[at:end]
        if piece and (anchored or sealed(piece)):
            try:
                fields = decode_line(piece)
            except DamagedEntry:
                pass
            else:
                yield at, at + len(piece), fields
                at, anchored = at + len(piece), True
                continue
        following = _START.search(line, at + 1)
        if following is None:
            return
        at, anchored, tries = following.start(), False, tries + 1


def _object_end(line: bytes, start: int) -> int | None:
    """Where the object that starts here ends, by its braces; None when it does not, or none starts here."""
    depth = 0
    for token in _TOKEN.finditer(line, start):
        match token[0]:
            case b"{":
                depth += 1
            case b"}":
                depth -= 1
            case b'"':
                return None
            case _:
                pass
        if depth <= 0:
            return token.end() if depth == 0 and token[0] == b"}" else None
    return None
