"""Which topics here the memories of an imported file go to: pure; no import makes a memory recalled in more places."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memory.errors import MemoryConflict
from memory.records import folded_name
from memory.topics import MAX_NAME

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from memory.records import Pool, Topic, TopicDraft


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """By the folded names they have in the file: topics that are here, and those to be made; what the importer should
    know of it."""

    there: Mapping[str, Topic]
    fresh: Mapping[str, TopicDraft]
    notes: tuple[str, ...] = field(default=())


def plan_topics(
    given: Mapping[str, TopicDraft],
    known: Mapping[str, Topic],
    pool: Pool,
    *,
    may_make: bool,
    projects: Collection[str],
) -> TopicPlan:
    """`given` are the file's topics, `known` those of the pool and the instance, by folded names; `projects` those the
    importer is a member of. Raises MemoryConflict where a binding could not be kept."""
    there, fresh, notes = dict(known), dict[str, "TopicDraft"](), list[str]()
    for name, draft in given.items():
        chosen = draft
        here = known.get(name)
        if here is not None and draft.project in (None, here.project):
            continue
        if here is not None:
            chosen = dataclasses.replace(draft, name=f"{draft.name} ({draft.project})"[:MAX_NAME])
            notes.append(
                f"The topic {draft.name!r} here is not bound to the project {draft.project!r}, as the file's is: what "
                f"the file has under it is under {chosen.name!r}."
            )
            here = _bound(known.get(folded_name(chosen.name)), chosen)
        if here is not None:
            there[name] = here
            continue
        there.pop(name, None)
        if not may_make:
            _check_not_wider(chosen, pool)
            notes.append(f"The topic {chosen.name!r} is an administrator's to make here: its memories have no topic.")
            continue
        fresh[name] = chosen
        if chosen.project is not None and chosen.project not in projects:
            notes.append(
                f"The topic {chosen.name!r} stays bound to the project {chosen.project!r}, which is not here, or you "
                "are no member of it: what it holds is recalled nowhere else."
            )
    return TopicPlan(there, fresh, tuple(notes))


def _bound(here: Topic | None, wanted: TopicDraft) -> Topic | None:
    if here is not None and here.project != wanted.project:
        raise MemoryConflict(
            f"The topic {wanted.name!r} here is not bound to the project {wanted.project!r}. Rename it, then import."
        )
    return here


def _check_not_wider(draft: TopicDraft, pool: Pool) -> None:
    """Without topic a project's memories may be sorted into others of its topics, which it alone recalls."""
    if draft.project is not None and draft.project != pool.id:
        raise MemoryConflict(
            f"The topic {draft.name!r} is bound to the project {draft.project!r}, and only an administrator makes it "
            f"in {pool}. Ask one to import the file; nothing was imported."
        )
