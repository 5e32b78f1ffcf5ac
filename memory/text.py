"""Cuts text into search terms, the same way for what is stored and for what is asked."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_TERM = 40
MAX_TERMS = 64
"""Terms of a question that are looked for."""
STEM = 6

_PIECE = re.compile(r"\S{1,512}")
"""Normalising sorts runs of combining marks in quadratic time: no run is longer than a piece."""

_UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai, without ฿ and its digits
    "\u0e81-\u0ecd"  # Lao
    "\u1000-\u103f"  # Myanmar
    "\u1780-\u17d3"  # Khmer
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # Kana
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
_HAN = re.compile("[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_MARKS = "".join(chr(c) for c in range(0x300, 0x10000) if unicodedata.category(chr(c)) in ("Mn", "Mc"))
_EMOJI = (
    "[\U0001f1e6-\U0001f1ff]{2}|"  # two letters of a flag
    "[\u231a\u231b\u23e9-\u23fa\u2600-\u27bf\u2b50\u2b55\U0001f300-\U0001f3fa\U0001f400-\U0001faff]"  # no skin tones
)
_RUN = re.compile(rf"[{_UNSPACED}]+|(?:[^\W_{_UNSPACED}]|[{_MARKS}])+|{_EMOJI}")
_EMOJI_RUN = re.compile(_EMOJI)
_UNSPACED_START = re.compile(f"[{_UNSPACED}]")
_ASCII_RUN = re.compile(r"[a-z0-9]+")
_LATIN_MARKS = re.compile(r"([a-z])[\u0300-\u036f]+")

_LETTERS = {
    **{ord(letter): plain for letter, plain in zip("łđøæœıðþħŧŋĸ", "l d o ae oe i d th h t ng k".split(), strict=True)},
    **dict.fromkeys([0xAD, 0x2060, 0xFEFF, *range(0x200B, 0x2010), *range(0xFE00, 0xFE10)], ""),  # what is not seen
    **{
        c: str(unicodedata.decimal(chr(c), ""))
        for c in range(0x80, 0x10000)
        if unicodedata.decimal(chr(c), None) is not None
    },
}

# Endings of English and of Czech without diacritics; the longest that fits goes. What they merge wrongly costs less
# than the forms they bring together: with the Czech ones evidence recall in English is no lower than without.
_ENDINGS = (
    "ings ing edly ed ies es as os oes s ly e y i a o u ie ia "
    "ovych ovym ovou ovi ove ova ovy ov ami emi imi ymi ach ech ich ych eho emu iho imu ou em om um im am ym ej"
).split()
_VERB_ENDINGS = "il ila ili ilo it al ala ali alo at el ela eli elo et".split()
_LEAST_STEM = {**dict.fromkeys(_ENDINGS, 3), **dict.fromkeys(_VERB_ENDINGS, 4), "oes": 4}
_ALTERNATES = {"z": "h", "g": "h", "c": "k"}  # Praha, Praze; Olga, Olze; ruka, ruce
_VOWELS = "aeiouy"
_UNDOUBLED = f"{_VOWELS}c"  # kočka, kočce

_SAMPLE = (
    "Příliš žluťoučký kůň běžel; running horses, ideas, potatoes 東京タワー ฉันแพ้ถั่ว 서울에서 Ёжик INV-0042 "
    "kočce Olga mic ❤️🍒"
)

STOP_WORDS = frozenset(
    (
        # English
        "a an the and or but if of at by for with about to from in on is are was were be been being am do does did "
        "doing has have had having i you he she it we they me him her us them my your his its our their this that "
        "these those what which who whom when where why how as so than too very can will just not no nor would could "
        "should there here s t d m ll re ve "
        # Czech, without diacritics
        "se si je jsem jsi jsme jste jsou byl byla bylo byli byt na v ve z ze k ke u za pro pri po pod nad od az i ani "
        "nebo ale aby kdyz jak jako co kdo kde kdy proc ktery ktera ktere ten ta ti ty tento tato toto muj moje tvuj "
        "jeho jeji nas vas jejich uz jeste taky take jen"
    ).split()
)


def cut(text: str) -> list[str]:
    """The terms of a text, in order.

    Folded: compatibility forms, case, diacritics of Latin letters, digits of all scripts. Words become stems, scripts
    without spaces (Thai, Chinese, Japanese, Korean, ...) pairs of characters, Han single characters too, emoji their
    numbers, which every full text takes for a word. Terms hold neither spaces nor ASCII punctuation. Linear in the
    text.
    """
    if text.isascii():
        return [stem(word) for word in _ASCII_RUN.findall(text.lower())]
    return [term for run in _runs(text) for term in _terms(run)]


def any_of(terms: Iterable[str]) -> str:
    """The question to FTS5 for rows with any of the terms."""
    return " OR ".join('"' + term.replace('"', '""') + '"' for term in terms)


def overlap(one: set[str], other: set[str]) -> float:
    """Share of terms two texts have in common (Jaccard)."""
    return len(one & other) / len(one | other) if one or other else 0.0


def cut_version(cut: Callable[[str], list[str]]) -> int:
    """Another number: terms that were kept are to be cut anew, by other rules or by a Python that knows other letters.
    48 bits."""
    told = f"{unicodedata.unidata_version} {cut(_SAMPLE)}"
    return int.from_bytes(hashlib.sha256(told.encode()).digest()[:6], "big")


def cut_query(text: str) -> list[str]:
    """The terms of a question, each once, without emoji and words that are in every sentence, unless there are no
    others."""
    runs = _runs(text)
    rare = [run for run in runs if run not in STOP_WORDS]
    telling = [run for run in rare if not _EMOJI_RUN.match(run)] or rare or runs
    return list(dict.fromkeys(term for run in telling for term in _terms(run)))


def _runs(text: str) -> list[str]:
    """The folded words, and what stands without spaces in other scripts."""
    return _ASCII_RUN.findall(text.lower()) if text.isascii() else _RUN.findall(fold(text))


def _terms(run: str) -> list[str]:
    if run.isascii():
        return [stem(run)]
    if _EMOJI_RUN.match(run):
        return ["u" + "".join(f"{ord(character):x}" for character in run)]
    if not _UNSPACED_START.match(run):
        return [stem(run)]
    if len(run) == 1:
        return [run]
    return [run[at : at + 2] for at in range(len(run) - 1)] + _HAN.findall(run)


def fold(text: str) -> str:
    """The text without differences that do not matter for finding: compatibility forms, case, Latin diacritics."""
    if text.isascii():
        return text.lower()
    return " ".join(_fold(piece) for piece in _PIECE.findall(text))


def _fold(piece: str) -> str:
    if piece.isascii():
        return piece.lower()
    apart = unicodedata.normalize("NFKD", piece).casefold().translate(_LETTERS)
    return unicodedata.normalize("NFKC", _LATIN_MARKS.sub(r"\1", apart))


def stem(word: str) -> str:
    """The stem of a folded word: light, and the same for English and Czech, since nothing tells the language."""
    if len(word) < 3 or not (word.isascii() and word.isalpha()):
        return word[:MAX_TERM]
    short = _without_ending(word)
    if len(short) > 3 and short[-1] == short[-2] and short[-1] not in _UNDOUBLED:
        short = short[:-1]  # running, run
    if len(short) > 3 and short[-2] == "e" and short[-1] not in _VOWELS and short[-3] not in _VOWELS:
        short = short[:-2] + short[-1]  # matka, matek
    short = short[:STEM]
    return short[:-1] + _ALTERNATES.get(short[-1], short[-1])


def _without_ending(word: str) -> str:
    for length in (5, 4, 3, 2, 1):
        least = _LEAST_STEM.get(word[-length:])
        if least is not None and len(word) - length >= least:
            return word[:-length]
    return word
