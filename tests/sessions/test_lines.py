from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.entries import DamagedEntry, Header
from sessions.lines import BOM, decode_line, encode_entry, encode_header, scan
from tests.sessions.builders import AT, SESSION, one_of_each, user

HEADER = Header(session=SESSION, generation=1, key="agent:main:main", agent="main", at=AT)


def transcript() -> bytes:
    return encode_header(HEADER) + b"".join(encode_entry(entry) for entry in one_of_each())


def kinds(payload: bytes) -> list[str]:
    return [problem.kind for problem in scan(payload).problems]


def test_what_was_written_is_read_back() -> None:
    content = scan(transcript())
    assert content.header == HEADER
    assert list(content.entries) == one_of_each()
    assert content.problems == ()
    assert content.whole_bytes == len(transcript())


def test_the_checksum_is_that_of_the_line_without_it() -> None:
    line = encode_entry(user("hi", 1)).rstrip(b"\n")
    body, _, crc = line.rpartition(b',"crc":')
    assert zlib.crc32(body + b"}") == int(crc[:-1])


@pytest.mark.parametrize("cut", range(1, 400))
def test_a_transcript_cut_anywhere_keeps_every_whole_entry(cut: int) -> None:
    payload = transcript()
    kept = payload[: len(payload) - cut]
    content = scan(kept)
    whole = kept.count(b"\n") - 1
    assert len(content.entries) in (whole, whole + 1)
    assert list(content.entries) == one_of_each()[: len(content.entries)]
    assert content.whole_bytes + len(content.torn) == len(kept)


def test_a_flipped_bit_costs_one_line_and_is_reported() -> None:
    lines = transcript().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"noon", b"moon")
    content = scan(b"".join(lines))
    assert [e.seq for e in content.entries] == [1, 2, 4, 5, 6, 7]
    assert [(p.kind, p.offset) for p in content.problems][0] == ("checksum", sum(map(len, lines[:3])))


def test_two_records_on_one_line_are_both_read() -> None:
    payload = encode_header(HEADER) + encode_entry(user("a", 1)).rstrip(b"\n") + encode_entry(user("b", 2))
    content = scan(payload)
    assert [e.seq for e in content.entries] == [1, 2]
    assert [p.kind for p in content.problems] == ["spliced"]


def test_a_whole_record_behind_half_a_one_is_read() -> None:
    half = encode_entry(user("lost for ever", 1))[:40]
    content = scan(encode_header(HEADER) + half + encode_entry(user("b", 2)))
    assert [e.seq for e in content.entries] == [2]
    assert "spliced" in [p.kind for p in content.problems]


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda p: BOM + p, "bom"),
        (lambda p: p.replace(b"\n", b"\r\n"), "crlf"),
        (lambda p: p.replace(b"\n", b"\n\n", 1), "blank"),
        (lambda p: p.replace(b"\n", b"\n\0\0\0\0", 1), "nul"),
        (lambda p: p.replace(b"\n", b"\n\0\0\0\0\n", 1), "nul"),
    ],
)
def test_dirt_between_lines_is_tolerated_and_reported(spoil, kind) -> None:  # type: ignore[no-untyped-def]
    content = scan(spoil(transcript()))
    assert list(content.entries) == one_of_each()
    assert kind in [problem.kind for problem in content.problems]


def test_a_damaged_header_never_costs_the_rest() -> None:
    payload = transcript()
    content = scan(b"{broken" + payload[7:])
    assert content.header is None
    assert list(content.entries) == one_of_each()
    assert "header" in [p.kind for p in content.problems]


def test_a_line_without_checksum_is_fine_and_so_is_an_unknown_type() -> None:
    content = scan(
        encode_header(HEADER) + b'{"type":"user","seq":1,"at":"2026-01-01T00:00:00Z","text":"by hand"}\n'
        b'{"type":"novelty","seq":2,"at":"2026-01-01T00:00:00Z","what":1}\n'
    )
    assert [e.seq for e in content.entries] == [1, 2]
    assert [p.kind for p in content.problems] == ["unknown_type"]


def test_a_repeated_seq_is_read_once() -> None:
    content = scan(encode_header(HEADER) + encode_entry(user("a", 1)) * 2 + encode_entry(user("b", 4)))
    assert [e.seq for e in content.entries] == [1, 4]
    assert [p.kind for p in content.problems] == ["duplicate", "gap"]


@given(st.binary(max_size=400))
def test_no_bytes_make_reading_fail(payload: bytes) -> None:
    content = scan(payload)
    assert content.whole_bytes + len(content.torn) <= len(payload)


@given(st.integers(0, 2000), st.binary(max_size=12))
def test_overwritten_bytes_never_make_reading_fail_or_invent_text(at: int, junk: bytes) -> None:
    payload = transcript()
    content = scan(payload[:at] + junk + payload[at + len(junk) :])
    written = {entry.seq: entry for entry in one_of_each()}
    assert all(written.get(entry.seq) == entry for entry in content.entries)


def test_a_wrong_checksum_says_what_to_do() -> None:
    with pytest.raises(DamagedEntry, match="remove the crc"):
        decode_line(b'{"type":"user","crc":1}')
