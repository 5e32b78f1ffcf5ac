"""Sentences and words of a text in any language, as the rules and the checks of summaries look at them."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from compaction.cues import STOPWORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SENTENCE = 300
STEM = 5
_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:[.!?。！？](?=\w)[^.!?。！？\n]*)*[.!?。！？]*")
_WORD = re.compile(r"[^\W\d_]{2,}")
_PAIRED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_THAI = re.compile(r"[\u0e00-\u0e7f]")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_CZECH = re.compile(r"[ěščřžýůťďňĚŠČŘŽÝŮŤĎŇ]")


def sentences(text: str) -> list[str]:
    """Sentences, shortened; Thai, which has no full stop, is cut at line ends and wide spaces."""
    found = (piece.strip(" \t*#>-") for piece in _SENTENCE.findall(text))
    out: list[str] = []
    for piece in found:
        parts = re.split(r"\s{2,}", piece) if _THAI.search(piece) else [piece]
        out.extend(part if len(part) <= MAX_SENTENCE else f"{part[: MAX_SENTENCE - 1]}…" for part in parts if part)
    return out


def words(text: str) -> list[str]:
    """Words for counting; Thai and Chinese runs as pairs of characters, since nothing marks their words."""
    folded = text.casefold()
    pairs = [run[n : n + 2] for run in _PAIRED.findall(folded) for n in range(max(1, len(run) - 1))]
    return pairs + [w for w in _WORD.findall(_PAIRED.sub(" ", folded)) if w not in STOPWORDS and len(w) > 2]


def stems(text: str) -> set[str]:
    """Beginnings of the words, without accents, so that a Czech word is known in another case."""
    return {_unaccented(word)[:STEM] for word in words(text)}


def _unaccented(word: str) -> str:
    if _PAIRED.match(word):
        return word
    return "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))


def language_of(texts: Sequence[str]) -> str:
    """A guess from the script: th, zh, cs, else en; empty for no text."""
    text = " ".join(texts)
    if not text.strip():
        return ""
    letters = max(1, sum(character.isalpha() for character in text))
    if len(_THAI.findall(text)) > 0.2 * letters:
        return "th"
    if len(_HAN.findall(text)) > 0.2 * letters:
        return "zh"
    return "cs" if len(_CZECH.findall(text)) > 0.01 * letters else "en"
