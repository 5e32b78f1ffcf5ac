"""What is checked before a model's reply counts as a summary."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from compaction.summary import LISTS, MAX_ITEM, identifiers_in, texts_of
from compaction.words import language_of, stems
from sessions.entries import AssistantEntry, Entry, UserEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sessions.entries import JsonObject

MAX_AROUND = 200
"""Characters around the JSON that are forgiven: a fence, `Here is the summary:`. More is an answer."""

GROUNDED = {"constraints": 0.4, "decisions": 0.4, "open_asks": 0.4}
LOOSELY_GROUNDED = 0.2


class BadSummary(ValueError):
    """A model's reply that is no acceptable summary; the message says why, also for the repair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a summary may be made of: all its text, and the words (stems) of people, of both sides, of everything."""

    text: str
    people: frozenset[str]
    spoken: frozenset[str]
    everything: frozenset[str]
    language: str

    @staticmethod
    def of(entries: Sequence[Entry], previous: JsonObject | None) -> Source:
        earlier = json.dumps(previous or {}, ensure_ascii=False)
        asked = [e.text for e in entries if isinstance(e, UserEntry)]
        people = stems("\n".join([earlier, *asked]))
        spoken = people | stems("\n".join(e.text for e in entries if isinstance(e, AssistantEntry)))
        text = "\n".join([*texts_of(entries), earlier])
        return Source(
            text=text,
            people=frozenset(people),
            spoken=frozenset(spoken),
            everything=frozenset(spoken | stems(text)),
            language=language_of(asked),
        )


def accept_summary(reply: str, source: Source) -> JsonObject:
    """The summary in a model's reply. Raises BadSummary.

    The schema must fit, and every identifier must be in the source. What the person wants or forbids must be in words
    a person has used; where most of a summary is in nobody's words it is none.
    """
    summary = _fields_of(_object_in(reply))
    if not any(summary[name] for name in LISTS):
        raise BadSummary("the summary is empty")
    invented = [found for found in identifiers_in(_all_text(summary)) if found not in source.text]
    if invented:
        raise BadSummary(f"identifiers that are not in the conversation: {', '.join(invented[:5])}")
    accepted = _grounded(summary, source)
    said, left = (sum(len(each[name]) for name in LISTS) for each in (summary, accepted))
    if 2 * left < said:
        raise BadSummary("most of it was never said; report what was said, in the language of the conversation")
    return {**accepted, "language": source.language or accepted["language"]}


def _object_in(reply: str) -> JsonObject:
    start, end = reply.find("{"), reply.rfind("}")
    if start < 0 or end < start:
        raise BadSummary("there is no JSON object in the reply")
    if len(reply[:start].strip()) + len(reply[end + 1 :].strip()) > MAX_AROUND:
        raise BadSummary("there is an answer around the JSON object")
    try:
        value = json.loads(reply[start : end + 1])
    except (ValueError, RecursionError) as error:
        raise BadSummary(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadSummary("not a JSON object")
    return cast("JsonObject", value)


def _fields_of(fields: JsonObject) -> JsonObject:
    unknown = sorted(set(fields) - set(LISTS) - {"language"})
    missing = [name for name in LISTS if name not in fields]
    if unknown or missing:
        raise BadSummary(f"fields missing: {missing}, unknown: {unknown}"[:300])
    summary: JsonObject = {"language": str(fields.get("language") or "")[:20]}
    for name in LISTS:
        items = fields[name]
        if not isinstance(items, list) or not all(isinstance(item, str) for item in cast("list[Any]", items)):
            raise BadSummary(f"{name} must be a list of texts")
        stripped = (item.strip()[:MAX_ITEM] for item in cast("list[str]", items))
        summary[name] = list(dict.fromkeys(item for item in stripped if item))
    return summary


def _grounded(summary: JsonObject, source: Source) -> JsonObject:
    """Without the items whose words were not said. A tool's result or a document asks for nothing, so its words do not
    count where an item says what somebody wants."""
    by_list = {
        "constraints": source.people,
        "open_asks": source.people,
        "user_context": source.people,
        "decisions": source.spoken,
    }
    out: JsonObject = dict(summary)
    for name in LISTS:
        known, share = by_list.get(name, source.everything), GROUNDED.get(name, LOOSELY_GROUNDED)
        out[name] = [item for item in summary[name] if _is_said(item, known, share)]
    return out


def _is_said(item: str, source: frozenset[str], share: float) -> bool:
    own = stems(item)
    return not own or len(own & source) >= share * len(own)


def _all_text(summary: JsonObject) -> str:
    return "\n".join(item for name in LISTS for item in summary.get(name, ()))
