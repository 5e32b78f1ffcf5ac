"""Memories, topics and projects as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from memory.records import Kind, State
from memory.vitality import due_at, vitality

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.shelves import Owner
    from gateway.workspaces import FoundPiece
    from memory.policy import RetentionPolicy
    from memory.records import Audit, Memory, Project, Topic


class SourceView(BaseModel):
    """Where a memory comes from."""

    origin: str
    session: str | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    said_by: str | None = None
    detail: str | None = None


class MemoryView(BaseModel):
    """One fact. `topic` is a name, `topic_id` its id; `vitality` (0 to 100) falls with disuse, `due_at` is when it goes
    to the trash unless it is recalled before. `supersedes` names what it said before; a former version has `current`,
    the memory it was."""

    id: str
    pool: str
    text: str
    topic: str | None
    topic_id: str | None
    kind: Kind
    importance: int
    state: State
    properties: dict[str, str]
    source: SourceView
    author: str
    created_at: datetime
    updated_at: datetime
    valid_from: datetime
    valid_to: datetime | None
    supersedes: str | None
    current: str | None
    trashed_at: datetime | None
    last_recalled_at: datetime | None
    recall_count: int
    checked_at: datetime | None
    revision: int
    vitality: float
    due_at: datetime | None


class WrittenView(MemoryView):
    """A memory that was written. `redacted` names the secrets that were replaced by placeholders; `similar` are
    memories that may say the same: merge or update them."""

    outcome: Literal["added", "updated", "unchanged"]
    redacted: list[str]
    similar: list[MemoryView]
    note: str | None


class MemoryPageView(BaseModel):
    """A page; `next` is the cursor of the following one, null at the end."""

    memories: list[MemoryView]
    next: str | None


class HitView(MemoryView):
    """A memory that was found; scores order one search only."""

    score: float


class FileHitView(BaseModel):
    """A piece of a file: of an agent's notes, or of a project's documents. `stale`: the file has changed since."""

    agent: str | None
    project: str | None
    path: str
    first_line: int
    last_line: int
    heading: str
    text: str
    stale: bool
    score: float


class FoundView(BaseModel):
    """What was found, the best first. `total` counts memories; `problem`: why vectors, or files, were not used."""

    memories: list[HitView]
    files: list[FileHitView]
    total: int
    problem: str | None


def file_hit(found: FoundPiece, owner: Owner) -> dict[str, Any]:
    word, name = owner
    piece = found.piece
    shown = FileHitView(
        agent=name if word == "agent" else None,
        project=name if word == "project" else None,
        path=piece.path,
        first_line=piece.first_line,
        last_line=piece.last_line,
        heading=piece.heading,
        text=piece.text,
        stale=found.stale,
        score=round(found.score, 6),
    )
    return shown.model_dump()


class AuditView(BaseModel):
    """One change. `operation` undoes it, with all that belongs to it; after a purge nothing says what it was about."""

    id: int
    operation: str
    memory: str
    version: str
    at: datetime
    action: str
    origin: str
    author: str
    why: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    undone_by: str | None


class HistoryView(BaseModel):
    """The changes of a memory, the newest first."""

    changes: list[AuditView]


class MemoriesView(BaseModel):
    """Memories, all that there are."""

    memories: list[MemoryView]


class PurgedView(BaseModel):
    """How many memories are gone for good. `cleared` false: their text is still in files, to be wiped soon."""

    purged: int
    cleared: bool


class ImportView(BaseModel):
    """What came of an import. `forgotten` were deleted here before and stay deleted; `notes` tell what is not as in the
    file, such as topics that are bound to a project which is not here."""

    added: int
    updated: int
    unchanged: int
    forgotten: int
    redacted: int
    topics: int
    notes: list[str]


class TopicView(BaseModel):
    """A described class of memories. `owner` is a pool, or `instance`."""

    id: str
    owner: str
    name: str
    description: str
    leave_out: str | None
    bounded: bool
    scope_properties: list[str]
    always_on: bool
    project: str | None
    created_at: datetime
    updated_at: datetime


class TopicsView(BaseModel):
    """Topics by name."""

    topics: list[TopicView]


class TopicGoneView(BaseModel):
    """A topic is gone; so many memories have none now."""

    memories: int


class ProjectView(BaseModel):
    """People who share memories."""

    id: str
    name: str
    members: list[str]
    created_at: datetime


class ProjectsView(BaseModel):
    """Projects by id."""

    projects: list[ProjectView]


class GoneView(BaseModel):
    """It is gone."""

    deleted: Literal[True] = True


def memory_fields(memory: Memory, names: Mapping[str, str], policy: RetentionPolicy, now: datetime) -> dict[str, Any]:
    """The fields of MemoryView."""
    fields = {
        name: getattr(memory, name)
        for name in MemoryView.model_fields
        if name not in ("pool", "topic", "topic_id", "source", "vitality", "due_at", "properties")
    }
    return {
        **fields,
        "pool": str(memory.pool),
        "topic": names.get(memory.topic or ""),
        "topic_id": memory.topic,
        "properties": dict(memory.properties),
        "source": {name: getattr(memory.source, name) for name in SourceView.model_fields},
        "vitality": round(vitality(memory, now, policy), 1),
        "due_at": due_at(memory, policy) if memory.state == "active" else None,
    }


def audit_view(entry: Audit) -> AuditView:
    shown = {
        name: getattr(entry, name) for name in AuditView.model_fields if name not in ("version", "before", "after")
    }
    return AuditView(**shown, version=entry.row, before=_side(entry.before), after=_side(entry.after))


def _side(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What a person wants to compare: not the hashes and places beside it."""
    shown = ("text", "topic", "kind", "importance", "state", "properties", "revision")
    return None if row is None else {name: row[name] for name in shown}


def topic_view(topic: Topic) -> TopicView:
    fields = {
        name: getattr(topic, name) for name in TopicView.model_fields if name not in ("owner", "scope_properties")
    }
    owner = "instance" if topic.owner is None else str(topic.owner)
    return TopicView(**fields, owner=owner, scope_properties=list(topic.scope_properties))


def project_view(project: Project) -> ProjectView:
    return ProjectView(id=project.id, name=project.name, members=list(project.members), created_at=project.created_at)
