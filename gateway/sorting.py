"""Sorts some memories of one pool into topics, with the helper model."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

import structlog

from memory.classify import SYSTEM, answer_schema, parse_answer, render_question, sorting_topics
from memory.errors import InvalidMemory, MemoryConflict, NotThere
from memory.records import Change

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from typing import Any, Protocol

    from gateway.asking import Asker
    from gateway.models.base import ChatModel
    from memory.memory import Memories
    from memory.records import Memory, Topic, Viewer

    Answer = list[Topic | None] | None

    class Waiting(Protocol):
        """How the answer of the model is waited for."""

        async def __call__(self, work: Coroutine[Any, Any, Answer], /) -> Answer: ...


log = structlog.get_logger()


class NoAnswer(Exception):
    """The helper model gave nothing that can be read."""


async def _wait(work: Coroutine[Any, Any, Answer], /) -> Answer:
    return await work


class TopicSorter:
    """What fits nowhere stays as it is, and so do what somebody has changed meanwhile and what is in a topic that
    nothing is sorted into."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def sort(
        self, memories: Memories, model: ChatModel, viewer: Viewer, batch: Sequence[Memory], wait: Waiting = _wait
    ) -> int:
        """How many memories have another topic now. Raises ModelError, NoAnswer and MemoryUnavailable."""
        pool = batch[0].pool
        topics = sorting_topics(await memories.topics.topics(viewer, pool), pool)
        known = {None, *(topic.id for topic in topics)}
        batch = [memory for memory in batch if memory.topic in known]
        if not topics or not batch:
            return 0
        chosen = await wait(
            self._asker.ask(
                model,
                role="helper",
                system=SYSTEM,
                question=render_question(topics, [memory.text for memory in batch]),
                schema=answer_schema(topics, len(batch)),
                parse=partial(parse_answer, topics=topics, count=len(batch)),
                user=pool.id if pool.kind == "user" else None,
            )
        )
        if chosen is None:
            raise NoAnswer("The helper model gave no JSON; memories stay as they are.")
        moved = 0
        for memory, topic in zip(batch, chosen, strict=True):
            if topic is not None and topic.id != memory.topic:
                moved += await _move(memories, viewer, memory, topic)
        return moved


async def _move(memories: Memories, viewer: Viewer, memory: Memory, topic: Topic) -> bool:
    change = Change(topic=topic.id, revision=memory.revision)
    try:
        await memories.update(dataclasses.replace(viewer, why="sorted"), memory.id, change)
    except (InvalidMemory, MemoryConflict, NotThere) as error:
        log.info("sorting.left_alone", error=str(error))
        return False
    return True
