"""Something that is opened behind the start, once, and carried through, so that a stop can close it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class Opening(Generic[T]):
    """Whoever waits for it may be cancelled: what a stop cuts in the middle of its opening would stay open for ever."""

    def __init__(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._name = name
        self._work = work
        self._task: asyncio.Task[T] | None = None

    @property
    def begun(self) -> bool:
        """Whether it is open, or being opened."""
        return self._task is not None

    async def opened(self) -> T:
        """What `work` returns; what it raises, and then the next call tries again."""
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name=self._name)
        task = self._task
        try:
            return await asyncio.shield(task)
        finally:
            if self._task is task and task.done() and (task.cancelled() or task.exception() is not None):
                self._task = None

    async def settled(self) -> T | None:
        """For a stop: what is open, after waiting for an opening that goes on; None when there is nothing to close."""
        task, self._task = self._task, None
        if task is None:
            return None
        await asyncio.wait({task})
        return None if task.cancelled() or task.exception() is not None else task.result()


def told_by(error: Exception) -> str:
    """The words of the driver alone: SQLAlchemy adds statements with their values, which are people's."""
    return str(getattr(error, "orig", None) or error)
