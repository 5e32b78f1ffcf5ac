"""What a write of Engram's clients brings: checked, and made into drafts or into pieces to learn from. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.surfaces.engram_runs import Spoken
from gateway.surfaces.engram_scope import check_write, named_topic, refused, scope_of
from memory.learn import Said
from memory.records import Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from gateway.surfaces.engram_bodies import AddIn, InputIn
    from gateway.surfaces.engram_places import Places
    from gateway.surfaces.engram_scope import ScopedTopic
    from memory.records import Source

PART_CHARACTERS = 6_000
"""Of one text at once; longer ones are cut between words, so that a helper model is shown all of it."""
PIECE_CHARACTERS = 20_000
"""Of one lesson."""
NO_TOPIC = "holds no topic that takes single facts, and there is no helper model to write summaries: set roles.helper"


@dataclass(frozen=True, slots=True)
class Facts:
    """What is kept as it was given."""

    topics: list[ScopedTopic]
    texts: list[str]


def input_type(given: InputIn) -> str:
    """Raises Problem."""
    named = [name for name in ("string", "conversation", "pre_extracted") if getattr(given, name) is not None]
    if len(named) != 1:
        raise refused("input", "give exactly one of string, conversation and pre_extracted")
    return named[0]


def given_facts(body: AddIn, known: Mapping[str, ScopedTopic]) -> Facts | None:
    """The pre-extracted facts of a write, their topics known and their scopes given. Raises Problem."""
    given = body.input.pre_extracted
    if given is None:
        return None
    topics = [named_topic(known, item.topic, f"input.pre_extracted.items.{n}") for n, item in enumerate(given.items)]
    check_write(topics, body.user_id, body.properties)
    return Facts(topics, [item.content for item in given.items])


def spoken(body: AddIn, known: Mapping[str, ScopedTopic], now: datetime) -> list[Spoken]:
    """The texts of a string or a conversation, and when they were said. Raises Problem.

    What a system or a tool said is nobody's word and left out.
    """
    check_write(list(known.values()), body.user_id, body.properties)
    if body.input.string is not None:
        at = checked_time(body.input.string.created_at) or now
        said = [Spoken("user", text, at) for text in body.input.string.content if text.strip()]
        if not said:
            raise refused("input.string.content", "holds no text")
        return said
    assert body.input.conversation is not None  # noqa: S101
    conversation = body.input.conversation
    started = checked_time(conversation.created_at) or now
    said = [
        Spoken(message.role, message.content, checked_time(message.created_at) or started)
        for message in conversation.messages
        if message.role in ("user", "assistant") and message.content and message.content.strip()
    ]
    if not any(one.who == "user" for one in said):
        raise refused("input.conversation.messages", "hold nothing that a user said")
    return said


def given_time(given: InputIn) -> datetime | None:
    """When the caller says that it was made."""
    of = given.string or given.conversation
    return None if of is None else checked_time(of.created_at)


def checked_time(at: datetime | None) -> datetime | None:
    """Raises Problem."""
    if at is not None and not 1971 <= at.year <= 9000:
        raise refused("created_at", "must lie between the years 1971 and 9000")
    return at


def as_given(
    said: Iterable[Spoken], known: Mapping[str, ScopedTopic], terms: Callable[[str], Iterable[str]]
) -> list[tuple[ScopedTopic, Spoken]]:
    """Without a helper model: what the user said, as it is, each in the topic that has most words in common with it.

    Raises Problem.
    """
    single = [topic for topic in known.values() if not topic.bounded]
    if not single:
        raise refused("group", NO_TOPIC)
    words = [set(terms(f"{topic.name} {topic.description}")) for topic in single]
    out: list[tuple[ScopedTopic, Spoken]] = []
    for one in said:
        if one.who == "user":
            own = set(terms(one.text))
            best = max(range(len(single)), key=lambda n: (len(own & words[n]), -n))
            out.append((single[best], one))
    return out


def draft_of(
    topic: ScopedTopic,
    text: str,
    places: Places,
    properties: Mapping[str, str],
    source: Source,
    created_at: datetime | None = None,
) -> Draft:
    """A memory of this topic, where it belongs; its scope was checked."""
    place = places.of(topic)
    assert place is not None  # noqa: S101
    return Draft(
        text=text,
        topic=place.topic(topic).id,
        pool=place.pool,
        properties=scope_of(topic, properties),
        source=source,
        created_at=created_at,
    )


def pieces(said: Sequence[Spoken]) -> list[list[Said]]:
    """What a helper model is shown at once, in order: all of it, in pieces it can read."""
    out: list[list[Said]] = []
    size = PIECE_CHARACTERS
    for one in said:
        for part in _parts(one.text):
            if size + len(part) > PIECE_CHARACTERS:
                out.append([])
                size = 0
            out[-1].append(Said(seq=len(out[-1]) + 1, who=one.who, text=part, at=one.at))
            size += len(part)
    return out


def _parts(text: str) -> Iterable[str]:
    while len(text) > PART_CHARACTERS:
        at = max(text.rfind(mark, PART_CHARACTERS // 2, PART_CHARACTERS) for mark in ("\n", " "))
        cut = at if at > 0 else PART_CHARACTERS
        yield text[:cut]
        text = text[cut:].lstrip()
    if text:
        yield text
