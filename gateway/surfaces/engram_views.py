"""What Engram's clients are shown. Pure."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from gateway.surfaces.engram_scope import group_id, public_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from gateway.surfaces.engram_runs import Run
    from gateway.surfaces.engram_scope import Project, ScopedTopic
    from memory.records import Memory


def memory_view(project: Project, memory: Memory, names: Mapping[str, str]) -> dict[str, Any]:
    """`names` are those of topics, by id; a memory without topic has an empty one."""
    topic, group = project.shown(names.get(memory.topic or "", ""))
    fields = {
        "id": public_id(memory.id),
        "project_id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"urn:sessiond:engram:{project.name}")),
        "content": memory.text,
        "topic": topic,
        "group": group,
        "created_at": time_text(memory.created_at),
        "updated_at": time_text(memory.updated_at),
        "user_id": project.user_of(memory.pool),
        "properties": dict(memory.properties) or None,
    }
    return _present(fields, "user_id", "properties")


def run_status_view(run: Run) -> dict[str, Any]:
    ended = time_text(run.ended_at or run.at)
    operations = {
        name: [{"memory_id": memory, "committed_at": ended} for memory in ids]
        for name, ids in (("created", run.created), ("updated", run.updated), ("deleted", run.deleted))
    }
    fields = {
        "run_id": run.id,
        "status": run.status,
        "error": run.error,
        "note": run.note,
        "group_id": group_id(run.project, run.group),
        "user_id": run.user_id,
        "starting_step": 0,
        "input_type": run.input_type,
        "created_at": time_text(run.at),
        "updated_at": ended,
        "committed_operations": operations,
    }
    return _present(fields, "error", "note", "user_id")


def group_view(project: Project, group: str) -> dict[str, Any]:
    topics = project.in_group(group)
    properties = dict.fromkeys(name for topic in topics for name in topic.scope_properties)
    return {
        "group_id": group_id(project.name, group),
        "name": group,
        "topics": [_topic_view(topic) for topic in topics],
        "scoping": _scoping(any(topic.user_scoped for topic in topics), [*properties]),
    }


def _topic_view(topic: ScopedTopic) -> dict[str, Any]:
    return {
        "topic_name": topic.name,
        "description": topic.description,
        "is_bounded": topic.bounded,
        "scoping": _scoping(topic.user_scoped, [*topic.scope_properties]),
    }


def _scoping(user_scoped: bool, properties: list[str]) -> dict[str, Any]:
    return {"user_scoped": user_scoped, "scope_properties": properties}


def _present(fields: dict[str, Any], *optional: str) -> dict[str, Any]:
    """Without the optional fields that hold nothing."""
    return {name: value for name, value in fields.items() if value is not None or name not in optional}


def time_text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
