"""What a write gives, checked and without its secrets: as it is kept."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from memory.encodings import whole_text
from memory.errors import InvalidMemory, OnlySecrets
from memory.records import KINDS, Keep, normalised, text_hash
from memory.redact import Redacted, only_placeholders, redact
from memory.topics import checked_properties
from memory.turn_by_turn import turn_by_turn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory.policy import RecordsPolicy
    from memory.records import Change, Draft, Kind


@dataclasses.dataclass(frozen=True, slots=True)
class Cleaned:
    """Of a draft: text and properties as they are kept, the text's hash, and the kinds of secrets taken out."""

    text: str
    digest: str
    properties: Mapping[str, str]
    kinds: tuple[str, ...]


async def cleaned_drafts(drafts: Sequence[Draft], policy: RecordsPolicy) -> list[Cleaned]:
    """In their order; others have their turn between long ones. Raises InvalidMemory."""
    return await turn_by_turn(lambda draft: _cleaned(draft, policy), drafts, _length)


def _length(draft: Draft) -> int:
    return len(draft.text) + sum(map(len, draft.properties.values()))


def _cleaned(draft: Draft, policy: RecordsPolicy) -> Cleaned:
    text, kinds = cleaned_text(draft.text, policy)
    properties, more = _cleaned_properties(draft.properties, policy)
    return Cleaned(text, text_hash(text), properties, tuple(dict.fromkeys((*kinds, *more))))


def cleaned_text(text: str, policy: RecordsPolicy) -> tuple[str, tuple[str, ...]]:
    """The text as it is kept, and the kinds of secrets taken out. Raises InvalidMemory, and OnlySecrets."""
    plain = checked_text(text, policy.max_characters)
    if policy.allow_secrets:
        return plain, ()
    filtered = redact(plain)
    if only_placeholders(filtered.text):
        raise OnlySecrets
    return filtered.text, filtered.kinds


def cleaned_change(change: Change, policy: RecordsPolicy) -> tuple[Change, tuple[str, ...]]:
    """A change with properties as they are kept, and the kinds of secrets taken out of them. Raises InvalidMemory."""
    if isinstance(change.properties, Keep):
        return change, ()
    properties, kinds = _cleaned_properties(change.properties, policy)
    return dataclasses.replace(change, properties=properties), kinds


def _cleaned_properties(given: Mapping[str, str], policy: RecordsPolicy) -> tuple[dict[str, str], tuple[str, ...]]:
    checked = checked_properties(given)
    if policy.allow_secrets:
        return checked, ()
    filtered = [(redact(name), _redacted_value(name, value)) for name, value in checked.items()]
    kinds = tuple(kind for pair in filtered for one in pair for kind in one.kinds)
    return {name.text: value.text for name, value in filtered}, kinds


def _redacted_value(name: str, value: str) -> Redacted:
    """A value may be a secret by itself, or because of the name it has."""
    alone, named = redact(value), redact(f"{name}: {value}")
    if alone.kinds or not named.kinds or redact(name).kinds:
        return alone
    return Redacted(f"[{named.kinds[0]} removed]", named.kinds)


def checked_text(text: str, most: int) -> str:
    """A text without what no text holds. Raises InvalidMemory where nothing is left, or more than `most` characters."""
    plain = whole_text(text).replace("\0", "").strip()
    if not normalised(plain):
        raise InvalidMemory("text", "is empty; write one self-contained fact")
    if len(plain) > most:
        raise InvalidMemory("text", f"has more than {most} characters; shorten or split it")
    return plain


def checked_fields(change: Change) -> dict[str, Any]:
    """Kind and importance, as far as they change. Raises InvalidMemory."""
    out: dict[str, Any] = {}
    if not isinstance(change.kind, Keep):
        out["kind"] = checked_kind(change.kind)
    if not isinstance(change.importance, Keep):
        out["importance"] = checked_importance(change.importance)
    return out


def checked_kind(value: Kind) -> Kind:
    """Raises InvalidMemory."""
    if value not in KINDS:
        raise InvalidMemory("kind", f"must be one of {', '.join(KINDS)}")
    return value


def checked_importance(value: int) -> int:
    """Raises InvalidMemory."""
    if isinstance(value, bool) or not 1 <= value <= 10:
        raise InvalidMemory("importance", "is a whole number from 1 to 10")
    return value
