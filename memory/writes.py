"""How memories are written: added, corrected, merged, deleted, brought back; each a step inside one transaction."""

from __future__ import annotations

import dataclasses
from datetime import UTC
from typing import TYPE_CHECKING, Any

from sqlalchemy import or_, select

from memory.access import readable, readable_topic, writable_pool
from memory.cleaning import (
    checked_fields,
    checked_importance,
    checked_kind,
    cleaned_change,
    cleaned_drafts,
    cleaned_text,
)
from memory.dates import add_dates
from memory.errors import Forgotten, InvalidMemory, MemoryConflict, NotThere
from memory.known import Known, forgive, known_of
from memory.listing import ACTIVE
from memory.operation import load_rows
from memory.records import (
    DELIBERATE,
    KEEP,
    Change,
    Keep,
    Memory,
    Source,
    Written,
    checked_time,
    folded_name,
    text_hash,
)
from memory.rows import memory_from_row, owner_name, topic_from_row, whole
from memory.tables import memories, topics
from memory.topics import bounded_place, check_scope, has_no_place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime, tzinfo

    from memory.cleaning import Cleaned
    from memory.operation import Operation
    from memory.policy import RecordsPolicy
    from memory.records import Action, Draft, Pool, Topic


class Writes:
    """The writes of one operation. Nothing here asks the clock or opens a transaction."""

    def __init__(
        self, operation: Operation, policy: RecordsPolicy, new_id: Callable[[], str], zone: tzinfo = UTC
    ) -> None:
        """`zone`: where the day of what somebody writes begins."""
        self._op = operation
        self._zone = zone
        self._connection = operation.connection
        self._viewer = operation.viewer
        self._policy = policy
        self._new_id = new_id
        self._topics: dict[tuple[str, str], Topic] = {}
        self._pools: dict[Pool | None, Pool] = {}

    # --- adding ---------------------------------------------------------------------------------------------------

    async def add(self, drafts: Sequence[Draft]) -> list[Written | Forgotten]:
        """Each draft's outcome, in order. What was deleted is not brought back by what is not deliberate."""
        drafts = [self._dated(draft) for draft in drafts]
        cleaned = await cleaned_drafts(drafts, self._policy)
        prepared = [await self._prepare(draft, one) for draft, one in zip(drafts, cleaned, strict=True)]
        known = await known_of(self._connection, [(p.memory.pool, p.digest) for p in prepared])
        there = await load_rows(self._connection, [draft.id for draft in drafts if draft.id is not None])
        return [await self._taken_over(one, there, known) for one in prepared]

    def _dated(self, draft: Draft) -> Draft:
        """One with a time of its own was said then, or speaks of then: its words stay."""
        if draft.valid_from is not None or draft.created_at is not None:
            return draft
        return dataclasses.replace(draft, text=self._with_dates(draft.text))

    def _with_dates(self, text: str, *former: str) -> str:
        """What somebody writes, with the dates of words like yesterday. Such words in `former` texts were said another
        day: then none is added. What is learnt has its dates from when it was said."""
        longest = self._policy.max_characters
        if self._viewer.origin not in DELIBERATE or len(text) > longest:
            return text
        today = self._op.now.astimezone(self._zone)
        if any(add_dates(one, today) != one for one in former):
            return text
        dated = add_dates(text, today)
        return dated if len(dated) <= longest else text

    async def _taken_over(self, one: _Prepared, there: Mapping[str, Memory], known: Known) -> Written | Forgotten:
        """What was taken over before stays as it is here, whatever became of it; so does the one memory of a topic."""
        if one.draft.id is None:
            return await self._add(one, known)
        before = there.get(one.draft.id)
        if before is None and one.memory.place is not None:
            before = await self.holder(one.memory.place)
        if before is None:
            return await self._add(one, known)
        if before.pool != one.memory.pool:
            fresh = dataclasses.replace(one.memory, id=self._new_id())
            return await self._add(dataclasses.replace(one, memory=fresh), known)
        if before.state == "trashed":
            return Forgotten("This is in the trash here.")
        return Written(memory=before, outcome="unchanged", redacted=one.redacted)

    async def _prepare(self, draft: Draft, cleaned: Cleaned) -> _Prepared:
        pool = await self._pool(draft.pool)
        topic = None if draft.topic is None else await self.topic(pool, draft.topic)
        if topic is not None:
            check_scope(topic, cleaned.properties)
        now = self._op.now
        created = now if draft.created_at is None else whole(checked_time("created_at", draft.created_at))
        memory = Memory(
            id=draft.id or self._new_id(),
            pool=pool,
            text=cleaned.text,
            topic=None if topic is None else topic.id,
            kind=checked_kind(draft.kind or ("project" if pool.kind == "project" else "user")),
            importance=checked_importance(5 if draft.importance is None else draft.importance),
            place=None if topic is None else bounded_place(pool, topic, cleaned.properties),
            valid_from=created if draft.valid_from is None else whole(checked_time("valid_from", draft.valid_from)),
            properties=cleaned.properties,
            source=draft.source or Source(origin=self._viewer.origin),
            author=self._viewer.author,
            created_at=created,
            updated_at=now,
        )
        return _Prepared(draft, memory, cleaned.digest, cleaned.kinds)

    async def _add(self, prepared: _Prepared, known: Known) -> Written | Forgotten:
        memory, draft = prepared.memory, prepared.draft
        digest = prepared.digest
        same = known.same(digest, memory)
        if same is not None and draft.supersedes is None:
            return await self._again(same, prepared, known)
        if self._viewer.origin == "import" and (past := known.formerly(digest, memory)) is not None:
            return Written(memory=past, outcome="unchanged", redacted=prepared.redacted)
        if (memory.pool, digest) in known.deleted:
            if self._viewer.origin not in DELIBERATE:
                return Forgotten("This was deleted before; only a person or an explicit tool may bring it back.")
            await forgive(self._connection, memory.pool, digest)
        if draft.supersedes is not None:
            return await self._replace(draft.supersedes, prepared, known)
        if memory.place is not None:
            holder = await self.holder(memory.place)
            if holder is not None:
                return await self._held(holder, prepared, known)
            if draft.id is None and not await self._taken(memory.place):
                memory = dataclasses.replace(memory, id=memory.place)
        known.put(digest, self._op.insert(memory, "added"))
        return Written(memory=memory, outcome="added", redacted=prepared.redacted)

    async def _held(self, holder: Memory, prepared: _Prepared, known: Known) -> Written:
        """The one memory of a bounded topic says what is given now; an import, and what held before, leave it alone."""
        memory, draft = prepared.memory, prepared.draft
        if self._viewer.origin == "import":
            return Written(memory=holder, outcome="unchanged", redacted=prepared.redacted)
        if draft.valid_from is not None and memory.valid_from < holder.valid_from:
            return await self._late(holder, prepared)
        importance = KEEP if draft.importance is None else draft.importance
        fields = checked_fields(Change(kind=draft.kind or KEEP, importance=importance))
        origin = _provenance(Change(source=draft.source, valid_from=draft.valid_from or self._op.now))
        after = self._corrected(holder, memory.text, "edited", **fields, **origin)
        known.put(prepared.digest, after)
        return Written(memory=after, outcome="updated", redacted=prepared.redacted)

    async def _late(self, holder: Memory, prepared: _Prepared) -> Written:
        """What was true before the one memory of a topic is becomes history: it holds until the next one known."""
        since = prepared.memory.valid_from
        versions = await self.versions(holder.id)
        for one in versions:
            if one.valid_from == since and text_hash(one.text) == prepared.digest:
                return Written(memory=one, outcome="unchanged", redacted=prepared.redacted)
        until = min(one.valid_from for one in (*versions, holder) if one.valid_from > since)
        for one in versions:
            if one.valid_from <= since and (one.valid_to is None or one.valid_to > since):
                self._op.update(one, "superseded", valid_to=since)
        past = dataclasses.replace(
            prepared.memory, id=self._new_id(), state="superseded", current=holder.id, place=None, valid_to=until
        )
        return Written(memory=self._op.insert(past, "added"), outcome="added", redacted=prepared.redacted)

    async def _again(self, same: Memory, prepared: _Prepared, known: Known) -> Written:
        """The same text once more changes nothing, but for a topic the memory did not have yet."""
        given = prepared.memory
        if same.topic is None and given.topic is not None:
            same = self._op.update(same, "classified", topic=given.topic)
            known.put(prepared.digest, same)
            return Written(memory=same, outcome="updated", redacted=prepared.redacted)
        return Written(memory=same, outcome="unchanged", redacted=prepared.redacted)

    async def _replace(self, former_id: str, prepared: _Prepared, known: Known) -> Written:
        """A fact that contradicts another takes its place; the former one is kept as what was true before."""
        former = await self.load(former_id)
        memory = prepared.memory
        if former.state != "active":
            raise MemoryConflict("Only an active memory can be superseded.")
        if former.pool != memory.pool:
            raise InvalidMemory("supersedes", "names a memory of another pool")
        if memory.place is not None and memory.place != former.place and await self.holder(memory.place) is not None:
            raise MemoryConflict("The topic holds one memory already: update that one.")
        await self._retire(former, memory.id, until=memory.valid_from)
        added = self._op.insert(dataclasses.replace(memory, supersedes=former.id), "added")
        known.put(prepared.digest, added)
        return Written(memory=added, outcome="added", redacted=prepared.redacted)

    # --- changing -------------------------------------------------------------------------------------------------

    async def edit(self, memory_id: str, change: Change) -> Written:
        """Sets fields of an active memory. A changed text leaves the former one behind, as superseded."""
        before = await self.load(memory_id)
        self._check_current(before, change.revision)
        await self._check_sources(change.sources)
        fields = checked_fields(change)
        text, kinds = before.text, ()
        if not isinstance(change.text, Keep):
            text, kinds = cleaned_text(self._with_dates(change.text, before.text), self._policy)
        change, more = cleaned_change(change, self._policy)
        kinds = tuple(dict.fromkeys((*kinds, *more)))
        if not isinstance(change.topic, Keep) or not isinstance(change.properties, Keep):
            fields |= await self._placed(before, change)
        fields = {name: value for name, value in fields.items() if getattr(before, name) != value}
        checked = None if change.checked is None else (self._op.now if change.checked else None)
        marked = change.checked is not None and (before.checked_at is None) != (checked is None)
        if not fields and not marked and text == before.text:
            return Written(memory=before, outcome="unchanged", redacted=kinds)
        if text == before.text:
            after = self._op.update(before, "edited", checked_at=checked, **fields)
            return Written(memory=after, outcome="updated", redacted=kinds)
        await self._check_allowed(before.pool, text_hash(text))
        await self._check_new(dataclasses.replace(before, text=text, **fields), {before.id})
        after = self._corrected(before, text, "edited", **fields, **_provenance(change))
        return Written(memory=after, outcome="updated", redacted=kinds)

    async def merge(self, ids: Sequence[str], text: str, change: Change) -> Written:
        """Makes one memory of several: the first keeps its id with the new text, the others are superseded by it."""
        if len(set(ids)) < 2:
            raise InvalidMemory("ids", "name at least two different memories")
        first, *others = [await self.load(memory_id) for memory_id in dict.fromkeys(ids)]
        if any(one.state != "active" for one in (first, *others)):
            raise MemoryConflict("Only active memories can be merged.")
        if any(one.pool != first.pool for one in others):
            raise InvalidMemory("ids", "the memories belong to different pools")
        self._check_current(first, change.revision)
        for one, revision in zip(others, change.others or [None] * len(others), strict=True):
            self._check_current(one, revision)
        await self._check_sources(change.sources)
        cleaned, kinds = cleaned_text(self._with_dates(text, first.text, *(one.text for one in others)), self._policy)
        change, more = cleaned_change(change, self._policy)
        kinds = tuple(dict.fromkeys((*kinds, *more)))
        await self._check_allowed(first.pool, text_hash(cleaned))
        fields = checked_fields(change)
        for one in others:
            await self._retire(one, first.id, "merged")
        if not isinstance(change.topic, Keep) or not isinstance(change.properties, Keep):
            fields |= await self._placed(first, change, leaving={one.place for one in others})
        fields["importance"] = fields.get("importance", max(one.importance for one in (first, *others)))
        if cleaned == first.text:
            fields["checked_at"] = None
            return Written(memory=self._op.update(first, "merged", **fields), outcome="updated", redacted=kinds)
        after = self._corrected(first, cleaned, "merged", **fields, **_provenance(change))
        return Written(memory=after, outcome="updated", redacted=kinds)

    def _corrected(self, before: Memory, text: str, action: Action, **fields: Any) -> Memory:
        """The memory keeps its id and says something new; what it said becomes a superseded row of its own. What is
        true only later stays so."""
        since = fields.get("valid_from", max(before.valid_from, self._op.now))
        former = dataclasses.replace(
            before,
            id=self._new_id(),
            state="superseded",
            current=before.id,
            place=None,
            valid_to=max(since, before.valid_from),
            revision=1,
        )
        self._op.insert(former, "superseded")
        said = {"text": text, "valid_from": since, "supersedes": former.id, "checked_at": None}
        by = {"author": self._viewer.author, "source": Source(origin=self._viewer.origin)}
        return self._op.update(before, action, **{**said, **by, **fields})

    async def _retire(
        self, memory: Memory, current: str, action: Action = "superseded", *, until: datetime | None = None
    ) -> None:
        """Makes a memory, with its former versions, a former version of another. They held until `until`, from when on
        the other one holds; None: until now."""
        for version in await self.versions(memory.id):
            end = version.valid_to
            if until is not None:
                end = max(version.valid_from, min(end or until, until))
            self._op.update(version, "superseded", current=current, valid_to=end)
        self._op.update(
            memory,
            action,
            state="superseded",
            current=current,
            valid_to=max(memory.valid_from, until or self._op.now),
            place=None,
        )

    # --- deleting and bringing back -------------------------------------------------------------------------------

    async def trash(self, memory_id: str, revision: int | None) -> Memory:
        """Into the trash. Doing it twice changes nothing."""
        before = await self.load(memory_id)
        if before.state == "trashed":
            return before
        self._check_current(before, revision)
        trashed = self._op.update(before, "trashed", state="trashed", trashed_at=self._op.now)
        await self.give_back(before)
        return trashed

    async def give_back(self, planned: Memory) -> None:
        """A memory that is true until a planned one supersedes it stays, where that one is deleted. What the planned
        one itself said before goes with it: such rows are not changed, so their revision is the first. Nothing keeps a
        memory from being deleted: one whose topic has no place for it any more stays without topic."""
        now = self._op.now
        if planned.valid_from <= max(now, planned.created_at, planned.updated_at):
            return
        past = [one for one in await self.versions(planned.id) if one.valid_from <= now]
        still = [one for one in past if one.revision > 1 and (one.valid_to is None or one.valid_to > now)]
        if not still:
            return
        present = max(still, key=lambda one: one.valid_from)
        for one in past:
            if one.id != present.id:
                self._op.update(one, "superseded", current=present.id)
        try:
            fields = await self._placed(present, Change())
        except (InvalidMemory, MemoryConflict):
            fields = {"topic": None, "place": None}
        self._op.update(present, "restored", **fields, state="active", current=None, valid_to=None)

    async def restore(self, memory_id: str) -> Memory:
        """Out of the trash; its vitality is as if it had never been there."""
        before = await self.load(memory_id)
        if before.state == "active":
            return before
        if before.state != "trashed":
            raise MemoryConflict("This is a former version of a memory. Undo the change that superseded it.")
        await self._check_allowed(before.pool, text_hash(before.text), restoring=True)
        if before.place is not None and await self.holder(before.place) is not None:
            raise MemoryConflict("Its topic holds another memory now. Delete or update that one first.")
        topic = None if before.topic is None else await self.topic(before.pool, before.topic)
        if topic is not None and has_no_place(topic, before.properties):
            raise MemoryConflict(
                f"Its topic holds one memory for each {', '.join(topic.scope_properties)} now, and this one does not "
                "say which. Let the topic hold several, then restore it."
            )
        await self._check_new(before, {before.id})
        return self._op.update(before, "restored", state="active", trashed_at=None)

    # --- what they share ------------------------------------------------------------------------------------------

    async def load(self, memory_id: str) -> Memory:
        """A memory the viewer may see. Raises NotThere."""
        query = select(memories).where(memories.c.id == memory_id, readable(self._viewer, memories.c.pool))
        row = (await self._connection.execute(query)).mappings().first()
        if row is None:
            raise NotThere("memory")
        return memory_from_row(row)

    async def versions(self, memory_id: str) -> list[Memory]:
        """What a memory said before."""
        rows = await self._connection.execute(select(memories).where(memories.c.current == memory_id))
        return [memory_from_row(row) for row in rows.mappings()]

    async def topic(self, pool: Pool, given: str) -> Topic:
        """A topic by id or name: the pool's own first, then the instance's. Raises NotThere."""
        known = self._topics.get((str(pool), given))
        if known is not None:
            return known
        own, instance = topics.c.owner == owner_name(pool), topics.c.owner == owner_name(None)
        query = (
            select(topics)
            .where(
                or_(own, instance),
                or_(topics.c.id == given, topics.c.name_folded == folded_name(given)),
                readable_topic(self._viewer, topics.c.owner),
            )
            .order_by(instance)
        )
        row = (await self._connection.execute(query)).mappings().first()
        if row is None:
            raise NotThere(f"topic {given!r:.80} in {pool}")
        self._topics[str(pool), given] = topic_from_row(row)
        return self._topics[str(pool), given]

    async def _pool(self, given: Pool | None) -> Pool:
        if given not in self._pools:
            self._pools[given] = await writable_pool(self._connection, self._viewer, given)
        return self._pools[given]

    async def _placed(self, before: Memory, change: Change, leaving: set[str | None] | None = None) -> dict[str, Any]:
        """Topic, properties and place after a move. Raises MemoryConflict when a bounded topic is full."""
        properties = before.properties if isinstance(change.properties, Keep) else change.properties
        given = before.topic if isinstance(change.topic, Keep) else change.topic
        if given is None:
            return {"topic": None, "properties": properties, "place": None}
        topic = await self.topic(before.pool, given)
        check_scope(topic, properties)
        place = bounded_place(before.pool, topic, properties)
        moves = place is not None and place != before.place and place not in (leaving or set())
        if moves and place is not None and await self.holder(place) is not None:
            raise MemoryConflict(f"The topic {topic.name!r} holds one memory already: update that one.")
        return {"topic": topic.id, "properties": properties, "place": place}

    async def holder(self, place: str) -> Memory | None:
        """The active memory at the one place of a bounded topic."""
        await self._op.flush()
        query = select(memories).where(memories.c.place == place, ACTIVE)
        row = (await self._connection.execute(query)).mappings().first()
        return None if row is None else memory_from_row(row)

    async def _taken(self, memory_id: str) -> bool:
        query = select(memories.c.id).where(memories.c.id == memory_id)
        return (await self._connection.execute(query)).first() is not None

    def _check_current(self, memory: Memory, revision: int | None) -> None:
        if memory.state == "superseded":
            raise MemoryConflict("This is a former version of a memory; change the current one.")
        if memory.state == "trashed":
            raise MemoryConflict("This memory is in the trash; restore it first.")
        if revision is not None and revision != memory.revision:
            raise MemoryConflict("Somebody has changed this memory meanwhile. Read it again, then decide.")

    async def _check_sources(self, revisions: Mapping[str, int]) -> None:
        present = await load_rows(self._connection, revisions)
        if {memory_id: memory.revision for memory_id, memory in present.items()} != revisions:
            raise MemoryConflict("Somebody has changed a memory this comes from. Read it again, then decide.")

    async def _check_allowed(self, pool: Pool, digest: str, *, restoring: bool = False) -> None:
        """Raises Forgotten where a writer that is not deliberate would bring back what was deleted."""
        if self._viewer.origin in DELIBERATE:
            await forgive(self._connection, pool, digest)
        elif restoring or (pool, digest) in (await known_of(self._connection, [(pool, digest)])).deleted:
            raise Forgotten("This was deleted; only a person or an explicit tool may bring it back.")

    async def _check_new(self, memory: Memory, own: set[str]) -> None:
        """Raises MemoryConflict where another memory says the same."""
        digest = text_hash(memory.text)
        same = (await known_of(self._connection, [(memory.pool, digest)])).same(digest, memory)
        if same is not None and same.id not in own:
            raise MemoryConflict(f"The memory {same.id} says the same. Delete one of the two, or merge them.")


@dataclasses.dataclass(frozen=True, slots=True)
class _Prepared:
    """A draft, the memory it would be, and the secrets taken out of it."""

    draft: Draft
    memory: Memory
    digest: str
    redacted: tuple[str, ...]


def _provenance(change: Change) -> dict[str, Any]:
    """Where a new text comes from and since when it holds, where that is not told by who writes it now."""
    since = None if change.valid_from is None else whole(checked_time("valid_from", change.valid_from))
    given = {"source": change.source, "valid_from": since}
    return {name: value for name, value in given.items() if value is not None}
