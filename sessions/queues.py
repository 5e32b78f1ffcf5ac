"""The line of one session: one turn at a time, in the order their messages came."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from sessions.policy import QueueMode, QueuePolicy


class Queued(Protocol):
    """What stands in a line."""

    @property
    def id(self) -> str: ...
    @property
    def mode(self) -> QueueMode: ...
    @property
    def speaker(self) -> str | None:
        """Whose memory the turn may reach; turns of two speakers never become one."""
        ...


Item = TypeVar("Item", bound=Queued)


class QueueFull(Exception):
    """`cap` messages already wait in this session; nothing of the new one was kept."""

    def __init__(self, cap: int, retry_after_s: float) -> None:
        super().__init__(f"{cap} messages already wait in this session. Send it again in {retry_after_s:g} s.")
        self.retry_after_s = retry_after_s


def effective_mode(policy: QueuePolicy, channel: str | None, session: QueueMode | None) -> QueueMode:
    """The session's own setting, else the channel's, else the default."""
    return session or policy.by_channel.get(channel or "", policy.mode)


class Lane(Generic[Item]):
    """The turns of one session: the running ones and the waiting ones.

    `after` is the lane of the session before, when that still has turns to finish.
    """

    def __init__(self, after: Lane[Item] | None = None) -> None:
        self.after = after
        self.running: list[Item] = []
        self.waiting: deque[Item] = deque()
        self.drained = asyncio.Event()

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting)

    def remove(self, item: Item) -> bool:
        """Takes a waiting item out of the line; False when it does not wait (any more)."""
        try:
            self.waiting.remove(item)
        except ValueError:
            return False
        return True

    def take(self) -> list[Item]:
        """What runs next: the first waiting item, with those of its speaker right behind it that are to be collected
        with it."""
        first = self.waiting.popleft()
        self.running = [first]
        while first.mode == "collect" and self.waiting and _joins(self.waiting[0], first, "collect"):
            self.running.append(self.waiting.popleft())
        return self.running

    def take_steering(self) -> list[Item]:
        """Waiting items of the running turn's speaker that want to be shown to it now; they join it."""
        joining = [item for item in self.waiting if _joins(item, self.running[0], "steer")]
        for item in joining:
            self.waiting.remove(item)
        self.running.extend(joining)
        return joining

    def find(self, wanted: Callable[[Item], bool]) -> Item | None:
        return next((item for item in (*self.running, *self.waiting) if wanted(item)), None)


def _joins(item: Queued, lead: Queued, mode: QueueMode) -> bool:
    return item.mode == mode and item.speaker == lead.speaker
