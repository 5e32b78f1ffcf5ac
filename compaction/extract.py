"""A summary by rules, without a model: what a person who reads only it needs to know what was talked about."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from compaction.cues import CONSTRAINTS, DECISIONS, PREFERENCES, STOPWORDS
from compaction.summary import LISTS, identifiers_in, is_weak
from sessions.entries import AssistantEntry, Entry, UserEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sessions.entries import JsonObject

MAX_SENTENCE = 300
PER_LIST = {"topics": 12, "decisions": 20, "user_context": 16, "constraints": 20, "facts": 30, "open_asks": 6}
_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:[.!?。！？](?=\w)[^.!?。！？\n]*)*[.!?。！？]*")
_WORD = re.compile(r"[^\W\d_]{2,}")
_THAI = re.compile(r"[\u0e00-\u0e7f]")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_CZECH = re.compile(r"[ěščřžýůťďňĚŠČŘŽÝŮŤĎŇ]")
_QUESTION = re.compile(r"[?？]\s*$|(?:ไหม|หรือเปล่า|หรือยัง|อะไร|吗|呢)\s*[?？]?$")


def extract_summary(entries: Sequence[Entry], previous: JsonObject | None) -> JsonObject:
    """The summary of `entries`, carrying the previous one on. It never says what nobody has said."""
    people = [e.text for e in entries if isinstance(e, UserEntry) and e.text.strip()]
    replies = [e.text for e in entries if isinstance(e, AssistantEntry) and e.text.strip()]
    said = [sentence for text in people for sentence in sentences(text)]
    answered = [sentence for text in replies for sentence in sentences(text)]
    fresh: dict[str, list[str]] = {
        "topics": _topics(people),
        "decisions": [s for s in said + answered if _has(s, DECISIONS)],
        "user_context": [s for s in said if _has(s, PREFERENCES)],
        "constraints": [s for s in said if _has(s, CONSTRAINTS)],
        "open_asks": [s for s in said if _QUESTION.search(s)][-3:],
        "superseded": [],
    }
    taken = {s for name in ("decisions", "user_context", "constraints", "open_asks") for s in fresh[name]}
    fresh["facts"] = _salient([s for s in said if s not in taken], answered)
    merged: JsonObject = {"language": language_of(people) or (previous or {}).get("language", "")}
    for name in LISTS:
        earlier: list[str] = [] if name == "open_asks" else list((previous or {}).get(name, ()))
        items = [*earlier, *(item for item in fresh[name] if item not in earlier)]
        merged[name] = _newest_facts(items) if name == "facts" else items[-PER_LIST.get(name, 10) :]
    return merged


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
    out: list[str] = []
    for word in _WORD.findall(text.casefold()):
        if _THAI.search(word) or _HAN.search(word):
            out.extend(word[n : n + 2] for n in range(len(word) - 1))
        elif word not in STOPWORDS and len(word) > 2:
            out.append(word)
    return out


def _has(sentence: str, cues: Iterable[str]) -> bool:
    lowered = f" {sentence.casefold()} "
    return any(cue in lowered for cue in cues)


def _topics(people: Sequence[str]) -> list[str]:
    """The first sentence of each message that brings many words nobody had used before."""
    seen: set[str] = set()
    topics: list[str] = []
    for text in people:
        own = set(words(text))
        new = own - seen
        seen |= own
        first = next(iter(sentences(text)), "")
        if first and own and len(new) >= max(2, len(own) // 2):
            topics.append(first if len(first) <= 120 else f"{first[:119]}…")
    return topics


def _newest_facts(items: Sequence[str]) -> list[str]:
    """The newest facts; those with an id, a date or a unit, which nobody can guess, outlive the others."""
    strong = [item for item in items if not is_weak(item)]
    kept = set(strong[-PER_LIST["facts"] * 2 // 3 :])
    weak = [item for item in items if item not in kept]
    kept.update(weak[-(PER_LIST["facts"] - len(kept)) :])
    return [item for item in items if item in kept]


def _salient(said: Sequence[str], answered: Sequence[str]) -> list[str]:
    """Sentences that share words with many others, or hold an identifier; in the order they were said."""
    pool = list(dict.fromkeys([*said, *(s for s in answered if identifiers_in(s))]))
    counts: Counter[str] = Counter()
    own = {sentence: set(words(sentence)) for sentence in pool}
    for found in own.values():
        counts.update(found)

    def score(sentence: str) -> float:
        shared = sum(math.log(1 + counts[word]) for word in own[sentence]) / (1 + len(own[sentence]) ** 0.5)
        return shared + 1.5 * len(identifiers_in(sentence)) + (0.5 if sentence in said else 0)

    best = sorted(pool, key=score, reverse=True)[: PER_LIST["facts"]]
    return [sentence for sentence in pool if sentence in set(best)]


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
