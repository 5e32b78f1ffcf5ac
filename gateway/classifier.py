"""Sorts memories without a topic into topics, beside the replies, with the helper model."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import structlog

from compaction.layout import build_prompt
from gateway.models.base import ModelError, ModelRequest, complete
from gateway.replies import CallNote
from memory.classify import SYSTEM, answer_schema, parse_answer, render_question, sorting_topics
from memory.errors import MemoryProblem
from memory.records import Change, Filters, ListQuery, Viewer, user_pool
from sessions.context import UserMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.clock import Clock
    from gateway.ledger import UsageLedger
    from gateway.memories import MemoryPart
    from gateway.models.base import ChatModel, Finished
    from gateway.models.pool import ModelPool
    from memory.memory import Memories
    from memory.records import Memory, Topic

log = structlog.get_logger()

BATCH = 10
MOST = 1000
PAUSE_S = 1.0
AUTHOR = "classifier"


class Classifier:
    """A queue of memories and the loop that sorts them. What fails or fits nowhere stays as it is."""

    def __init__(self, part: MemoryPart, models: ModelPool, ledger: UsageLedger, clock: Clock) -> None:
        self._part = part
        self._models = models
        self._ledger = ledger
        self._clock = clock
        self._waiting: dict[str, Memory] = {}
        self._wake = asyncio.Event()
        self.problem: str | None = None

    async def run(self) -> None:
        """Without a helper model nothing is done, and memories stay without topic."""
        while (model := self._models.for_role("helper")) is not None:
            try:
                memories = await self._part.open()
                if self.consider not in memories.after_write:
                    memories.after_write.append(self.consider)
                    memories.recategorize = self.begin
                await self._wake.wait()
                self._wake.clear()
                await self._clock.sleep(PAUSE_S)
                while self._waiting:
                    await self._sort(memories, model)
            except MemoryProblem as error:
                log.warning("classifier.waits", error=str(error))
                await self._clock.sleep(PAUSE_S * 10)
            except Exception as error:
                log.exception("classifier.failed")
                self.problem = f"Sorting memories into topics failed ({type(error).__name__})."
                await self._clock.sleep(PAUSE_S * 10)

    def consider(self, memory: Memory) -> None:
        """Called with every memory that was written."""
        if memory.state == "active" and memory.topic is None and len(self._waiting) < MOST:
            self._waiting[memory.id] = memory
            self._wake.set()

    async def begin(self, viewer: Viewer, everything: bool) -> str:
        """Sorts a person's own memories: those without topic, or all. Says how many."""
        memories = await self._part.open()
        if viewer.user is None or viewer.delegated:
            return "There is no personal memory for this sender."
        wanted = Filters(pools=(user_pool(viewer.user),), no_topic=not everything)
        found, more = await memories.page(viewer, wanted, ListQuery(limit=MOST))
        self._waiting |= {memory.id: memory for memory in found}
        self._wake.set()
        rest = " Ask again for the rest when that is done." if more else ""
        return f"{len(found)} memories are being sorted in the background.{rest}"

    async def _sort(self, memories: Memories, model: ChatModel) -> None:
        """One call for some memories of one pool."""
        pool = next(iter(self._waiting.values())).pool
        batch = [memory for memory in self._waiting.values() if memory.pool == pool][:BATCH]
        for memory in batch:
            del self._waiting[memory.id]
        viewer = Viewer(user=None, author=AUTHOR, origin="recategorising", admin=True)
        topics = sorting_topics(await memories.topics.topics(viewer, pool))
        if not topics:
            return
        try:
            chosen = await self._ask(model, topics, [memory.text for memory in batch])
        except ModelError as error:
            self.problem = f"Sorting memories into topics failed: {error}"
            log.warning("classifier.model_failed", error=str(error))
            return
        self.problem = None if chosen else "The helper model gave no JSON; memories stay without topic."
        for memory, topic in zip(batch, chosen or [], strict=False):
            if topic is not None and topic.id != memory.topic:
                await self._move(memories, viewer, memory, topic)

    async def _move(self, memories: Memories, viewer: Viewer, memory: Memory, topic: Topic) -> None:
        """What somebody has changed meanwhile is left alone."""
        change = Change(topic=topic.id, revision=memory.revision)
        try:
            await memories.update(dataclasses.replace(viewer, why="sorted"), memory.id, change)
        except MemoryProblem as error:
            log.info("classifier.left_alone", error=str(error))

    async def _ask(self, model: ChatModel, topics: Sequence[Topic], facts: Sequence[str]) -> list[Topic | None] | None:
        """One question, and once more when the answer is no JSON. Raises ModelError."""
        question = UserMessage(text=render_question(topics, facts))
        request = ModelRequest(
            prompt=build_prompt(system=SYSTEM, messages=[question]), schema=answer_schema(topics, len(facts))
        )
        for _ in range(2):
            started = self._clock.monotonic()
            reply = await complete(model, request)
            self._note(model, reply, self._clock.monotonic() - started)
            chosen = parse_answer(reply.text, topics, len(facts))
            if chosen is not None:
                return chosen
        return None

    def _note(self, model: ChatModel, reply: Finished, duration_s: float) -> None:
        if reply.usage is None:
            return
        name = reply.name or model.name
        self._ledger.note(
            CallNote(
                id=self._clock.new_id(),
                session="",
                key="memory:topics",
                user=None,
                agent="",
                role="helper",
                model_name=name,
                model=reply.model,
                usage=reply.usage,
                cost=self._ledger.cost(name, reply.model, reply.usage),
                duration_s=duration_s,
            )
        )
