"""Turns without HTTP: a store, what runs its turns, and a model that says each reply when it may."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.models.base import Finished, TextDelta
from gateway.parts import Parts
from gateway.turn import Incoming
from sessions.context import UserMessage
from sessions.entries import AssistantEntry, CommandEntry, ToolCall, TurnFailedEntry, UserEntry
from sessions.files import Disk
from sessions.keys import parse_key
from tests.journeys.daemon import KEY, config
from tests.patience import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence
    from pathlib import Path

    from gateway.models.base import ModelEvent, ModelRequest
    from gateway.turn import Turn
    from sessions.entries import Entry
    from sessions.files import Files
    from sessions.keys import SessionKey

ANA = parse_key(KEY)


class HeldDisk(Disk):
    """A disk on which nothing is synced while it is held."""

    def __init__(self) -> None:
        self._going = threading.Event()
        self._going.set()
        self._waiting: Counter[bytes] = Counter()
        self._written: dict[int, bytes] = {}

    def hold(self) -> None:
        self._going.clear()

    def go_on(self) -> None:
        self._going.set()

    def syncs(self, kind: str) -> bool:
        """Whether an entry of that type waits to be synced."""
        return any(f'"type":"{kind}"'.encode() in written for written in list(self._waiting.elements()))

    def write(self, descriptor: int, payload: bytes | memoryview) -> int:
        self._written[descriptor] = bytes(payload)
        return super().write(descriptor, payload)

    def sync(self, descriptor: int) -> None:
        written = self._written.get(descriptor, b"")
        self._waiting[written] += 1
        self._going.wait(PATIENCE_S)
        self._waiting[written] -= 1
        super().sync(descriptor)


class Speaker:
    """Says "re: " and the message, and says nothing of a text that is held; `call:` makes it ask for the time first."""

    window = None

    def __init__(self) -> None:
        self.name = self.model = "offline"
        self.asked: list[list[str]] = []
        self.held: dict[str, asyncio.Event] = {}
        self.running: Counter[str | None] = Counter()
        self.most_at_once = 0

    def hold(self, text: str) -> None:
        self.held[text] = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        messages = request.prompt.messages
        texts = [message.text for message in messages if isinstance(message, UserMessage)]
        self.asked.append(texts)
        self.running[request.cache_key] += 1
        self.most_at_once = max(self.most_at_once, self.running[request.cache_key])
        try:
            if texts[-1] in self.held:
                await self.held[texts[-1]].wait()
            text = f"re: {texts[-1]}"
            yield TextDelta(text)
            asks = texts[-1].startswith("call:") and isinstance(messages[-1], UserMessage)
            calls = (ToolCall(id="call_1", name="current_time", arguments="{}"),) if asks else ()
            finish = "tool_calls" if asks else "stop"
            yield Finished(text=text, calls=calls, finish=finish, usage=None, model=self.model, name=self.name)
        finally:
            self.running[request.cache_key] -= 1

    async def close(self) -> None:
        """Nothing is open."""


class Turning:
    """What a test does with running turns."""

    def __init__(self, parts: Parts, model: Speaker, task: asyncio.Task[None]) -> None:
        self.parts, self.model, self._task = parts, model, task
        self.turns, self.store = parts.turns, parts.store

    @property
    def alive(self) -> bool:
        return not self._task.done()

    async def post(self, text: str, key: SessionKey = ANA, **more: object) -> Turn:
        return await self.turns.start(key, Incoming(text=text, **more))  # type: ignore[arg-type]

    async def say(self, text: str, key: SessionKey = ANA, **more: object) -> Turn:
        turn = await self.post(text, key, **more)
        await self.done(turn)
        return turn

    async def done(self, *turns: Turn) -> None:
        async with asyncio.timeout(PATIENCE_S):
            for turn in turns:
                await turn.done()

    async def asked(self, text: str) -> None:
        await until(lambda: any(texts[-1:] == [text] for texts in self.model.asked))

    async def told(self, session_id: str) -> list[str]:
        """What a transcript tells of turns: messages, replies, commands and failures, in order."""
        return told(await self.store.everything(await self.store.open(session_id)))


def told(entries: Sequence[Entry]) -> list[str]:
    out: list[str] = []
    for entry in entries:
        match entry:
            case UserEntry():
                out.append(entry.text)
            case AssistantEntry():
                out.append(f"{entry.text} ({entry.finish})")
            case TurnFailedEntry():
                out.append(f"failed: {entry.code}")
            case CommandEntry():
                out.append(f"/{entry.name}")
            case _:
                pass
    return out


@asynccontextmanager
async def turning(
    data_dir: Path, *, files: Files | None = None, model: Speaker | None = None, **settings: object
) -> AsyncIterator[Turning]:
    """Turns from the start of a daemon to its stop, which cuts what runs."""
    data_dir.mkdir(exist_ok=True)
    parts = Parts(config(roles={"chat": "offline"}, **settings), data_dir, environ={}, files=files)
    speaker = model or Speaker()
    parts.models.put(speaker)
    await parts.tokens.load()
    await parts.store.start()
    index = asyncio.create_task(parts.store.run())
    stop = asyncio.Event()
    task = asyncio.create_task(parts.turns.run(stop, grace_s=0))
    await asyncio.sleep(0)
    await parts.turns.resume_open()
    try:
        yield Turning(parts, speaker, task)
    finally:
        stop.set()
        await task
        index.cancel()
        await parts.store.stop()
