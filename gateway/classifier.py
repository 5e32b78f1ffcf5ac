"""Sorts new memories without a topic into topics, beside the replies, with the helper model."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from gateway.models.base import ModelError
from gateway.sorting import NoAnswer
from memory.errors import MemoryProblem, MemoryUnavailable
from memory.records import Filters, ListQuery, Viewer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from gateway.clock import Clock
    from gateway.memories import MemoryPart
    from gateway.models.base import ChatModel
    from gateway.models.pool import ModelPool
    from gateway.sorting import TopicSorter
    from memory.memory import Memories
    from memory.records import Memory

log = structlog.get_logger()

BATCH = 10
MOST = 1000
PAUSE_S = 1.0
LEFT_MOST = 500
LEFT_SINCE = timedelta(days=1)
AUTHOR = "classifier"
VIEWER = Viewer(user=None, author=AUTHOR, origin="recategorising", admin=True)
EVERYBODY = dataclasses.replace(VIEWER, whole=True)


class Classifier:
    """A queue of memories and the loop that sorts them. What fails or fits nowhere stays as it is.

    What the queue has no room for is read from the records once it is empty. `recategorize` sorts a person's memories
    when asked to, as a job.
    """

    def __init__(
        self,
        part: MemoryPart,
        models: ModelPool,
        sorter: TopicSorter,
        clock: Clock,
        recategorize: Callable[[Viewer, bool], Awaitable[str]],
    ) -> None:
        self._part = part
        self._models = models
        self._sorter = sorter
        self._clock = clock
        self._recategorize = recategorize
        self._waiting: dict[str, Memory] = {}
        self._wake = asyncio.Event()
        self._left: datetime | None = clock.now() - LEFT_SINCE
        self._reading: tuple[datetime, str | None] | None = None
        self.problem: str | None = None
        if models.for_role("helper") is not None:
            part.when_opened.append(self._join)

    async def run(self) -> None:
        """Without a helper model nothing is done, and memories stay without topic."""
        while (model := self._models.for_role("helper")) is not None:
            try:
                memories = await self._part.open()
                self._join(memories)
                await self._take_up(memories)
                if not self._waiting:
                    self._wake.clear()
                    await self._wake.wait()
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

    def _join(self, memories: Memories) -> None:
        """Hears of every write from the first one on; nobody is told that nothing is sorted."""
        if self.consider not in memories.after_write:
            memories.after_write.append(self.consider)
            memories.recategorize = self._recategorize

    async def _take_up(self, memories: Memories) -> None:
        """Some of what waits in the records only: what the queue had no room for, and at a start what waited when the
        daemon ended. What fitted nowhere is asked once more."""
        while not self._waiting:
            if self._reading is None:
                if self._left is None:
                    return
                self._reading, self._left = (self._left, None), None
            since, place = self._reading
            query = ListQuery(sort="updated", limit=LEFT_MOST, after=place)
            found, place = await memories.page(EVERYBODY, Filters(no_topic=True), query)
            left = [memory for memory in found if memory.updated_at >= since]
            self._reading = None if place is None or len(left) < len(found) else (since, place)
            for memory in left:
                self.consider(memory)

    def consider(self, memory: Memory) -> None:
        """Called with every memory that was written."""
        if memory.state != "active" or memory.topic is not None:
            return
        if memory.id in self._waiting or len(self._waiting) < MOST:
            self._waiting[memory.id] = memory
            self._wake.set()
        else:
            self._left = memory.updated_at if self._left is None else min(self._left, memory.updated_at)

    async def _sort(self, memories: Memories, model: ChatModel) -> None:
        """One call for some memories of one pool."""
        pool = next(iter(self._waiting.values())).pool
        batch = [memory for memory in self._waiting.values() if memory.pool == pool][:BATCH]
        for memory in batch:
            del self._waiting[memory.id]
        try:
            await self._sorter.sort(memories, model, VIEWER, batch)
        except MemoryUnavailable:
            self._waiting = {memory.id: memory for memory in batch} | self._waiting
            raise
        except ModelError as error:
            self.problem = f"Sorting memories into topics failed: {error}"
            log.warning("classifier.model_failed", error=str(error))
            await self._clock.sleep(PAUSE_S * 10)
        except NoAnswer as error:
            self.problem = str(error)
        else:
            self.problem = None
