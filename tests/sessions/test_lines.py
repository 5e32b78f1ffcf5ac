"""Lines of a transcript: what is written comes back, and nothing on a disk can stop the reader."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.entries import (
    AssistantEntry,
    CarriedEntry,
    CommandEntry,
    DamagedEntry,
    Entry,
    Header,
    RecallEntry,
    RetractedEntry,
    ToolCall,
    ToolResultEntry,
    UnknownEntry,
    UserEntry,
    entry_from_json,
)
from sessions.lines import BOM, ProblemKind, Scan, decode_line, encode_entry, encode_header, encode_line, scan, sealed
from sessions.usage import Usage
from tests.sessions.builders import one_of_each

if TYPE_CHECKING:
    from collections.abc import Sequence

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
HEADER = Header(session="01ARZ3NDEKTSV4RRFFQ69G5FAV", generation=1, key="agent:main:main", agent="main", at=AT)


def user(seq: int, text: str = "hi") -> UserEntry:
    return UserEntry(seq=seq, id=f"id{seq}", at=AT, text=text, turn=f"turn{seq}")


def lines(*seqs: int) -> list[bytes]:
    return [encode_entry(user(seq)) for seq in seqs]


def transcript(*seqs: int) -> bytes:
    return encode_header(HEADER) + b"".join(lines(*seqs))


def seqs(found: Scan) -> list[int]:
    return [entry.seq for entry in found.entries]


def kinds(found: Scan) -> list[ProblemKind]:
    return [problem.kind for problem in found.problems]


# --- what is written comes back ---------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=()), max_size=40)
plain_texts = st.text(max_size=40)
times = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)).map(
    lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)
)
calls = st.builds(ToolCall, id=plain_texts, name=plain_texts, arguments=plain_texts)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | plain_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_texts, inner, max_size=3),
    max_leaves=8,
)
counts = st.integers(0, 10**9)
usages = st.none() | st.builds(Usage, input_total=counts, cached_read=counts, output=counts, reported=st.booleans())
single = st.one_of(
    st.builds(UserEntry, at=times, id=plain_texts, text=plain_texts, sender=st.none() | plain_texts),
    st.builds(AssistantEntry, at=times, text=plain_texts, calls=st.lists(calls, max_size=3).map(tuple), usage=usages),
    st.builds(ToolResultEntry, at=times, call_id=plain_texts, name=plain_texts, text=plain_texts),
    st.builds(CommandEntry, at=times, name=plain_texts, argument=plain_texts, reply=st.none() | plain_texts),
    st.builds(RecallEntry, at=times, shown=st.dictionaries(plain_texts, json_values, max_size=3)),
    st.builds(RetractedEntry, at=times, seqs=st.lists(st.integers(1, 99), max_size=4).map(tuple), reason=plain_texts),
)
entries = single | st.builds(CarriedEntry, at=times, entry=single.map(lambda e: dataclasses.replace(e, seq=1)))


def numbered(found: Sequence[Entry]) -> list[Entry]:
    return [dataclasses.replace(entry, seq=seq) for seq, entry in enumerate(found, 1)]


@given(st.lists(entries, min_size=1, max_size=6).map(numbered))
def test_entries_read_back_as_they_were_written(written: list[Entry]) -> None:
    payload = encode_header(HEADER) + b"".join(map(encode_entry, written))
    found = scan(payload)
    assert found.entries == tuple(written)
    assert found.header == HEADER
    assert found.problems == ()
    assert (found.whole_bytes, found.torn, found.ends_open) == (len(payload), b"", False)
    for entry, offset in zip(found.entries, found.offsets, strict=True):
        assert payload[offset:].startswith(encode_entry(entry))


def test_a_history_of_all_common_kinds_reads_back() -> None:
    found = scan(encode_header(HEADER) + b"".join(map(encode_entry, one_of_each())))
    assert (list(found.entries), found.problems) == (one_of_each(), ())


@given(texts)
def test_text_with_half_characters_is_written_and_is_valid_when_read(text: str) -> None:
    (read,) = scan(encode_entry(user(1, text)), 1).entries
    assert isinstance(read, UserEntry)
    assert read.text.encode("utf-8") == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


@given(st.dictionaries(plain_texts, json_values, min_size=1, max_size=4).filter(lambda d: "crc" not in d))
def test_a_sealed_line_fits_its_checksum_and_any_changed_byte_does_not(fields: dict[str, Any]) -> None:
    line = encode_line(fields)[:-1]
    assert sealed(line)
    for at in range(line.rindex(b',"crc":')):
        assert not sealed(line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :])


def test_infinite_numbers_become_null_and_bottomless_nesting_is_refused() -> None:
    assert decode_line(encode_line({"a": float("nan"), "b": "\ud800", "c": {1: 2}})[:-1]) == {
        "a": None,
        "b": "�",
        "c": {"1": 2},
    }
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ValueError, match="too deeply"):
        encode_line({"a": deep})


# --- what a disk may hold ---------------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
@settings(max_examples=200)
def test_no_bytes_stop_the_reader(noise: bytes) -> None:
    for payload in (noise, transcript(1, 2) + noise, noise + b"\n" + transcript(1, 2), transcript(1) + noise[:50] * 3):
        found = scan(payload)
        assert found.whole_bytes + len(found.torn) == len(payload)
        assert payload.endswith(found.torn)


@given(
    st.lists(st.sampled_from([*lines(1, 2, 3), *(line[:-1] for line in lines(1, 2)), b"\0", b"\n", b'{"', BOM, b"{}"]))
)
def test_mixed_pieces_of_lines_never_lose_a_whole_line(pieces: list[bytes]) -> None:
    payload = b"".join(pieces)
    found = scan(payload)
    for line in payload.split(b"\n"):
        if sealed(line):
            assert entry_from_json(decode_line(line)) in found.entries


@given(st.data())
def test_one_changed_byte_costs_at_most_its_own_line(data: st.DataObject) -> None:
    payload = transcript(1, 2, 3)
    at = data.draw(st.integers(0, len(payload) - 1))
    value = data.draw(st.integers(0, 255))
    changed = payload[:at] + bytes([value]) + payload[at + 1 :]
    found = scan(changed)
    line = payload[:at].count(b"\n")
    whole = {1, 2, 3} - ({line} if line else set()) - ({line + 1} if payload[at : at + 1] == b"\n" else set())
    assert whole <= set(seqs(found))
    in_checksum = at >= payload.rfind(b',"crc":', 0, payload.index(b"\n", at)) > payload.rfind(b"\n", 0, at)
    assert found.problems or changed == payload or in_checksum


def test_a_file_cut_at_any_byte_keeps_all_whole_lines() -> None:
    payload = transcript(1, 2, 3)
    ends = [at + 1 for at, byte in enumerate(payload) if byte == 0x0A]
    for cut in range(len(payload) + 1):
        found = scan(payload[:cut])
        whole = sum(end - 1 <= cut for end in ends)
        assert len(found.entries) == max(0, whole - 1), cut
        assert found.whole_bytes == max((end if end <= cut else cut for end in ends if end - 1 <= cut), default=0)
        assert found.torn == payload[found.whole_bytes : cut]
        assert found.ends_open == (cut + 1 in ends)
        assert ("torn" in kinds(found)) == bool(found.torn)


ONE, TWO, THREE = lines(1, 2, 3)
HEAD = encode_header(HEADER)
NO_CRC = ONE[: ONE.index(b',"crc"')] + b"}\n"
WRONG_CRC = ONE.replace(b'"hi"', b'"ho"')
CRC_FIRST = ONE.replace(b'{"seq"', b'{"crc":1,"seq"')
UNKNOWN = encode_line({"seq": 1, "type": "hologram", "at": "2026-11-30T12:00Z"})
LONG_AGO = b"0001-01-01T00:00+23:59"
TORN = TWO[: len(TWO) // 2]

CASES: list[tuple[str, bytes, list[int], list[ProblemKind]]] = [
    ("hand-made lines have no checksum", HEAD + NO_CRC + TWO, [1, 2], []),
    ("a wrong checksum is skipped", HEAD + WRONG_CRC + TWO, [2], ["checksum"]),
    ("a checksum that is not last cannot fit", HEAD + CRC_FIRST + TWO, [2], ["checksum"]),
    ("a damaged line in the middle", HEAD + ONE + TORN + b"\n" + THREE, [1, 3], ["damaged"]),
    ("two records on one line", HEAD + ONE[:-1] + TWO + THREE, [1, 2, 3], ["spliced"]),
    ("a record behind half a one", HEAD + ONE + TORN + TWO + THREE, [1, 2, 3], ["damaged", "spliced"]),
    ("a record before half a one", HEAD + ONE[:-1] + TORN + b"\n" + THREE, [1, 3], ["damaged", "spliced"]),
    ("NUL bytes before a record", HEAD + b"\0" * 512 + ONE + TWO, [1, 2], ["nul"]),
    ("NUL bytes between records", HEAD + ONE[:-1] + b"\0\0" + TWO, [1, 2], ["nul", "spliced"]),
    ("a line of NUL bytes", HEAD + ONE + b"\0\0\n" + TWO, [1, 2], ["nul"]),
    ("NUL bytes inside a record", HEAD + ONE[:20] + b"\0\0" + ONE[22:] + TWO, [2], ["nul", "damaged"]),
    ("NUL bytes at the end", HEAD + ONE + b"\0" * 9, [1], ["nul", "torn"]),
    ("NUL bytes behind a record without line end", HEAD + ONE[:-1] + b"\0" * 9, [1], ["nul", "no_newline", "torn"]),
    ("blank lines are one report a run", HEAD + b"\n\n" + ONE + b" \n" + TWO, [1, 2], ["blank", "blank"]),
    ("a byte order mark", BOM + HEAD + ONE, [1], ["bom"]),
    ("CRLF", (HEAD + ONE + TWO).replace(b"\n", b"\r\n"), [1, 2], ["crlf"]),
    ("a damaged header", HEAD[:30] + b"\n" + ONE, [1], ["header"]),
    ("a header with a wrong checksum", HEAD.replace(b":main", b":evil") + ONE, [1], ["header"]),
    ("a header without a key", encode_line({"type": "session", "format": 1}) + ONE, [1], ["header"]),
    ("no header", ONE + TWO, [1, 2], ["header"]),
    ("an empty file", b"", [], ["header"]),
    ("a header of a newer format", encode_header(dataclasses.replace(HEADER, format=2)) + ONE, [1], ["header"]),
    ("a second header", HEAD + ONE + HEAD + TWO, [1, 2], ["header"]),
    ("the same entry twice is read once", HEAD + ONE + ONE + TWO, [1, 2], ["duplicate_seq"]),
    (
        "another entry with the same seq is kept",
        HEAD + ONE + encode_entry(user(1, "other")) + TWO,
        [1, 1, 2],
        ["duplicate_seq"],
    ),
    ("out of order", HEAD + ONE + THREE + TWO, [1, 3, 2], ["gap", "out_of_order"]),
    ("a gap", HEAD + ONE + encode_entry(user(5)), [1, 5], ["gap"]),
    ("a gap at the beginning", HEAD + TWO, [2], ["gap"]),
    ("an unknown type is kept", HEAD + UNKNOWN, [1], ["unknown_type"]),
    ("a seq that is no number", HEAD + encode_line({"seq": "1", "type": "user"}) + TWO, [2], ["damaged"]),
    ("a text that is none", HEAD + NO_CRC.replace(b'"hi"', b"null") + TWO, [2], ["damaged"]),
    ("a time out of bounds", HEAD + NO_CRC.replace(b"2026-11-30T12:00:00.000Z", LONG_AGO), [], ["damaged"]),
    ("a JSON value that is no object", HEAD + b"[1]\n" + ONE, [1], ["damaged"]),
    ("a lone surrogate of another writer", HEAD + NO_CRC.replace(b'"hi"', b'"\\ud83d"'), [1], []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("payload", "entries_read", "reported"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_what_is_found_is_read_and_reported(
    payload: bytes, entries_read: list[int], reported: list[ProblemKind]
) -> None:
    found = scan(payload)
    assert seqs(found) == entries_read
    assert kinds(found) == reported


def test_a_later_generation_starts_where_it_starts() -> None:
    found = scan(encode_header(dataclasses.replace(HEADER, generation=3)) + lines(70)[0] + lines(71)[0])
    assert (seqs(found), found.problems) == ([70, 71], ())


def test_a_problem_tells_its_place_and_the_entry_it_cost() -> None:
    found = scan(HEAD + ONE + TORN + b"\n" + b"noise\n" + encode_entry(user(4)))
    assert [(p.kind, p.offset, p.seq) for p in found.problems] == [
        ("damaged", len(HEAD + ONE), 2),
        ("damaged", len(HEAD + ONE + TORN) + 1, 3),
    ]


def test_reading_goes_on_from_a_known_offset() -> None:
    payload = transcript(1, 2, 3)
    base = len(transcript(1))
    found = scan(payload[base:], base, 1)
    assert (seqs(found), found.problems, found.whole_bytes) == ([2, 3], (), len(payload))
    assert found.offsets == (base, len(transcript(1, 2)))
    assert kinds(scan(payload[len(transcript(1, 2)) :], len(transcript(1, 2)), 1)) == ["gap"]


def test_what_looks_like_a_record_inside_half_a_one_is_none() -> None:
    carried = encode_entry(CarriedEntry(seq=2, at=AT, entry=user(1, "inside")))
    found = scan(HEAD + ONE + carried[: carried.index(b',"crc"') - 1] + THREE)
    assert seqs(found) == [1, 3]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", [b'{"seq"', b'{"seq":', b'\\"', b'{"a":"', b"[", b'{"a":', b"\0", b" ", b"{}"])
def test_reading_a_hostile_line_stays_quick(piece: bytes) -> None:
    assert seqs(scan(HEAD + piece * 100_000 + b"\n" + ONE)) == [1]


def test_an_unknown_entry_is_written_again_as_it_came() -> None:
    line = encode_line({"seq": 1, "type": "hologram", "at": "2026-11-30T12:00:00Z", "depth": 3})
    (entry,) = scan(HEAD + line).entries
    assert isinstance(entry, UnknownEntry)
    assert encode_entry(entry) == line


def test_damage_says_what_is_wrong() -> None:
    for line, why in ((b"x", "not JSON"), (b"3", "not a JSON object"), (WRONG_CRC[:-1], "remove the crc field")):
        with pytest.raises(DamagedEntry, match=why):
            decode_line(line)
    assert orjson.loads(ONE) == json.loads(ONE)
