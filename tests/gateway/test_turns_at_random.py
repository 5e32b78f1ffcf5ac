"""People who post, stop, begin anew, interrupt and delete at random, on a slow disk, through a restart."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from gateway.models.base import ModelUnavailable
from gateway.turn import Incoming
from sessions.entries import AssistantEntry, EndedEntry, TurnFailedEntry, UserEntry
from sessions.files import Disk, OsFiles
from sessions.keys import parse_key
from sessions.session import SessionGone
from tests.gateway.turning import Speaker, turning
from tests.patience import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

    from gateway.models.base import ModelEvent, ModelRequest
    from gateway.turn import Turn
    from sessions.entries import Entry
    from tests.gateway.turning import Turning

KEYS = [parse_key(f"agent:main:web:group:{name}") for name in ("one", "two")]
PEOPLE = 6
STEPS = 25
MODES = ("followup", "collect", "steer", "interrupt")
SETTINGS = {"queue": {"debounce_ms": 3, "cap": 1000}, "turn": {"max_attempts": 20}}


class SlowDisk(Disk):
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def sync(self, descriptor: int) -> None:
        time.sleep(self._chance.random() * 0.004)
        super().sync(descriptor)


class Moody(Speaker):
    """Takes a while, and is down at times."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        async for event in super().stream(request):
            await asyncio.sleep(self._chance.random() * 0.004)
            yield event
        if self._chance.random() < 0.05:
            raise ModelUnavailable("The model is down.")


class Book:
    """What was acknowledged: the session and text of every message, and which sessions were deleted."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.texts: dict[str, tuple[str, str]] = {}
        self.turns: list[Turn] = []
        self.doomed: set[str] = set()
        self.number = 0

    def text(self) -> str:
        self.number += 1
        return f"{'call:' if self.chance.random() < 0.2 else ''}message {self.number}."

    def accepted(self, turn: Turn, text: str) -> None:
        self.texts[turn.id] = turn.record.session, text
        self.turns.append(turn)


async def person(daemon: Turning, book: Book) -> None:
    for _ in range(STEPS):
        await asyncio.sleep(book.chance.random() * 0.01)
        await step(daemon, book)


async def step(daemon: Turning, book: Book) -> None:
    chance, key, text = book.chance, book.chance.choice(KEYS), book.text()
    match chance.choices(("post", "new text", "command", "stop", "find", "delete"), (10, 2, 3, 3, 2, 1))[0]:
        case "post":
            incoming = Incoming(text=text, queue=chance.choice(MODES))
            book.accepted(await daemon.turns.start(key, incoming), text)
        case "new text":
            book.accepted(await daemon.turns.start(key, Incoming(text=f"/new {text}")), text)
        case "command":
            await daemon.turns.start(key, Incoming(text=chance.choice(("/new", "/stop", "/status"))))
        case "stop" if book.turns:
            await daemon.turns.stop(chance.choice(book.turns[-5:]))
        case "find" if book.turns:
            wanted = chance.choice(book.turns[-5:])
            found = await daemon.turns.find(wanted.id)
            assert found is not None or wanted.record.session in book.doomed
        case "delete":
            doomed = [record.session for record in daemon.store.sessions_of(key)]
            book.doomed.update(doomed)
            try:
                await daemon.turns.forget(key, doomed)
            except SessionGone:
                """Two deleted it at once."""
        case _:
            pass


def ends(entries: Sequence[Entry]) -> Counter[str]:
    """How often each turn has come to an end: by an end of its own, or with each turn it was joined to, whose first
    reply and whose end may both name it."""
    found: Counter[str] = Counter()
    joined: set[tuple[str, str | None]] = set()
    for entry in entries:
        match entry:
            case AssistantEntry() | TurnFailedEntry():
                joined.update((turn, entry.turn) for turn in entry.also)
                if isinstance(entry, TurnFailedEntry) or entry.finish != "tool_calls":
                    found[entry.turn or ""] += 1
            case _:
                pass
    found.update(turn for turn, _ in joined)
    return found


async def check(daemon: Turning, book: Book) -> None:
    written: Counter[tuple[str, str]] = Counter()
    for record in (found for key in KEYS for found in daemon.store.sessions_of(key)):
        session = await daemon.store.open(record.session)
        entries = await daemon.store.everything(session)
        asked = {entry.turn or "": entry.text for entry in entries if isinstance(entry, UserEntry)}
        assert ends(entries) == Counter(list(asked))
        replies = Counter((e.turn, e.text, bool(e.calls)) for e in entries if isinstance(e, AssistantEntry) and e.text)
        assert set(replies.values()) <= {1}
        assert sum(isinstance(entry, EndedEntry) for entry in entries) <= 1
        written.update((session.id, text) for text in asked.values())
    acknowledged = [one for one in book.texts.values() if one[0] not in book.doomed]
    assert {one: written[one] for one in acknowledged} == dict.fromkeys(acknowledged, 1)


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_people_do_each_message_is_kept_once_and_each_turn_ends_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    book, model = Book(chance), Moody(chance)
    for last in (False, True):
        book.turns.clear()
        async with turning(tmp_path, files=OsFiles(SlowDisk(chance)), model=model, **SETTINGS) as daemon:
            async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as people:
                for _ in range(PEOPLE):
                    people.create_task(person(daemon, book))
            if last:
                await until(lambda: not daemon.turns._lanes._lanes)
                assert not [turn.id for turn in book.turns if turn.result is None]
                await check(daemon, book)
            assert daemon.alive
    assert model.most_at_once == 1
