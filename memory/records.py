"""The values of memory: who owns a fact, who asks for it, the fact itself, its topic and its history."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, get_args

from memory.errors import InvalidMemory

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

Kind = Literal["user", "feedback", "project", "reference"]
State = Literal["active", "trashed", "superseded"]
Origin = Literal[
    "person", "tool", "import", "learning", "batch", "consolidation", "recategorising", "retention", "upkeep"
]
Action = Literal["added", "edited", "superseded", "merged", "trashed", "restored", "purged", "classified", "undone"]

KINDS: tuple[Kind, ...] = get_args(Kind)
ORIGINS: tuple[Origin, ...] = get_args(Origin)
DELIBERATE: frozenset[Origin] = frozenset({"person", "tool"})
"""Who may bring back what was deleted (spec memory.md, "Vitality and retention")."""

MAX_ID = 256


@dataclass(frozen=True, slots=True)
class Pool:
    """Who owns memories: a person, or a project with its members."""

    kind: Literal["user", "project"]
    id: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"


def user_pool(user: str) -> Pool:
    return Pool("user", checked_id("user", user))


def project_pool(project: str) -> Pool:
    return Pool("project", checked_id("project", project))


def parse_pool(text: str) -> Pool:
    """The pool of `user:<id>` or `project:<id>`. Raises InvalidMemory."""
    kind, colon, name = text.partition(":")
    if not colon or kind not in ("user", "project"):
        raise InvalidMemory("pool", f"{text!r:.80} is no pool; write user:<id> or project:<id>")
    return Pool(kind, checked_id(kind, name))


def composed(text: str) -> str:
    """Names are kept and compared in NFC, in which an accent is part of its letter."""
    return unicodedata.normalize("NFC", text)


def checked_id(what: str, raw: str) -> str:
    """An id of a user or project as it is kept, in NFC. Raises InvalidMemory."""
    text = composed(raw)
    if not text or text != text.strip() or len(text.encode("utf-8", "replace")) > MAX_ID:
        raise InvalidMemory(what, f"must have 1 to {MAX_ID} bytes, and no white space around it")
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in text):
        raise InvalidMemory(what, "holds a control character")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """Who asks. Every read and write takes one; what it may see is decided in `memory.access` and nowhere else.

    `user` None: nobody known, who sees nothing. `delegated`: a task of an agent, which gets no personal memory.
    `project`: the project this conversation belongs to; None with `conversation`: none. A person at an API
    (`conversation` False) sees all projects they are a member of. `admin`: sees every pool it names, and with `whole`
    all of them when it names none. `job`: the job that writes, kept in the history so that it can be undone as one.
    """

    user: str | None
    author: str
    origin: Origin = "person"
    admin: bool = False
    whole: bool = False
    delegated: bool = False
    conversation: bool = False
    project: str | None = None
    why: str = ""
    job: str | None = None


UPKEEP = Viewer(user=None, author="sessiond", origin="upkeep", admin=True)
"""What the daemon itself does, for nobody in particular."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a memory comes from: a stretch of a session, or what wrote it."""

    origin: Origin
    session: str | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    said_by: Literal["user", "assistant"] | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One self-contained fact. `topic` is a topic's id.

    A changed memory keeps its id: what it said before becomes a row of its own with state `superseded`, to which
    `supersedes` points and whose `current` is the id of the memory it was once. `place` is the one
    place of a bounded topic. `revision` grows with every write, for writers that compare.
    """

    id: str
    pool: Pool
    text: str
    topic: str | None = None
    kind: Kind = "user"
    importance: int = 5
    state: State = "active"
    valid_from: datetime
    valid_to: datetime | None = None
    supersedes: str | None = None
    current: str | None = None
    place: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    source: Source
    author: str
    created_at: datetime
    updated_at: datetime
    trashed_at: datetime | None = None
    last_recalled_at: datetime | None = None
    recall_count: int = 0
    checked_at: datetime | None = None
    revision: int = 1

    @property
    def since(self) -> datetime:
        """When it was written as it stands, or from when on that holds. `updated_at` also moves when it is sorted."""
        return max(self.created_at, self.valid_from)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A memory to be written. `topic` is an id or a name; `pool` None: the viewer's own.

    `id`: what it is known as where it comes from; one that is here already is left as it is.
    """

    text: str
    topic: str | None = None
    kind: Kind | None = None
    importance: int | None = None
    pool: Pool | None = None
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    source: Source | None = None
    valid_from: datetime | None = None
    created_at: datetime | None = None
    supersedes: str | None = None
    id: str | None = None


class Keep(Enum):
    """The field stays as it is."""

    KEEP = "keep"


KEEP = Keep.KEEP


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an edit sets; KEEP leaves a field alone. `revision`: refuse when somebody changed the memory since.

    `checked` marks or clears what consolidation has looked at; None: an edit clears it. `source` and `valid_from` say
    where a new text comes from, and since when it holds; None: from the viewer, now. `others`: the revisions of the
    further memories of a merge, in their order. `sources`: memories whose words a new text holds, with the revisions
    that were read; refuse when one of them has changed since, or is gone.
    """

    text: str | Keep = KEEP
    topic: str | Keep | None = KEEP
    kind: Kind | Keep = KEEP
    importance: int | Keep = KEEP
    properties: Mapping[str, str] | Keep = KEEP
    revision: int | None = None
    others: tuple[int, ...] | None = None
    sources: Mapping[str, int] = field(default_factory=dict[str, int])
    checked: bool | None = None
    source: Source | None = None
    valid_from: datetime | None = None


Outcome = Literal["added", "updated", "unchanged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What came of a write. `redacted` names the secrets that were taken out; `similar` may say the same."""

    memory: Memory
    outcome: Outcome
    redacted: tuple[str, ...] = ()
    similar: tuple[Memory, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A described class of memories; the description is what is taken from conversations, and in which form.

    `owner` is a pool, or None for a topic of the whole instance. `project`: recalled only inside that project.
    """

    id: str
    owner: Pool | None
    name: str
    description: str
    leave_out: str | None = None
    bounded: bool = False
    scope_properties: tuple[str, ...] = ()
    always_on: bool = False
    project: str | None = None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDraft:
    """A topic to be made."""

    name: str
    description: str
    leave_out: str | None = None
    bounded: bool = False
    scope_properties: tuple[str, ...] = ()
    always_on: bool = False
    project: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """What an edit of a topic sets; KEEP leaves a field alone."""

    name: str | Keep = KEEP
    description: str | Keep = KEEP
    leave_out: str | Keep | None = KEEP
    bounded: bool | Keep = KEEP
    scope_properties: tuple[str, ...] | Keep = KEEP
    always_on: bool | Keep = KEEP
    project: str | Keep | None = KEEP


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A group of people who share memories."""

    id: str
    name: str
    members: tuple[str, ...]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which memories are meant. None: any. `topics` are ids; `no_topic` asks for those without one.

    `as_of`: what was true at that time. `current`: what is true now, without what will only be. `recalled`: of that,
    what is put before a model unasked: with a topic, and that topic not bound to another project than the viewer's.
    `properties` must all be equal.
    """

    pools: tuple[Pool, ...] | None = None
    topics: tuple[str, ...] | None = None
    no_topic: bool = False
    kinds: tuple[Kind, ...] | None = None
    origins: tuple[Origin, ...] | None = None
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    min_importance: int = 1
    as_of: datetime | None = None
    current: bool = False
    recalled: bool = False


Sort = Literal["updated", "created", "importance"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """One page of a list, the highest first. `after` is where the page before ended."""

    state: State = "active"
    sort: Sort = "updated"
    limit: int = 50
    after: str | None = None


Mode = Literal["hybrid", "vector", "keyword", "fetch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """One change of one memory; `row` is the memory itself, or a former version of it. Rows of one `operation` belong
    together. After a purge `before`, `after` and `why` are
    empty: that it happened stays, what it said does not."""

    id: int
    operation: str
    memory: str
    row: str
    pool: Pool
    at: datetime
    action: Action
    origin: Origin
    author: str
    why: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    undone_by: str | None


@dataclass(frozen=True, slots=True)
class Changed:
    """One row of the change feed: `number` grows; `memory` None: it is gone for good, or in the trash."""

    number: int
    id: str
    pool: Pool
    memory: Memory | None


@dataclass(frozen=True, slots=True)
class TextHit:
    """A proposal of the full text, better ones with a higher score; to be confirmed by the store."""

    id: str
    score: float


YEARS = range(2, 9999)
"""Times that stay times in every zone."""


def checked_time(field: str, at: datetime) -> datetime:
    """A time with a zone as it came from outside. Raises InvalidMemory."""
    if at.tzinfo is None or at.year not in YEARS:
        raise InvalidMemory(field, f"must be a time with a zone, in the years {YEARS[0]} to {YEARS[-1]}")
    return at


def folded_name(name: str) -> str:
    """The form in which two names of topics are the same, however accents are written; case does not matter."""
    return composed(composed(name).strip().casefold())


_UNSEEN = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")


def normalised(text: str) -> str:
    """The form in which two texts count as the same: case, width, white space, a last full stop and characters that
    are not seen do not matter."""
    return " ".join(unicodedata.normalize("NFKC", _UNSEEN.sub("", text)).casefold().split()).rstrip(" .!。")


def text_hash(text: str) -> str:
    return hashlib.sha256(normalised(text).encode("utf-8", "replace")).hexdigest()
