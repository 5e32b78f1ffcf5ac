"""What happens in chats as one stream, with the text of replies while it is written."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from gateway.announce import TOLD_BY_ENTRIES
from gateway.http.json import dump

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from aiohttp_sse import EventSourceResponse

    from gateway.bus import BusEvent
    from gateway.turn import Turn


class Written:
    """One reader. What a running turn tells comes from the turn, in the order of its text; the rest from the bus.

    A turn that runs already is told from its last call of a tool on: the transcript holds what came before. Events of
    turns have no id; who comes back is told of running turns anew.
    """

    def __init__(
        self,
        response: EventSourceResponse,
        live: Callable[[str], Turn | None],
        running: Callable[[], Iterable[Turn]],
    ) -> None:
        """`live` finds a turn; `running` gives those the reader may follow from the beginning."""
        self._response = response
        self._live = live
        self._running = running
        self._followed: dict[str, asyncio.Task[None]] = {}

    async def send_all(self, events: AsyncGenerator[BusEvent, None]) -> None:
        """Until the bus is closed. Raises what sending raises."""
        try:
            async with aclosing(events), asyncio.TaskGroup() as group:
                async for event in events:
                    await self._tell(event, group)
                for task in self._followed.values():
                    task.cancel()
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _tell(self, event: BusEvent, group: asyncio.TaskGroup) -> None:
        turn = None if event.turn is None else self._live(event.turn)
        if turn is not None and turn.result is None:
            self._follow(turn, group)
        if event.turn not in self._followed:
            await self._response.send(dump(event.fields).decode(), id=event.id, event=event.name)
        if event.name in ("done", "error") and event.turn is not None:
            self._followed.pop(event.turn, None)  # what is left to send of it comes to its end by itself
        if event.name in ("open", "gap"):
            for turn in self._running():
                self._follow(turn, group)

    def _follow(self, turn: Turn, group: asyncio.TaskGroup) -> None:
        if turn.id not in self._followed:
            self._followed[turn.id] = group.create_task(self._send(turn), name=f"text of {turn.id}")

    async def _send(self, turn: Turn) -> None:
        record = turn.record
        told: dict[str, Any] = {"key": record.key, "session": record.session}
        async for event in turn.events.follow(turn.events.since("tool_call")):
            if event.name not in TOLD_BY_ENTRIES:
                fields = {**told, **event.fields, "turn": turn.id}
                await self._response.send(dump(fields).decode(), event=event.name)
