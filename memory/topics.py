"""Topics: what new people and projects start with, what a topic may be, and the one place a bounded topic has."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from memory.encodings import whole_text
from memory.errors import InvalidMemory
from memory.records import Keep, TopicDraft, checked_id, composed
from memory.redact import redact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory.records import Pool, Topic, TopicChange

T = TypeVar("T")

MAX_TOPICS = 200
MAX_NAME = 80
MAX_DESCRIPTION = 4000
MAX_PROPERTIES = 16
MAX_PROPERTY = 512

USER_DEFAULTS: tuple[TopicDraft, ...] = (
    TopicDraft(
        name="profile",
        description="Who the person is: name, place, work, languages, family, how they want to be addressed. One "
        "running summary in a few sentences, kept up to date; what is no longer true is left out.",
        leave_out="Moods, plans of a day, and anything that only matters inside one conversation.",
        bounded=True,
        always_on=True,
    ),
    TopicDraft(
        name="preferences",
        description="Lasting preferences and dislikes of the person, and how they want things done: one fact each.",
        leave_out="Wishes for a single answer.",
    ),
    TopicDraft(
        name="decisions",
        description="What the person has decided, with the reason and, where it was said, what was rejected: one "
        "decision each.",
    ),
    TopicDraft(
        name="projects",
        description="What the person works on: goals, state, constraints, people involved, dates: one fact each.",
        leave_out="Progress that will be out of date tomorrow.",
    ),
    TopicDraft(
        name="reference",
        description="Addresses, places of documents, names of systems, figures the person will need again: one each.",
        leave_out="Passwords, keys and other secrets.",
    ),
)
PROJECT_DEFAULTS: tuple[TopicDraft, ...] = (
    TopicDraft(
        name="decisions",
        description="What the project has decided, with the reason and what was rejected: one decision each.",
    ),
    TopicDraft(
        name="details",
        description="Goals, state, constraints, people and dates of the project: one fact each.",
        leave_out="Progress that will be out of date tomorrow; what concerns one member alone.",
    ),
    TopicDraft(
        name="reference",
        description="Addresses, places of documents, names of systems and figures of the project: one each.",
        leave_out="Passwords, keys and other secrets.",
    ),
)


def checked_draft(draft: TopicDraft) -> TopicDraft:
    """The draft as it is kept. Raises InvalidMemory, which names the field."""
    name = composed(draft.name.strip())
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise InvalidMemory("name", f"a topic's name has 1 to {MAX_NAME} printable characters")
    description = whole_text(draft.description).strip()
    if not description or len(description) > MAX_DESCRIPTION:
        raise InvalidMemory("description", f"say in 1 to {MAX_DESCRIPTION} characters what belongs to the topic")
    leave_out = whole_text(draft.leave_out or "").strip() or None
    if leave_out is not None and len(leave_out) > MAX_DESCRIPTION:
        raise InvalidMemory("leave_out", f"has more than {MAX_DESCRIPTION} characters")
    for field, text in (("name", name), ("description", description), ("leave_out", leave_out or "")):
        if kinds := redact(text).kinds:
            raise InvalidMemory(field, f"holds what looks like a secret ({', '.join(kinds)}); leave it out")
    return replace(
        draft,
        name=name,
        description=description,
        leave_out=leave_out,
        scope_properties=_checked_scope(draft.scope_properties),
        project=None if draft.project is None else checked_id("project", draft.project),
    )


def changed_draft(topic: Topic, change: TopicChange) -> TopicDraft:
    """The topic as it would be after an edit, checked. Raises InvalidMemory."""
    return checked_draft(
        TopicDraft(
            name=_or(change.name, topic.name),
            description=_or(change.description, topic.description),
            leave_out=_or(change.leave_out, topic.leave_out),
            bounded=_or(change.bounded, topic.bounded),
            scope_properties=_or(change.scope_properties, topic.scope_properties),
            always_on=_or(change.always_on, topic.always_on),
            project=_or(change.project, topic.project),
        )
    )


def checked_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Scope keys and their values, sorted. Raises InvalidMemory."""
    if len(properties) > MAX_PROPERTIES:
        raise InvalidMemory("properties", f"a memory has at most {MAX_PROPERTIES} properties")
    for name, value in properties.items():
        if not name or not name.isprintable() or len(name) > MAX_NAME:
            raise InvalidMemory("properties", f"{name!r:.80} is no name of a property")
        if not value or len(value) > MAX_PROPERTY:
            raise InvalidMemory(f"properties.{name}"[:200], f"has 1 to {MAX_PROPERTY} characters")
    kept = {composed(name): composed(whole_text(value)) for name, value in sorted(properties.items())}
    if len(kept) < len(properties):
        raise InvalidMemory("properties", "a name is given twice, with its accents written in two ways")
    return kept


def check_scope(topic: Topic, properties: Mapping[str, str]) -> None:
    """A write must give every property its topic is kept apart by. Raises InvalidMemory."""
    missing = [name for name in topic.scope_properties if name not in properties]
    if missing:
        raise InvalidMemory("properties", f"the topic {topic.name!r} needs {', '.join(missing)}")


def has_no_place(topic: Topic, properties: Mapping[str, str]) -> bool:
    """Whether a topic holds one memory for each scope, and these properties tell of none."""
    return topic.bounded and any(name not in properties for name in topic.scope_properties)


def bounded_place(pool: Pool, topic: Topic, properties: Mapping[str, str]) -> str | None:
    """The id of the one memory a bounded topic holds for a scope; None for other topics, and where it has no place.

    Derived from pool, topic and scope, so that a further write finds it (spec memory.md, "Topics").
    """
    if not topic.bounded or has_no_place(topic, properties):
        return None
    scope = [f"{name}={properties[name]}" for name in topic.scope_properties]
    parts = [str(pool), topic.id, *scope]
    digest = hashlib.sha256("\0".join(f"{len(part)}:{part}" for part in parts).encode("utf-8", "replace")).digest()
    return base64.b32encode(digest[:16]).decode().rstrip("=")


def _checked_scope(given: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(composed(name) for name in given)
    if len(names) > MAX_PROPERTIES or len(set(names)) != len(names):
        raise InvalidMemory("scope_properties", f"give at most {MAX_PROPERTIES} different names")
    for name in names:
        if not name or not name.isprintable() or len(name) > MAX_NAME:
            raise InvalidMemory("scope_properties", f"{name!r:.80} is no name of a property")
    return names


def _or(given: T | Keep, present: T) -> T:
    return present if isinstance(given, Keep) else given
