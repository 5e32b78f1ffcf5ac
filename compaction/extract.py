"""A summary by rules, without a model: what a person who reads only it needs to know what was talked about."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from compaction.cues import CONSTRAINTS, DECISIONS, PREFERENCES
from compaction.summary import ARROW, LISTS, identifiers_in, is_weak
from compaction.supersede import changes_in, replacements
from compaction.words import language_of, sentences, words
from sessions.entries import AssistantEntry, Entry, UserEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sessions.entries import JsonObject

PER_LIST = {
    "topics": 12,
    "decisions": 20,
    "user_context": 16,
    "constraints": 20,
    "facts": 30,
    "open_asks": 6,
    "superseded": 10,
}
SHORTEST_ANSWER = 40
ALIKE = 3
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
        "open_asks": _unanswered(entries),
        "superseded": [],
    }
    gone = _gone(fresh, said, answered, previous)
    fresh["superseded"] = [f"{old}{ARROW}{new}" for old, new in gone.items()]
    taken = {s for name in ("decisions", "user_context", "constraints", "open_asks") for s in fresh[name]}
    facts = _salient([s for s in said if s not in taken and s not in gone], answered, set(gone.values()))
    fresh["facts"] = [s for s in facts if s not in gone]
    merged: JsonObject = {"language": language_of(people) or (previous or {}).get("language", "")}
    for name in LISTS:
        items = dict.fromkeys([*(previous or {}).get(name, ()), *fresh[name]])
        merged[name] = [item for item in items if item not in gone]
    merged["facts"] = _newest_facts(merged["facts"])
    return {**merged, **{name: merged[name][-most:] for name, most in PER_LIST.items()}}


def _unanswered(entries: Sequence[Entry]) -> list[str]:
    """Questions of people that got no reply, or one too short to be an answer."""
    answers: Counter[str | None] = Counter()
    for entry in entries:
        if isinstance(entry, AssistantEntry):
            answers.update({turn: len(entry.text) for turn in (entry.turn, *entry.also)})
    return [
        sentence
        for entry in entries
        if isinstance(entry, UserEntry) and answers[entry.turn] < SHORTEST_ANSWER
        for sentence in sentences(entry.text)
        if _QUESTION.search(sentence)
    ]


def _gone(
    fresh: dict[str, list[str]], said: Sequence[str], answered: Sequence[str], previous: JsonObject | None
) -> dict[str, str]:
    """What may be in the summary and no longer holds, with the sentence that replaced it."""
    changes = changes_in(said)
    if not changes:
        return {}
    positions = {sentence: position for position, sentence in enumerate(said)}
    earlier = {item for name in LISTS if name != "superseded" for item in (previous or {}).get(name, ())}
    candidates = {
        *earlier,
        *(s for items in fresh.values() for s in items),
        *_with_values(said),
        *_with_values(answered),
    }
    return replacements(((item, positions.get(item, -1)) for item in sorted(candidates)), changes)


def _with_values(sentences_said: Sequence[str]) -> list[str]:
    """The newest sentences with a number or an identifier: what a change may be about."""
    return [s for s in sentences_said if identifiers_in(s) or any(c.isdigit() for c in s)][-200:]


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
    """The newest facts; what nobody can guess outlives the others."""
    strong = [item for item in items if not is_weak(item)]
    kept = set(strong[-PER_LIST["facts"] * 2 // 3 :])
    weak = [item for item in items if item not in kept]
    kept.update(weak[-(PER_LIST["facts"] - len(kept)) :])
    return [item for item in items if item in kept]


def _salient(said: Sequence[str], answered: Sequence[str], changes: set[str]) -> list[str]:
    """Sentences that change something, share words with many others, or hold an identifier; in the order they were
    said."""
    pool = list(dict.fromkeys([*said, *(s for s in answered if identifiers_in(s))]))
    counts: Counter[str] = Counter()
    own = {sentence: frozenset(words(sentence)) for sentence in pool}
    pool = _without_repetition(pool, own)
    for found in own.values():
        counts.update(found)

    own_words = set(said)

    def score(sentence: str) -> float:
        shared = sum(math.log(1 + counts[word]) for word in own[sentence]) / (1 + len(own[sentence]) ** 0.5)
        return (
            shared
            + 1.5 * len(identifiers_in(sentence))
            + (0 if is_weak(sentence) else 10)
            + (0.5 if sentence in own_words else 0)
            + 100 * (sentence in changes)
        )

    best = set(sorted(pool, key=score, reverse=True)[: PER_LIST["facts"]])
    return [sentence for sentence in pool if sentence in best]


def _without_repetition(pool: Sequence[str], own: Mapping[str, frozenset[str]]) -> list[str]:
    """Of sentences that could be guessed and differ in their numbers only, the newest few."""
    times: Counter[frozenset[str]] = Counter()
    kept: list[str] = []
    for sentence in reversed(pool):
        times[own[sentence]] += 1
        if times[own[sentence]] <= ALIKE or not is_weak(sentence):
            kept.append(sentence)
    return kept[::-1]
