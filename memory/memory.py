"""The face of memory: what everything else calls to remember, find, correct and forget."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import IO, TYPE_CHECKING

from memory.errors import Forgotten, MemoryUnavailable
from memory.records import Change, Filters, ListQuery, user_pool
from memory.removal import Deleted
from memory.retention import Swept
from memory.store import EVERYBODY, MOST_POOLS
from memory.text import overlap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from datetime import datetime

    from memory.corpus import Findings, Searcher
    from memory.fulltext import FullText
    from memory.importing import Imported
    from memory.jobs import JobUndone
    from memory.judge import Step
    from memory.learning import LearnRun, Lesson
    from memory.policy import MemoryPolicy, RetentionPolicy
    from memory.records import Audit, Draft, Memory, Mode, Pool, Topic, Viewer, Written
    from memory.store import MemoryStore
    from memory.topic_store import TopicStore

ALL = Filters()
FIRST = ListQuery()
NOTHING = Change()
UNSORTED = (
    "It has no topic: it is found when somebody searches, but not recalled by itself. Give it one, or set "
    "roles.helper, and it is sorted in the background."
)
COMPARED = 8
NOTE_WAIT_S = 1.0


class Memories:
    """Everything about memories, for a viewer. `after_write` hears of every memory that was added or changed;
    `recategorize` starts sorting a viewer's memories into topics (those without one, or all) and says how it stands.
    """

    def __init__(
        self,
        *,
        store: MemoryStore,
        topics: TopicStore,
        fulltext: FullText,
        searcher: Searcher,
        policy: MemoryPolicy,
        now: Callable[[], datetime],
    ) -> None:
        self.store = store
        self.topics = topics
        self.searcher = searcher
        self.policy = policy
        self._fulltext = fulltext
        self._noting: set[asyncio.Task[None]] = set()
        self._now = now
        self.after_write: list[Callable[[Memory], None]] = []
        self.recategorize: Callable[[Viewer, bool], Awaitable[str]] | None = None
        self._filled: set[str] | None = None

    async def start(self) -> None:
        """Learns which pools hold anything. Raises MemoryUnavailable."""
        filled = await self.store.pools(EVERYBODY)
        self._filled = {str(pool) for pool in filled} if len(filled) < MOST_POOLS else None

    def may_find(self, viewer: Viewer) -> bool:
        """Whether a search could find anything for a viewer: most people have no memories, and need not wait for one.

        It decides nothing about who may see what.
        """
        if self._filled is None or viewer.user is None:
            return True
        return str(user_pool(viewer.user)) in self._filled or any(one.startswith("project:") for one in self._filled)

    # --- writing --------------------------------------------------------------------------------------------------

    async def add(self, viewer: Viewer, draft: Draft) -> Written:
        """Stores a fact; the same text again changes nothing. Similar memories are reported, to be merged or updated.

        Raises InvalidMemory, NotThere, MemoryConflict, Forgotten.
        """
        pool = await self.topics.prepare(viewer, draft.pool)
        (outcome,) = await self.store.add(viewer, [dataclasses.replace(draft, pool=pool)])
        if isinstance(outcome, Forgotten):
            raise outcome
        self._tell([outcome])
        if outcome.outcome != "added":
            return outcome
        return dataclasses.replace(outcome, similar=await self._similar(viewer, outcome.memory))

    async def add_many(self, viewer: Viewer, drafts: Sequence[Draft]) -> list[Written | Forgotten]:
        """Many facts, in one transaction; nothing is compared but equal texts."""
        for pool in {draft.pool for draft in drafts}:
            await self.topics.prepare(viewer, pool)
        outcomes = await self.store.add(viewer, drafts)
        self._tell([outcome for outcome in outcomes if not isinstance(outcome, Forgotten)])
        return outcomes

    async def update(self, viewer: Viewer, memory_id: str, change: Change) -> Written:
        """Raises InvalidMemory, NotThere, MemoryConflict, Forgotten."""
        outcome = await self.store.edit(viewer, memory_id, change)
        self._tell([outcome])
        return outcome

    async def merge(self, viewer: Viewer, ids: Sequence[str], text: str, change: Change = NOTHING) -> Written:
        """Raises InvalidMemory, NotThere, MemoryConflict, Forgotten."""
        outcome = await self.store.merge(viewer, ids, text, change)
        self._tell([outcome])
        return outcome

    async def delete(self, viewer: Viewer, memory_id: str, *, revision: int | None = None) -> Memory:
        """To the trash. Raises NotThere and MemoryConflict."""
        gone = await self.store.trash(viewer, memory_id, revision=revision)
        self._changed(gone)
        return gone

    async def restore(self, viewer: Viewer, memory_id: str) -> Memory:
        """Raises NotThere, MemoryConflict, Forgotten."""
        back = await self.store.restore(viewer, memory_id)
        self._changed(back)
        return back

    async def purge(self, viewer: Viewer, ids: Sequence[str]) -> Deleted:
        """For good. Raises NotThere."""
        deleted = await self.store.purge(viewer, ids)
        for memory in deleted.memories:
            self._changed(memory)
        return deleted

    async def empty_trash(self, viewer: Viewer, filters: Filters = ALL) -> Deleted:
        """Deletes for good what is in the trash, of the pools meant; what gets there meanwhile stays."""
        asked_at = self._now()
        every = Deleted([], cleared=True)
        while (part := await self.store.purge_trash(viewer, filters, asked_at)).memories:
            for memory in part.memories:
                self._changed(memory)
            every = Deleted([*every.memories, *part.memories], part.cleared)
        return every

    async def learn(self, lesson: Lesson, steps: Sequence[Step], run: LearnRun) -> LearnRun:
        """Takes the steps of a lesson; how far it went is kept with them. Raises NotThere and MemoryUnavailable."""
        done, changed = await self.store.learning.write(lesson, steps, run, self._now())
        for memory in changed:
            self._changed(memory)
        return done

    def terms(self, text: str) -> list[str]:
        """The words by which a text is found."""
        return self._fulltext.terms(text)

    async def undo(self, viewer: Viewer, operation: str) -> list[Memory]:
        """Raises NotThere and MemoryConflict."""
        changed = await self.store.undo(viewer, operation)
        for memory in changed:
            self._changed(memory)
        return changed

    async def undo_latest(self, viewer: Viewer, memory_id: str) -> list[Memory]:
        """One step back; once more, one further. Raises NotThere and MemoryConflict."""
        changed = await self.store.undo_latest(viewer, memory_id)
        for memory in changed:
            self._changed(memory)
        return changed

    async def undo_job(self, viewer: Viewer, job_id: str) -> JobUndone:
        """Raises NotThere and MemoryConflict."""
        undone = await self.store.jobs.undo(viewer, job_id)
        for memory in undone.memories:
            self._changed(memory)
        return undone

    async def sweep(self, policy: RetentionPolicy) -> Swept:
        """Forgets what is due, of everybody. For upkeep only."""
        trashed: list[Memory] = []
        more_at: list[datetime] = []
        for pool in await self.store.due_pools(policy):
            swept = await self.store.sweep(pool, policy)
            for memory in swept.trashed:
                self._changed(memory)
            trashed += swept.trashed
            more_at += [] if swept.more_at is None else [swept.more_at]
        return Swept(tuple(trashed), min(more_at, default=None))

    async def unsorted_note(self, memory: Memory) -> str | None:
        """Told once for each pool: without a helper model a memory without topic is not recalled by itself."""
        if memory.topic is not None or self.recategorize is not None:
            return None
        return UNSORTED if await self.store.tell_once(memory.pool, "unsorted") else None

    def _tell(self, outcomes: Iterable[Written]) -> None:
        for outcome in outcomes:
            if outcome.outcome != "unchanged":
                self._changed(outcome.memory)

    def _changed(self, memory: Memory) -> None:
        if self._filled is not None:
            self._filled.add(str(memory.pool))
        for hook in self.after_write:
            hook(memory)

    # --- reading --------------------------------------------------------------------------------------------------

    async def search(
        self, viewer: Viewer, query: str, *, mode: Mode = "hybrid", limit: int = 10, filters: Filters = ALL
    ) -> Findings:
        """Raises InvalidMemory and NotThere."""
        return await self.searcher.search(viewer, query, mode=mode, limit=limit, filters=filters)

    async def page(
        self, viewer: Viewer, filters: Filters = ALL, query: ListQuery = FIRST
    ) -> tuple[list[Memory], str | None]:
        return await self.store.page(viewer, filters, query)

    async def load(self, viewer: Viewer, memory_id: str) -> Memory:
        """Raises NotThere."""
        return await self.store.load(viewer, memory_id)

    async def history(self, viewer: Viewer, memory_id: str) -> list[Audit]:
        """Raises NotThere."""
        return await self.store.history(viewer, memory_id)

    async def topic_names(self, viewer: Viewer, memories: Iterable[Memory]) -> dict[str, str]:
        """Names of the topics of these memories, by id."""
        wanted = {memory.topic for memory in memories if memory.topic is not None}
        found: dict[str, Topic] = await self.topics.by_id(viewer, sorted(wanted)) if wanted else {}
        return {topic.id: topic.name for topic in found.values()}

    async def note_recalled(self, viewer: Viewer, ids: Sequence[str]) -> None:
        """As the store does, but whoever has found them does not wait for a long write of others, nor fails with it."""
        noting = asyncio.create_task(self._note(viewer, ids), name="recall noted")
        self._noting.add(noting)
        noting.add_done_callback(self._noting.discard)
        await asyncio.wait({noting}, timeout=NOTE_WAIT_S)

    async def _note(self, viewer: Viewer, ids: Sequence[str]) -> None:
        with contextlib.suppress(MemoryUnavailable):
            await self.store.note_recalled(viewer, ids)

    async def _similar(self, viewer: Viewer, memory: Memory) -> tuple[Memory, ...]:
        """Memories of the same pool and scope with many words in common."""
        filters = Filters(pools=(memory.pool,), properties=memory.properties)
        hits = await self.store.text_hits(memory.text, viewer, filters, limit=COMPARED)
        near = await self.store.confirm([hit.id for hit in hits if hit.id != memory.id], viewer, filters)
        own = set(self._fulltext.terms(memory.text))
        least = self.policy.similar
        return tuple(other for other in near if overlap(own, set(self._fulltext.terms(other.text))) >= least)

    # --- taking along ---------------------------------------------------------------------------------------------

    async def export(self, viewer: Viewer, into: IO[bytes], pool: Pool | None = None) -> None:
        """Writes a pool's active memories, its topics and the hashes of what was deleted as JSON lines, as they are at
        one moment; the file is then at its beginning. Raises NotThere."""
        await self.store.export(viewer, await self.topics.prepare(viewer, pool), into)

    async def take_in(self, viewer: Viewer, file: IO[bytes], pool: Pool | None = None) -> Imported:
        """Everything of a file, or nothing. What was deleted here stays deleted; no memory is recalled in more places
        than where it comes from. Raises InvalidMemory, NotThere, MemoryConflict.
        """
        viewer = dataclasses.replace(viewer, origin="import")
        chosen = await self.topics.prepare(viewer, pool)
        return await self.store.take_in(viewer, chosen, file, self._changed)
