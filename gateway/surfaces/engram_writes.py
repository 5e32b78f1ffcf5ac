"""Writes of Engram's clients that need no model, and the projects they belong to."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from gateway.surfaces.engram_intake import as_given, draft_of
from gateway.surfaces.engram_runs import committed, source_of
from gateway.surfaces.engram_scope import ScopedTopic, build_project
from memory.errors import MemoryConflict, MemoryProblem, MemoryUnavailable
from memory.redact import only_placeholders, redact
from memory.text import cut

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.clock import Clock
    from gateway.memories import MemoryPart
    from gateway.surfaces.engram_book import EngramBook
    from gateway.surfaces.engram_intake import Facts
    from gateway.surfaces.engram_places import Places
    from gateway.surfaces.engram_runs import Run, Spoken
    from gateway.surfaces.engram_scope import Project
    from gateway.surfaces.policy import EngramPolicy
    from memory.records import Draft

NO_HELPER = (
    "There is no helper model to take single facts from texts (roles.helper): what the user said is kept as it is."
)


class EngramWrites:
    """A write is one run."""

    def __init__(self, memory: MemoryPart, book: EngramBook, policy: EngramPolicy, clock: Clock) -> None:
        self._memory = memory
        self._book = book
        self._policy = policy
        self._clock = clock

    @property
    def has_projects(self) -> bool:
        return bool(self._policy.projects)

    async def project(self, name: str) -> Project:
        """The project, as what was taken over and the settings say. Raises MemoryProblem."""
        policies = [one for one in self._policy.projects if one.project == name]
        if not policies:
            raise MemoryConflict(f"engram.projects names no project {name!r} any more.")
        topics = [ScopedTopic(**topic.model_dump()) for policy in policies for topic in policy.topics]
        return build_project(name, [*await self._book.topics(name), *topics])

    async def keep(self, run: Run, facts: Facts, places: Places, properties: Mapping[str, str]) -> Run:
        """Facts, as they were given."""
        source = source_of(run, "tool")
        drafts = [
            draft_of(t, text, places, properties, source) for t, text in zip(facts.topics, facts.texts, strict=True)
        ]
        return await self._written(run, drafts, places)

    async def keep_as_said(
        self,
        run: Run,
        said: Sequence[Spoken],
        known: Mapping[str, ScopedTopic],
        places: Places,
        properties: Mapping[str, str],
    ) -> Run:
        """Without a helper model; what is nothing but a secret is left out. Raises Problem where no topic takes single
        facts."""
        source = source_of(run, "tool")
        if not (await self._memory.open()).policy.allow_secrets:
            said = [one for one in said if not only_placeholders(redact(one.text).text)]
        sorted_in = as_given(said, known, cut)
        drafts = [draft_of(topic, one.text, places, properties, source, one.at) for topic, one in sorted_in]
        return await self._written(dataclasses.replace(run, note=NO_HELPER), drafts, places)

    async def _written(self, run: Run, drafts: Sequence[Draft], places: Places) -> Run:
        """What was really committed is told, also where a later pool refuses."""
        memories = await self._memory.open()
        try:
            for place in places:
                own = [draft for draft in drafts if draft.pool == place.pool]
                outcomes = await memories.add_many(place.viewer, own) if own else []
                written = [outcome for outcome in outcomes if not isinstance(outcome, MemoryProblem)]
                run = committed(
                    run,
                    created=[one.memory.id for one in written if one.outcome == "added"],
                    updated=[one.memory.id for one in written if one.outcome == "updated"],
                )
            run = dataclasses.replace(run, status="completed")
        except MemoryUnavailable:
            raise
        except MemoryProblem as error:
            run = dataclasses.replace(run, status="failed", error=str(error))
        run = dataclasses.replace(run, ended_at=self._clock.now())
        await self._book.save(run)
        return run
