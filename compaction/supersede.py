"""Which statements no longer hold, by what people said later: `the port is now 8081`, `místo 5 kusů 7`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compaction.cues import CHANGES, INSTEAD
from compaction.summary import ARROW, identifiers_in, says_change
from compaction.words import stems

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sessions.entries import JsonObject

MAX_CHANGES = 1000
"""Newest sentences looked at for what they change; the time stays bounded whatever the length of a history."""

SAME_SUBJECT = 0.6
CURRENT = ("topics", "decisions", "user_context", "constraints", "facts", "open_asks")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_UNSPACED = [cue for cue in CHANGES if not cue.strip().isascii() and cue[0] > "\u0e00"]
_INSTEAD = [re.compile(pattern, re.IGNORECASE) for pattern in INSTEAD]


@dataclass(frozen=True, slots=True)
class Change:
    """A sentence that says something is otherwise now, and where it stands. `gone`: stems of what it names as past."""

    text: str
    position: int
    values: frozenset[str]
    subject: frozenset[str]
    gone: frozenset[str]


def changes_in(said: Sequence[str]) -> list[Change]:
    """The changes among sentences of people, oldest first. A question changes nothing."""
    found: list[Change] = []
    for position, text in enumerate(said):
        if says_change(text) and text.rstrip()[-1:] not in "?？":
            past = next((m.group(1) for pattern in _INSTEAD if (m := pattern.search(text))), "")
            gone = frozenset(stems(past) | set(_NUMBER.findall(past)))
            found.append(Change(text, position, _values(text), _subject(text), gone))
    return found[-MAX_CHANGES:]


def replacements(items: Iterable[tuple[str, int]], changes: Sequence[Change]) -> dict[str, str]:
    """Each item that no longer holds, and the sentence that changed it. Items come with the position of the sentence
    they are from, -1 for one older than all."""
    out: dict[str, str] = {}
    for item, position in items:
        values, subject = _values(item), _subject(item)
        known = stems(item) | set(_NUMBER.findall(item))
        for change in reversed(changes):
            if change.position < position:
                break
            if change.text != item and (_other_value(values, subject, change) or _named(known, subject, change)):
                out[item] = change.text
                break
    return out


def retired(summary: JsonObject, said: Sequence[str]) -> JsonObject:
    """A summary somebody else wrote, with what no longer holds moved to `superseded`."""
    changes = changes_in(said)
    if not changes:
        return summary
    items = [item for name in CURRENT for item in summary[name]]
    gone = replacements([(item, _last_told(item, said)) for item in items], changes)
    past = [f"{old}{ARROW}{new}" for old, new in gone.items()]
    left = {name: [item for item in summary[name] if item not in gone] for name in CURRENT}
    return {**summary, **left, "superseded": [*summary["superseded"], *past]}


def _last_told(item: str, said: Sequence[str]) -> int:
    values = _values(item)
    told = (n for n in range(len(said) - 1, -1, -1) if any(value in said[n] for value in values))
    return next(told, -1) if values else -1


def _other_value(values: frozenset[str], subject: frozenset[str], change: Change) -> bool:
    """The same subject with another value of the same kind."""
    lost, gained = values - change.values, change.values - values
    if not lost or not {_kind(one) for one in lost} & {_kind(one) for one in gained}:
        return False
    shared = len(subject & change.subject)
    return shared > 0 and shared >= SAME_SUBJECT * min(len(subject), len(change.subject))


def _named(known: set[str], subject: frozenset[str], change: Change) -> bool:
    """The change names what is past, and the item is about that."""
    if not change.gone or not change.gone <= known:
        return False
    return bool((subject & change.subject) - change.gone) or any(one.isdigit() for one in change.gone)


def _values(text: str) -> frozenset[str]:
    found = identifiers_in(text)
    rest = text
    for one in found:
        rest = rest.replace(one, " ")
    return frozenset(found) | frozenset(_NUMBER.findall(rest))


def _subject(text: str) -> frozenset[str]:
    for value in (*identifiers_in(text), *_UNSPACED):
        text = text.replace(value, " ")
    return frozenset(stems(text))


def _kind(value: str) -> str:
    if "/" in value or "@" in value:
        return "place"
    if re.match(r"\d{4}-\d{2}-\d{2}", value):
        return "date"
    if value[0].isdigit() and re.fullmatch(r"[\d.,:\s]+\D{0,6}", value):
        return "number"
    return "id"
