"""The pools a request of Engram's clients reaches, with the topics they have there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.surfaces.engram_scope import viewer_of_project, viewer_of_user
from memory.errors import MemoryConflict, NotThere
from memory.records import UPKEEP, TopicChange, TopicDraft, folded_name

if TYPE_CHECKING:
    from gateway.surfaces.engram_scope import Project, ScopedTopic
    from memory.memory import Memories
    from memory.records import Origin, Pool, Topic, Viewer


@dataclass(frozen=True, slots=True)
class Place:
    """A pool, who asks for it, and its topics by their own names, folded."""

    pool: Pool
    viewer: Viewer
    topics: dict[str, Topic]

    def topic(self, scoped: ScopedTopic) -> Topic:
        return self.topics[folded_name(scoped.own_name)]


@dataclass(frozen=True, slots=True)
class Places:
    """What a request reaches: the user's pool (None: it names nobody), and the one its project shares, if any topic is
    shared."""

    user: Place | None
    shared: Place | None

    def __iter__(self):
        return iter([place for place in (self.user, self.shared) if place is not None])

    def of(self, topic: ScopedTopic) -> Place | None:
        return self.user if topic.user_scoped else self.shared


async def open_places(
    memories: Memories, project: Project, token: str, user_id: str | None, origin: Origin = "tool"
) -> Places:
    """The pools, with the topics the project is to have. Raises Problem and MemoryProblem."""
    user = shared = None
    if user_id is not None:
        viewer = viewer_of_user(project, user_id, token, origin)
        user = await _place(memories, project.pool_of(user_id), viewer, project, user_scoped=True)
    if project.has_shared:
        await _make_project(memories, project)
        viewer = viewer_of_project(token, origin)
        shared = await _place(memories, project.shared, viewer, project, user_scoped=False)
    return Places(user, shared)


async def _place(memories: Memories, pool: Pool, viewer: Viewer, project: Project, *, user_scoped: bool) -> Place:
    present = {folded_name(topic.name): topic for topic in await memories.topics.topics(viewer, pool)}
    # a project's other topics are its members', and not this API's
    topics = dict(present) if user_scoped else {}
    for name, wanted in project.topics.items():
        if wanted.user_scoped == user_scoped:
            topics[name] = await _as_wanted(memories, viewer, pool, present.get(name), wanted)
    return Place(pool, viewer, topics)


async def _make_project(memories: Memories, project: Project) -> None:
    try:
        await memories.topics.project(UPKEEP, project.name)
    except NotThere:
        await memories.topics.put_project(UPKEEP, project.name)


async def _as_wanted(
    memories: Memories, viewer: Viewer, pool: Pool, present: Topic | None, wanted: ScopedTopic
) -> Topic:
    """The topic as the settings say it is; a description that was changed here stays."""
    if present is None or present.owner != pool:
        draft = TopicDraft(
            name=wanted.own_name,
            description=wanted.description,
            bounded=wanted.bounded,
            scope_properties=wanted.scope_properties,
        )
        try:
            return await memories.topics.add_topic(viewer, pool, draft)
        except MemoryConflict:
            # two first requests of one user at once
            found = {folded_name(topic.name): topic for topic in await memories.topics.topics(viewer, pool)}
            if folded_name(wanted.own_name) not in found:
                raise
            return found[folded_name(wanted.own_name)]
    if (present.bounded, present.scope_properties) == (wanted.bounded, wanted.scope_properties):
        return present
    change = TopicChange(bounded=wanted.bounded, scope_properties=wanted.scope_properties)
    return await memories.topics.edit_topic(viewer, present.id, change)
