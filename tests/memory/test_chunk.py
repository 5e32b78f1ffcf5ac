"""Pieces of texts: nothing is lost, nothing is too long, and the lines are right."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from memory.chunk import Chunk, chunk

LINE = st.one_of(
    st.just(""),
    st.sampled_from(["# One", "## Two", "### Three", "```", "~~~", "- item", "   ", "####### no heading"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=200),
    st.integers(1, 400).map(lambda count: "word " * count),
)
TEXTS = st.lists(LINE, max_size=40).map("\n".join)


def words(text: str) -> int:
    return len(text.split())


def cut(text: str, tokens: int = 20, overlap: int = 5) -> list[Chunk]:
    return chunk(text, tokens=tokens, overlap=overlap, count=words)


@settings(deadline=None)
@given(TEXTS, st.integers(3, 60), st.integers(0, 30))
def test_every_line_is_in_a_piece_with_its_number_and_no_piece_is_too_long(
    text: str, tokens: int, overlap: int
) -> None:
    pieces = cut(text, tokens, overlap)
    lines = text.split("\n")
    covered: set[int] = set()
    for piece in pieces:
        assert words(piece.text) <= tokens
        assert 1 <= piece.first_line <= piece.last_line <= len(lines)
        covered |= set(range(piece.first_line, piece.last_line + 1))
        told = "".join(lines[piece.first_line - 1 : piece.last_line])
        assert "".join(piece.text.split()) in "".join(told.split())
    assert covered >= {number for number, line in enumerate(lines, 1) if line.strip() and words(line)}


@settings(deadline=None)
@given(TEXTS)
def test_without_overlap_the_pieces_are_the_text(text: str) -> None:
    joined = "".join("".join(piece.text.split()) for piece in cut(text, overlap=0))
    assert joined == "".join(text.split())


@settings(deadline=None)
@given(TEXTS)
def test_pieces_are_in_order_and_each_adds_something(text: str) -> None:
    pieces = cut(text)
    for before, after in pairwise(pieces):
        assert before.last_line <= after.last_line
        assert before.first_line <= after.first_line


def test_a_section_begins_a_piece_and_says_where_it_stands() -> None:
    body = "some words about it that fill the piece"
    pieces = cut(f"# House\n\n{body}\n\n## Roof\n\n{body}\n\n## Cellar\n\n{body}\n\n# Car\n\n{body}", tokens=10)
    assert [piece.heading for piece in pieces] == ["House", "House > Roof", "House > Cellar", "Car"]
    assert [piece.first_line for piece in pieces] == [1, 5, 9, 13]


def test_a_paragraph_is_cut_only_when_it_is_too_long_and_the_next_piece_repeats_its_end() -> None:
    pieces = cut("a b c d\ne f g h\n\ni j k l\n\nm n o p", tokens=12, overlap=4)
    assert [(piece.first_line, piece.last_line) for piece in pieces] == [(1, 4), (4, 6)]
    assert pieces[1].text == "i j k l\n\nm n o p"


def test_code_in_fences_stays_together() -> None:
    pieces = cut("x " * 15 + "\n```\na b\n\n# no heading\n\nc d\n```\nend", tokens=20)
    assert all(piece.heading == "" for piece in pieces)
    assert any("a b\n\n# no heading\n\nc d" in piece.text for piece in pieces)


def test_one_endless_line_is_cut_at_spaces_in_linear_time() -> None:
    asked = 0

    def count(text: str) -> int:
        nonlocal asked
        asked += len(text)
        return words(text)

    line = "word " * 50_000
    pieces = chunk(line, tokens=100, overlap=10, count=count)
    assert "".join(piece.text for piece in pieces) == line
    assert asked < 4 * len(line)


def test_line_ends_of_all_systems_count_alike() -> None:
    assert cut("a\r\n\r\nb") == cut("a\n\nb") == cut("a\r\rb")
