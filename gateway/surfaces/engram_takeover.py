"""Taking over a project of Engram: its topics, and its memories with their ids and times, each once."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.http.problems import Problem
from gateway.surfaces.engram_places import open_places
from gateway.surfaces.engram_scope import (
    DEFAULT_GROUP,
    ScopedTopic,
    check_write,
    checked_group,
    known_topics,
    named_topic,
    own_id,
    refused,
    scope_of,
)
from gateway.surfaces.policy import LONGEST_NAME
from memory.errors import Forgotten, MemoryProblem, MemoryUnavailable
from memory.records import Draft, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.surfaces.engram_bodies import TakenGroupIn, TakenMemoryIn
    from gateway.surfaces.engram_places import Places
    from gateway.surfaces.engram_scope import Project
    from memory.memory import Memories
    from memory.records import Viewer, Written

NO_DESCRIPTION = "What was kept under {name!r} in Engram."


@dataclass(slots=True)
class Taken:
    """What became of memories. `refused` are ids, and why."""

    added: int = 0
    there: int = 0
    forgotten: int = 0
    redacted: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def note(self, outcome: Written | Forgotten) -> None:
        if isinstance(outcome, Forgotten):
            self.forgotten += 1
            return
        self.added += outcome.outcome == "added"
        self.there += outcome.outcome != "added"
        self.redacted += bool(outcome.redacted)


def topics_of(groups: Iterable[TakenGroupIn]) -> list[ScopedTopic]:
    """The topics of a project, as they were set up there. Raises Problem."""
    topics: list[ScopedTopic] = []
    for group in groups:
        for given in group.topics or ():
            topic = ScopedTopic(
                name=given.topic_name,
                description=given.description.strip() or NO_DESCRIPTION.format(name=given.topic_name),
                bounded=given.is_bounded,
                user_scoped=given.scoping.user_scoped,
                scope_properties=tuple(given.scoping.scope_properties or ()),
                group=group.name,
            )
            if len(topic.own_name) > LONGEST_NAME:
                why = f"the name of {topic.name!r:.40} and its group's are too long together: {LONGEST_NAME} characters"
                raise refused("groups", why)
            topics.append(topic)
    return topics


async def take_over(memories: Memories, project: Project, token: str, given: Sequence[TakenMemoryIn]) -> Taken:
    """Keeps what is not here yet. One that cannot be kept keeps no other out. Raises MemoryUnavailable."""
    taken = Taken()
    for user_id in dict.fromkeys(one.user_id for one in given):
        own = [one for one in given if one.user_id == user_id]
        try:
            places = await open_places(memories, project, token, user_id, "import")
        except Problem as problem:
            taken.refused += [(one.id, problem.detail) for one in own]
            continue
        drafts: list[tuple[TakenMemoryIn, Draft]] = []
        for one in own:
            try:
                drafts.append((one, _draft(project, places, one)))
            except Problem as problem:
                taken.refused.append((one.id, problem.detail))
        for place in places:
            here = [(one, draft) for one, draft in drafts if draft.pool == place.pool]
            await _keep(memories, place.viewer, here, taken)
    return taken


def _draft(project: Project, places: Places, given: TakenMemoryIn) -> Draft:
    """Raises Problem."""
    group = checked_group(project, given.group or DEFAULT_GROUP)
    known = known_topics(project, group, places.user.topics.values() if places.user else ())
    topic = named_topic(known, given.topic, "topic")
    check_write([topic], given.user_id, given.properties or {})
    place = places.of(topic)
    assert place is not None  # noqa: S101
    return Draft(
        id=own_id(project.name, given.id),
        text=given.content,
        topic=place.topic(topic).id,
        pool=place.pool,
        properties=scope_of(topic, given.properties or {}),
        source=Source(origin="import", detail=f"engram memory {given.id}"),
        created_at=given.created_at,
    )


async def _keep(memories: Memories, viewer: Viewer, given: Sequence[tuple[TakenMemoryIn, Draft]], taken: Taken) -> None:
    """All in one transaction; where one is refused, each in its own."""
    if not given:
        return
    try:
        for outcome in await memories.add_many(viewer, [draft for _, draft in given]):
            taken.note(outcome)
    except MemoryUnavailable:
        raise
    except MemoryProblem as problem:
        if len(given) == 1:
            taken.refused.append((given[0][0].id, str(problem)))
            return
        for one in given:
            await _keep(memories, viewer, [one], taken)


def taken_view(taken: Taken) -> dict[str, object]:
    fields = dataclasses.asdict(taken)
    return {**fields, "refused": [{"id": one, "detail": why} for one, why in taken.refused]}
