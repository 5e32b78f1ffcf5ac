"""Conversations -> memory: notes which sessions have something new, and learns from them, a few at once."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import structlog

from gateway.exchanges import people_in, pieces_of, said_with, settled_through
from gateway.personal import LEARN_SINCE
from gateway.viewers import viewer_of_chat
from memory.errors import MemoryProblem
from memory.learning import LearnChoices, Lesson, Mark
from memory.records import Source, user_pool
from memory.rows import time_of
from sessions.entries import CompactionEntry, CompactionStartedEntry, EndedEntry, SummaryEntry
from sessions.files import StorageError
from sessions.keys import MalformedKey, parse_key
from sessions.listing import PageQuery
from sessions.session import SessionGone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, tzinfo

    from gateway.agents import AgentPolicy
    from gateway.clock import Clock
    from gateway.exchanges import Piece
    from gateway.learning import Learner
    from gateway.vectors import Opener
    from memory.learning import LearnRun, Trigger
    from memory.memory import Memories
    from memory.policy import LearnPolicy
    from memory.records import Pool, Viewer
    from sessions.entries import EndReason, Entry
    from sessions.record import SessionRecord
    from sessions.session import Session
    from sessions.store import SessionStore

log = structlog.get_logger()

AFTER_REPLY = "learn.after_reply"
MAX_CHANGES = "learn.max_changes"
PAUSE_S = 0.5
"""After a reply: what a person says at once is learnt from together, and no reply shares the machine with learning."""
RETRY_S = 10.0
AGAIN_S = 300.0
TRIES = 4
RECENT = timedelta(days=2)
"""How far back a start looks for sessions that were not learnt from to the end."""
PAGE = 200
MOST_WAITING = 10_000
BATCH_MESSAGES = 20
PIECE_CHARACTERS = 40_000
WITHOUT_PERSON = ("cron", "hook", "sub")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be learnt from. `through_seq` None: all that is settled. `least`: messages that must be new. `person`:
    only what this one has said. `job`: the job it is done for."""

    session: str
    trigger: Trigger
    through_seq: int | None = None
    least: int = 1
    person: str | None = None
    job: str | None = None


class Remember:
    """Hooks note sessions at once and wait for nothing; workers learn from them, never two from the same session.

    The watermark of a session, kept with what was learnt, is the queue that survives a kill: a start looks for sessions
    that go beyond it.
    """

    def __init__(
        self,
        *,
        store: SessionStore,
        learner: Learner,
        memory: Opener,
        agents: Mapping[str, AgentPolicy],
        policy: LearnPolicy,
        zone: tzinfo,
        clock: Clock,
    ) -> None:
        self._store = store
        self._learner = learner
        self._memory = memory
        self._agents = agents
        self._policy = policy
        self._zone = zone
        self._clock = clock
        self._waiting: dict[tuple[str, Trigger], Wanted] = {}
        self._answered: dict[str, SessionRecord] = {}
        self._gone: set[str] = set()
        self._working: set[str] = set()
        self._tries: dict[tuple[str, Trigger], int] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._wake = asyncio.Event()
        self._replied = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self.problem: str | None = None
        self._began_at = clock.now()
        self._on_since: tuple[datetime | None] | None = None

    # --- what is to be learnt from --------------------------------------------------------------------------------

    @property
    def learns(self) -> bool:
        """Whether anything is learnt: there is a helper model."""
        return self._learner.helper() is not None

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nobody works."""
        return not self._answered and not self._waiting and not self._working

    def turn_done(self, session: Session) -> None:
        """A hook for the turns."""
        if session.record.type not in WITHOUT_PERSON and self.learns:
            self._answered[session.id] = session.record
            self._replied.set()

    def ended(self, record: SessionRecord, _: EndReason) -> None:
        """Told of every session that has ended, however it did."""
        if self._policy.at_end:
            self._want(record, "end")

    def appended(self, session: Session, written: Sequence[Entry]) -> None:
        """A hook for the store: a summary is about to be written, or was made at once (the words stay in the
        transcript, so nobody waits for learning); or the session is deleted."""
        for entry in written:
            match entry:
                case CompactionStartedEntry() | CompactionEntry() if self._policy.before_compaction:
                    self._want(session.record, "compaction", entry.anchor)
                case EndedEntry(reason="deleted"):
                    self._gone.add(session.id)
                    self._replied.set()
                case _:
                    pass

    def _want(self, record: SessionRecord, trigger: Trigger, through_seq: int | None = None) -> None:
        if record.type in WITHOUT_PERSON or len(self._waiting) >= MOST_WAITING or not self.learns:
            return
        wanted = Wanted(session=record.session, trigger=trigger, through_seq=through_seq)
        self._waiting[record.session, trigger] = wanted
        self._wake.set()

    # --- the loop -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until it is cancelled. Without a helper model nothing is learnt."""
        await self._take_up()
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._rest(), name="learning after replies")
            for number in range(self._policy.parallel):
                group.create_task(self._work(), name=f"learning {number}")

    async def _take_up(self) -> None:
        """Looks for what a daemon that ended has left."""
        while True:
            try:
                await self._forget_unknown()
                await self._learning_since(await self._memory.open())
                return await self._look_back() if self.learns else None
            except MemoryProblem as error:
                log.warning("learning.waits", error=str(error))
                await self._clock.sleep(RETRY_S)

    async def _learning_since(self, memories: Memories) -> datetime | None:
        """Since when people are learnt from who were not before; noted once. Raises MemoryProblem."""
        if self._on_since is None:
            reach = self._policy.reach if self.learns else 0
            self._on_since = (await memories.store.learning.on_since(self._began_at, reach),)
        return self._on_since[0]

    async def _forget_unknown(self) -> None:
        """What is kept of sessions that were deleted just before a daemon ended. Raises MemoryProblem."""
        learning = (await self._memory.open()).store.learning
        for session in await learning.sessions():
            if not self._is_there(session):
                await learning.forget(session)

    def _is_there(self, session: str) -> bool:
        record = self._store.index.find(session)
        return record is not None and record.ended != "deleted"

    async def _look_back(self) -> None:
        """Older sessions are the daily batch's."""
        memories = await self._memory.open()
        marks = await memories.store.learning.marks()
        since = self._clock.now() - RECENT
        for state in ("active", "former"):
            cursor: str | None = None
            while True:
                found, cursor = self._store.index.page(PageQuery(limit=PAGE, cursor=cursor, state=state))
                for record in found:
                    known = min((mark.through_seq for mark in marks.get(record.session, ())), default=0)
                    if record.active_at >= since and record.last_seq > known:
                        self._want(record, "end" if record.ended is not None and self._policy.at_end else "reply")
                if cursor is None or not found or found[-1].active_at < since:
                    break
                await asyncio.sleep(0)

    async def _rest(self) -> None:
        """Lets replies rest a moment before they are learnt from."""
        while True:
            await self._replied.wait()
            self._replied.clear()
            await self._clock.sleep(PAUSE_S)
            answered, self._answered = self._answered, {}
            for record in answered.values():
                self._want(record, "reply")
            await self._forget()

    async def _forget(self) -> None:
        """Of sessions that were deleted nothing is known here. What cannot be done now is done the next time."""
        gone, self._gone = self._gone, set()
        try:
            memories = await self._memory.open() if gone else None
            while memories is not None and gone:
                session = next(iter(gone))
                await memories.store.learning.forget(session)
                gone.discard(session)
        except MemoryProblem as error:
            log.warning("learning.not_forgotten", error=str(error))
            self._gone |= gone

    async def _work(self) -> None:
        while True:
            place = next((one for one in self._waiting if one[0] not in self._working), None)
            if place is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            wanted = self._waiting.pop(place)
            self._working.add(wanted.session)
            try:
                await self._attempt(wanted)
            finally:
                self._working.discard(wanted.session)
                self._wake.set()

    async def _attempt(self, wanted: Wanted) -> None:
        """The outermost of a piece of work: what fails is tried again a while later, some times."""
        place = wanted.session, wanted.trigger
        again = False
        try:
            failed = next((run for run in await self.learn_from(wanted) if run.state == "failed"), None)
            again = failed is not None
            self.problem = None if failed is None else f"Learning from conversations failed: {failed.problem}"
        except (MemoryProblem, StorageError) as error:
            log.warning("learning.put_off", session=wanted.session, error=str(error))
            again = True
        except (SessionGone, MalformedKey) as error:
            log.info("learning.left_out", session=wanted.session, error=str(error))
        except Exception as error:
            log.exception("learning.failed", session=wanted.session)
            self.problem = f"Learning from conversations failed ({type(error).__name__}); the log says more."
        tried = self._tries.pop(place, 0) + 1
        if again and tried < TRIES and self._group is not None:
            self._tries[place] = tried
            self._group.create_task(self._later(wanted), name="learning again")

    async def _later(self, wanted: Wanted) -> None:
        await self._clock.sleep(AGAIN_S)
        self._waiting.setdefault((wanted.session, wanted.trigger), wanted)
        self._wake.set()

    # --- one session ----------------------------------------------------------------------------------------------

    async def learn_from(self, wanted: Wanted) -> list[LearnRun]:
        """Learns from what is new in a session, for each person who has spoken in it; what came of it.

        What is written is kept together with how far it went, so doing it again changes nothing.
        Raises MemoryProblem, StorageError, SessionGone and MalformedKey.
        """
        lock = self._locks.setdefault(wanted.session, asyncio.Lock())
        async with lock:
            record = self._store.index.find(wanted.session)
            if record is None or not self._is_there(wanted.session) or record.type in WITHOUT_PERSON or not self.learns:
                return []
            memories = await self._memory.open()
            entries, marks = await self._read(memories, record, wanted)
            through = settled_through(entries)
            if wanted.through_seq is not None:
                through = min(through, wanted.through_seq)
            runs: list[LearnRun] = []
            for mark in marks:
                runs += await self._learn_for(memories, record, entries, mark, wanted, through)
            return runs

    async def _read(self, memories: Memories, record: SessionRecord, wanted: Wanted) -> tuple[list[Entry], list[Mark]]:
        """The entries that matter, and how far each person's memory has come. Earlier generations are read only where
        somebody has not come as far as the present one; a session at rest is not kept in memory for it."""
        if wanted.trigger == "batch":
            entries = await self._store.peek(record.session, former=False)
        else:
            entries = list((await self._store.open(record.session)).entries)
        marks = await self._marks(memories, record, entries, wanted)
        begins = next((e.replay_from for e in entries if isinstance(e, SummaryEntry)), 1)
        known = await memories.store.learning.mark(record.session, user_pool(wanted.person)) if wanted.person else None
        if record.generation > 1 and any(
            mark.through_seq + 1 < begins for mark in (*marks, *([known] if known else ()))
        ):
            entries = await self._store.peek(record.session, former=True)
            marks = await self._marks(memories, record, entries, wanted)
        return sorted(entries, key=lambda entry: entry.seq), marks

    async def _marks(
        self, memories: Memories, record: SessionRecord, entries: Sequence[Entry], wanted: Wanted
    ) -> list[Mark]:
        people = [one for one in people_in(entries) if wanted.person in (None, one)]
        return [
            await memories.store.learning.mark(record.session, user_pool(one))
            for one in people
            if await self._is_for(memories, wanted, one)
        ]

    async def _is_for(self, memories: Memories, wanted: Wanted, person: str) -> bool:
        """After replies only for those who want it."""
        chosen = await self.choices(memories, user_pool(person))
        return chosen.max_changes > 0 and (chosen.after_reply or wanted.trigger != "reply")

    async def choices(self, memories: Memories, pool: Pool) -> LearnChoices:
        """What a person has chosen; the rest as configured."""
        settings = memories.store.settings
        after_reply, most = await settings.one(pool, AFTER_REPLY), await settings.one(pool, MAX_CHANGES)
        own = await settings.one(pool, LEARN_SINCE)
        since = [await self._learning_since(memories), None if own is None else time_of(int(own))]
        return LearnChoices(
            after_reply=self._policy.after_reply if after_reply is None else bool(after_reply),
            max_changes=self._policy.max_changes if most is None else int(most),
            since=max((one for one in since if one is not None), default=None),
        )

    async def _learn_for(
        self,
        memories: Memories,
        record: SessionRecord,
        entries: Sequence[Entry],
        mark: Mark,
        wanted: Wanted,
        through: int,
    ) -> list[LearnRun]:
        """Piece by piece, until one could not be learnt from."""
        viewer = dataclasses.replace(self._viewer(record, mark.pool.id, wanted.trigger), job=wanted.job)
        chosen = await self.choices(memories, mark.pool)
        said = said_with(
            entries,
            mark.pool.id,
            after_seq=mark.through_seq,
            through_seq=through,
            zone=self._zone,
            since=chosen.since,
        )
        new = len(said) >= wanted.least and any(one.who == "user" for one in said)
        if viewer.user is None or viewer.delegated or not new:
            return []
        most = BATCH_MESSAGES if wanted.trigger == "batch" else len(said)
        runs: list[LearnRun] = []
        for piece in pieces_of(said, through_seq=through, most_messages=most, most_characters=self._most_characters()):
            runs.append(
                await self._learner.learn(self._lesson(viewer, wanted.trigger, mark, piece, chosen.max_changes))
            )
            mark = await memories.store.learning.mark(mark.session, mark.pool)
            if mark.through_seq < piece.through_seq:
                break
        return runs

    def _lesson(self, viewer: Viewer, trigger: Trigger, mark: Mark, piece: Piece, most: int) -> Lesson:
        first, last = piece.said[0].seq, piece.said[-1].seq
        return Lesson(
            viewer=viewer,
            pool=mark.pool,
            said=piece.said,
            source=Source(origin=viewer.origin, session=mark.session, first_seq=first, last_seq=last),
            now=self._clock.now().astimezone(self._zone),
            trigger=trigger,
            project=viewer.project,
            most=most,
            before=mark,
            mark=Mark(session=mark.session, pool=mark.pool, through_seq=piece.through_seq),
            is_there=lambda: self._is_there(mark.session),
        )

    def _viewer(self, record: SessionRecord, person: str, trigger: Trigger) -> Viewer:
        key = dataclasses.replace(parse_key(record.key), agent=record.agent)
        origin = "batch" if trigger == "batch" else "learning"
        viewer = viewer_of_chat(key, person, self._agents, origin=origin)
        return dataclasses.replace(viewer, author=origin, why=f"learnt: {trigger}")

    def _most_characters(self) -> int:
        """Half of the helper's window, at two characters a token."""
        model = self._learner.helper()
        window = None if model is None else model.window
        return PIECE_CHARACTERS if window is None else max(1000, min(PIECE_CHARACTERS, window))
