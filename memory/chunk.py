"""Cuts a text into pieces for the index: at headings and paragraphs, with their lines, each a little into the last."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_HEADING = re.compile(r"(#{1,6})\s+(.*)")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_SURE_CHARS = 8
"""A text of more characters than this, for each token allowed, is certainly too long: it is not even counted."""
_SMALL_SHARE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a text. Lines count from 1; a line that is too long is cut itself. `heading` is where it stands."""

    text: str
    first_line: int
    last_line: int
    heading: str


@dataclass(frozen=True, slots=True)
class _Piece:
    text: str
    first: int
    last: int
    tokens: int
    heading: str
    opens: bool


def chunk(text: str, *, tokens: int, overlap: int, count: Callable[[str], int]) -> list[Chunk]:
    """Pieces of at most `tokens`, beginning with up to `overlap` of the one before. No line but blank ones is left out.

    `count` counts tokens; time grows linearly with the text.
    """
    overlap = min(overlap, tokens // 2)
    found: list[Chunk] = []
    current: list[_Piece] = []
    size = 0
    for piece in _pieces(text, tokens, count):
        new_section = piece.opens and size >= tokens // _SMALL_SHARE
        if current and (new_section or size + piece.tokens > tokens):
            found.append(_join(current))
            current = [] if piece.opens else _tail(current, min(overlap, tokens - piece.tokens))
            size = sum(one.tokens for one in current)
        current.append(piece)
        size += piece.tokens
    if current:
        found.append(_join(current))
    return found


def lines_of(text: str) -> list[str]:
    """The lines that are counted; other characters that break lines somewhere belong to them."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def _join(pieces: list[_Piece]) -> Chunk:
    text = pieces[0].text
    for before, piece in pairwise(pieces):
        text += ("\n" * (piece.first - before.last)) + piece.text
    return Chunk(text=text, first_line=pieces[0].first, last_line=pieces[-1].last, heading=pieces[-1].heading)


def _tail(pieces: list[_Piece], tokens: int) -> list[_Piece]:
    """The last pieces of a chunk that fit into the overlap, but not all of them."""
    at = len(pieces)
    while at > 1 and pieces[at - 1].tokens <= tokens:
        tokens -= pieces[at - 1].tokens
        at -= 1
    return pieces[at:]


def _pieces(text: str, tokens: int, count: Callable[[str], int]) -> Iterator[_Piece]:
    """Paragraphs; those that are too long line by line, and such lines cut."""
    headings: list[str] = []
    for first, lines in _blocks(text):
        level = _HEADING.fullmatch(lines[0])
        if level is not None:
            depth = len(level[1])
            headings = [*headings[: depth - 1], *[""] * (depth - 1 - len(headings)), level[2].strip(" #")]
        where = " > ".join(part for part in headings if part)
        yield from _fitting(lines, first, where, level is not None, tokens, count)


def _fitting(
    lines: list[str], first: int, where: str, opens: bool, tokens: int, count: Callable[[str], int]
) -> Iterator[_Piece]:
    whole = "\n".join(lines)
    size = count(whole) if len(whole) <= tokens * _SURE_CHARS else tokens + 1
    if size <= tokens:
        yield _Piece(whole, first, first + len(lines) - 1, size, where, opens)
        return
    if len(lines) > 1:
        for number, line in enumerate(lines):
            if line.strip():
                yield from _fitting([line], first + number, where, opens and number == 0, tokens, count)
        return
    for part, part_size in _cut(whole, tokens, count):
        yield _Piece(part, first, first, part_size, where, opens)
        opens = False


def _cut(line: str, tokens: int, count: Callable[[str], int]) -> Iterator[tuple[str, int]]:
    """Parts of a line that fit, cut at a space where there is one in their second half."""
    at = 0
    while at < len(line):
        length = tokens * _SURE_CHARS // 2
        part = _at_space(line, at, length)
        while (size := count(part)) > tokens and length > 1:
            length //= 2
            part = _at_space(line, at, length)
        yield part, size
        at += len(part)


def _at_space(line: str, at: int, length: int) -> str:
    if at + length >= len(line):
        return line[at:]
    space = line.rfind(" ", at + length // 2, at + length)
    return line[at : at + length] if space < 0 else line[at : space + 1]


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Runs of lines between blank ones, with the number of the first; a heading begins one, code in fences is one."""
    block: list[str] = []
    first = 1
    fence = ""
    for number, line in enumerate(lines_of(text), 1):
        mark = _FENCE.match(line)
        if block and not fence and (not line.strip() or _HEADING.fullmatch(line)):
            yield first, block
            block = []
        if not block:
            first = number
        if line.strip() or fence:
            block.append(line)
        if mark is not None:
            fence = "" if fence == mark[1] else fence or mark[1]
    if any(line.strip() for line in block):
        yield first, block
