"""What a turn is shown of memory when records and searches are slow, and people take turns."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, cast

import pytest

from gateway.clock import ManualClock
from gateway.recall import Recall
from gateway.recall_prefix import Prefixes
from gateway.turn import Incoming
from memory.corpus import Findings, MemoryHit
from memory.policy import RecallPolicy, SearchPolicy
from memory.records import Memory, Source, Topic, user_pool
from sessions.entries import AssistantEntry, Entry, RecallEntry, UserEntry
from sessions.keys import parse_key
from sessions.record import SessionRecord
from sessions.session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from gateway.vectors import Opener
    from memory.records import Filters, Pool, Viewer
    from sessions.transcript import Transcript

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
DIRECT, GROUP = "agent:main:web:direct:ana", "agent:main:web:group:home"


def fact(name: str, user: str = "ana") -> Memory:
    return Memory(
        id=name,
        pool=user_pool(user),
        text=f"the fact {name}",
        topic="reference",
        valid_from=AT,
        source=Source(origin="person"),
        author=user,
        created_at=AT,
        updated_at=AT,
    )


@dataclass
class Shelf:
    """Memories that are found by the words they hold. Searches and questions to the records can be held up."""

    facts: list[Memory] = field(default_factory=list[Memory])
    rules: list[Memory] = field(default_factory=list[Memory])
    searching: asyncio.Event = field(default_factory=asyncio.Event)
    confirming: asyncio.Event = field(default_factory=asyncio.Event)
    modes: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.searching.set()
        self.confirming.set()

    @property
    def store(self) -> Self:
        return self

    @property
    def topics(self) -> _Topics:
        return _Topics()

    def may_find(self, viewer: Viewer) -> bool:
        return True

    async def pools(self, viewer: Viewer) -> list[Pool]:
        return [] if viewer.user is None else [user_pool(viewer.user)]

    async def page(self, viewer: Viewer, filters: Filters, query: object) -> tuple[list[Memory], str | None]:
        return self.rules, None

    async def note_recalled(self, viewer: Viewer, ids: Sequence[str]) -> None:
        pass

    async def search(self, viewer: Viewer, query: str, *, mode: str, limit: int, filters: Filters) -> Findings:
        self.modes.append(mode)
        await self.searching.wait()
        mine = [one for one in self.facts if one.pool.id == viewer.user and set(one.id.split("-")) & set(query.split())]
        return Findings(tuple(MemoryHit(one, 1.0) for one in mine[:limit]))

    async def confirm(self, ids: Sequence[str], viewer: Viewer, filters: object = None) -> list[Memory]:
        await self.confirming.wait()
        return [one for one in (*self.facts, *self.rules) if one.id in ids and one.pool.id == viewer.user]


class _Topics:
    async def topics(self, viewer: Viewer, pool: object) -> list[Topic]:
        return [
            Topic(id="rules", owner=None, name="rules", description="", always_on=True, created_at=AT, updated_at=AT)
        ]


class _Settings:
    def __init__(self, policy: RecallPolicy) -> None:
        self._policy = policy

    def recall_known(self, user: str | None) -> RecallPolicy | None:
        return self._policy

    async def recall(self, user: str | None) -> RecallPolicy:
        return self._policy


class Talk:
    """One session in which turns begin, and what their calls are shown."""

    def __init__(self, shelf: Shelf, key: str = DIRECT, entries: Sequence[Entry] = (), **settings: Any) -> None:
        self.clock = ManualClock(AT)
        self.policy = RecallPolicy.model_validate(settings)
        record = SessionRecord(
            session="S" * 26,
            key=key,
            agent="main",
            type=parse_key(key).type,
            channel="web",
            created_at=AT,
            active_at=AT,
        )
        self.session = Session(record, cast("Transcript", None), entries)
        opener = cast("Opener", _Opened(shelf))
        self.recall = Recall(
            memory=opener,
            agents={},
            settings=_Settings(self.policy),
            configured=self.policy,
            clock=self.clock,
            prefixes=Prefixes(memory=opener, agents={}),
            is_small_talk=self._is_small_talk,
        )
        self._turns = 0

    async def _is_small_talk(self, text: str) -> bool:
        return text.startswith("ok")

    async def settled(self, work: Any) -> Any:
        """What comes of it when as much time passes as it may wait."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await self.clock.advance(1)
        return task.result()

    async def begin(self, text: str, user: str = "ana") -> list[str]:
        """What the first call of a turn is shown."""
        self._turns += 1
        incoming = Incoming(text=text, speaker=user)
        await self.settled(self.recall.begin(self.session, f"t{self._turns}", incoming, [text]))
        return await self.call()

    async def call(self) -> list[str]:
        await self.settled(self.recall.before_call(self.session))
        block = self.recall.block(self.session, Incoming(text="")) or ""
        self.session._add([e for e in [self.recall.entry(self.session)] if e])  # pyright: ignore[reportPrivateUsage]
        return [part.split('\\"')[0] for part in block.split("the fact ")[1:]]


class _Opened:
    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def open(self) -> Shelf:
        return self._shelf


@asynccontextmanager
async def talking(
    shelf: Shelf, key: str = DIRECT, entries: Sequence[Entry] = (), **settings: Any
) -> AsyncGenerator[Talk]:
    talk = Talk(shelf, key, entries, **settings)
    task = asyncio.create_task(talk.recall.run())
    await asyncio.sleep(0)
    try:
        yield talk
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_small_talk_finds_what_has_its_words_and_nothing_by_meaning() -> None:
    shelf = Shelf([fact("dog")])
    async with talking(shelf) as talk:
        assert await talk.begin("the dog") == ["dog"]
        assert await talk.begin("ok dog") == ["dog"]
        assert shelf.modes == ["hybrid", "keyword"]


async def test_what_is_shown_comes_back_when_the_records_answer_again() -> None:
    shelf = Shelf([fact("dog")])
    async with talking(shelf) as talk:
        assert await talk.begin("our dog") == ["dog"]
        shelf.confirming.clear()
        assert await talk.call() == []
        assert await talk.call() == []
        shelf.confirming.set()
        assert await talk.call() == ["dog"]


async def test_a_late_result_that_cannot_be_confirmed_at_once_is_not_lost() -> None:
    shelf = Shelf([fact("dog")])
    shelf.searching.clear()
    async with talking(shelf, wait_s=0) as talk:
        assert await talk.begin("our dog") == []
        shelf.searching.set()
        shelf.confirming.clear()
        assert await talk.begin("what else") == []
        shelf.confirming.set()
        assert await talk.begin("and now") == ["dog"]
        assert await talk.begin("once more") == []


async def test_a_late_result_waits_for_its_person_while_others_speak() -> None:
    shelf = Shelf([fact("dog"), fact("boat", "bob")])
    shelf.searching.clear()
    async with talking(shelf, GROUP, wait_s=0) as talk:
        assert await talk.begin("our dog") == []
        assert await talk.begin("our boat", "bob") == []
        shelf.searching.set()
        assert await talk.begin("hello", "cid") == []
        assert await talk.begin("hello", "bob") == ["boat"]
        assert await talk.begin("hello") == ["dog"]
        assert await talk.begin("hello") == []


def test_by_default_a_search_gives_up_on_vectors_before_a_reply_gives_up_on_the_search() -> None:
    assert SearchPolicy().vectors_wait_s < RecallPolicy().wait_s


@pytest.mark.parametrize(("cats", "shown_cats", "dogs", "shown_dogs"), [(6, 6, 8, 4), (20, 7, 8, 3), (20, 8, 2, 2)])
async def test_what_comes_late_takes_the_places_the_newest_message_has_left_and_some_at_least(
    cats: int, shown_cats: int, dogs: int, shown_dogs: int
) -> None:
    shelf = Shelf([*(fact(f"dog-{n}") for n in range(dogs)), *(fact(f"cat-{n}") for n in range(cats))])
    shelf.searching.clear()
    async with talking(shelf) as talk:
        assert await talk.begin("every dog") == []
        shelf.searching.set()
        await talk.clock.advance(1)
        shown = await talk.begin("every cat")
        assert [name.split("-")[0] for name in shown] == ["cat"] * shown_cats + ["dog"] * shown_dogs


async def test_in_a_group_what_comes_late_leaves_what_is_always_on_its_own_places() -> None:
    shelf = Shelf([fact(f"dog-{n}") for n in range(4)])
    shelf.searching.clear()
    async with talking(shelf, GROUP, limit=2) as talk:
        assert await talk.begin("every dog") == []
        shelf.searching.set()
        await talk.clock.advance(1)
        shelf.rules = [fact(f"rule-{n}") for n in range(3)]
        assert [name.split("-")[0] for name in await talk.begin("hello")] == ["rule"] * 3 + ["dog"] * 2


@pytest.mark.parametrize("noted", [False, True])
async def test_after_a_restart_the_last_message_is_searched_again_where_nothing_was_shown_for_it(noted: bool) -> None:
    entries: list[Entry] = [UserEntry(seq=1, turn="t0", text="our dog", user="ana")]
    if noted:
        entries.append(RecallEntry(seq=2, turn="t0", shown={"memories": ["dog"], "files": []}))
    entries.append(AssistantEntry(seq=3, turn="t0", text="what dog?"))
    shelf = Shelf([fact("dog"), fact("boat")])
    async with talking(shelf, entries=entries) as talk:
        assert await talk.begin("our boat") == (["boat"] if noted else ["boat", "dog"])
        assert await talk.begin("our boat") == ["boat"]


async def test_after_a_restart_nobody_is_shown_what_another_has_asked_for() -> None:
    entries: list[Entry] = [
        UserEntry(seq=1, turn="t0", text="our dog", user="ana"),
        AssistantEntry(seq=2, turn="t0", text="what dog?"),
    ]
    shelf = Shelf([fact("dog"), fact("dog-bob", "bob")])
    async with talking(shelf, GROUP, entries=entries) as talk:
        assert await talk.begin("hello", "bob") == []


async def test_every_generation_notes_once_what_is_always_on_so_that_no_reply_in_it_is_learnt_from() -> None:
    shelf = Shelf(rules=[fact("rule")])
    async with talking(shelf) as talk:

        async def noted() -> list[list[str]]:
            for _ in range(2):
                await talk.begin("hello")
            return [e.shown.get("always", []) for e in talk.session.entries if isinstance(e, RecallEntry)]

        assert await noted() == [["rule"]]
        talk.session.record = dataclasses.replace(talk.session.record, generation=2)
        talk.session.entries.clear()
        assert await noted() == [["rule"]]
