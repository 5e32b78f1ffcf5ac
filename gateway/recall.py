"""Recall beside the replies: searches at the start of a turn and while it runs, and what calls are shown of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import structlog

from gateway import shared_chats
from gateway.recall_sources import ALWAYS_LIMIT, present_memories
from gateway.recall_state import MEMORY_TOOLS, Prefix, Room, Search, Shown, shown_of, unshown
from gateway.shelves import shared_project
from gateway.viewers import viewer_of_chat
from memory.recall import Recalled, query_of_messages, query_of_tools, recalled_memory, render
from memory.records import Filters
from sessions.entries import AssistantEntry, EndedEntry, RecallEntry
from sessions.files import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence, Set

    from gateway.agents import AgentPolicy
    from gateway.clock import Clock
    from gateway.recall_prefix import Prefixes
    from gateway.recall_sources import AgentFiles, Previous
    from gateway.turn import Incoming
    from gateway.vectors import Opener
    from memory.memory import Memories
    from memory.policy import RecallPolicy
    from memory.records import Memory, Viewer
    from memory.removal import Purged
    from memory.search import SearchMode
    from sessions.entries import Entry, ToolCall, ToolResultEntry
    from sessions.session import Session

log = structlog.get_logger()

T = TypeVar("T")

RECORDS_WAIT_S = 1.0
"""How long a call waits for what the records say at once, whatever `wait_s` is: it needs no embedding."""


class RecallSettings(Protocol):
    """What a person has set; `gateway.personal.PersonalSettings` knows."""

    def recall_known(self, user: str | None) -> RecallPolicy | None: ...
    async def recall(self, user: str | None) -> RecallPolicy: ...


class Recall:
    """Everything a conversation is shown of memory. Nothing here fails a turn: without memory, replies go on.

    `settings` are read at every turn, for the person it is for; `configured` hold while they cannot be.
    """

    def __init__(
        self,
        *,
        memory: Opener,
        agents: Mapping[str, AgentPolicy],
        settings: RecallSettings,
        configured: RecallPolicy,
        clock: Clock,
        prefixes: Prefixes,
        files: AgentFiles | None = None,
        previous: Previous | None = None,
        thaw: Callable[[Session], None] = lambda _: None,
        is_small_talk: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        """`is_small_talk`: of a message that wants nothing looked up; then exact words are searched only."""
        self._memory = memory
        self._agents = agents
        self._settings = settings
        self._configured = configured
        self._clock = clock
        self._prefixes = prefixes
        self._files = files
        self._previous = previous
        self._thaw = thaw
        self._is_small_talk = is_small_talk
        self._states: WeakKeyDictionary[Session, Shown] = WeakKeyDictionary()
        self._group: asyncio.TaskGroup | None = None
        self.problem: str | None = None

    async def run(self) -> None:
        """Owns the searches; those that run when it is cancelled end with it."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._spawn(self._prefixes.forget_ended(), "prefixes forgotten")
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None

    # --- for the prompt ---------------------------------------------------------------------------------------------

    def prefix(self, session: Session) -> str | None:
        """What stands in the system text: loaded when the session's first turn began, and not changed by others."""
        state = self._states.get(session)
        return None if state is None or state.prefix is None else state.prefix.text

    def block(self, session: Session, _: Incoming) -> str | None:
        """The part of the trailing block: what was recalled for the running turn."""
        state = self._states.get(session)
        return None if state is None else render(state.shown)

    # --- for the turn -----------------------------------------------------------------------------------------------

    async def begin(self, session: Session, turn: str, incoming: Incoming, texts: Sequence[str]) -> None:
        """A turn begins: searches for its messages, and waits for that `wait_s` at most."""
        viewer = self._viewer(session, incoming)
        settings = self._settings.recall_known(viewer.user)
        if settings is None:
            settings = await self._soon(self._settings.recall(viewer.user), "recall settings") or self._configured
        state, missed = self._states.get(session), None
        if state is None:
            state = self._states[session] = Shown(settings)
            missed = unshown(session.entries, turn, viewer.user)
        state.begin(turn, viewer, settings)
        if self._group is None:
            return
        started = self._clock.monotonic()
        earlier, room = state.waiting(), Room(settings.limit)
        always = self._always_at_start(session, state, viewer)
        searches: list[Search] = []
        if settings.on_message and settings.limit:
            searches = self._at_start(session, state, viewer, texts, room)
            searches += self._started(session, state, viewer, [missed or ""], room)
        state.behind(earlier, room if settings.on_message else None)
        await self._renew_prefix(session, state, viewer)
        await self._wait(always, RECORDS_WAIT_S)
        await self._wait(searches, settings.wait_s - (self._clock.monotonic() - started))
        for search in (*always, *searches):
            search.late = not search.task.done()

    def joined(self, session: Session, joining: Sequence[Incoming]) -> None:
        """Further messages joined the turn: they are searched too, and searching may begin again. What somebody else
        says searches nobody's memory."""
        state = self._states.get(session)
        if state is None or state.viewer is None:
            return
        texts = [one.text for one in joining if self._viewer(session, one) == state.viewer]
        if not texts:
            return
        state.refill()
        if state.settings.on_message and state.settings.limit:
            self._start(session, state, state.viewer, query_of_messages(texts), Room(state.settings.limit))

    def tools_ran(
        self, session: Session, incoming: Incoming, calls: Sequence[ToolCall], results: Sequence[ToolResultEntry]
    ) -> None:
        """Searches again in the background, as long as there is budget for it. In a chat of many the next call is shown
        what memory tools have found."""
        state = self._states.get(session)
        if state is not None and state.viewer is not None and session.key.type in shared_chats.TYPES:
            self._show_asked(state, state.viewer, results)
        if state is None or state.viewer is None or not state.settings.during_turn or state.searches_left <= 0:
            return
        batch = state.settings.mid_turn.batch
        words = query_of_tools(((call.name, call.arguments) for call in calls), (result.text for result in results))
        if batch and self._start(session, state, state.viewer, words, Room(batch)) is not None:
            state.searches_left -= 1

    def _show_asked(self, state: Shown, viewer: Viewer, results: Sequence[ToolResultEntry]) -> None:
        ids = shared_chats.ids_told(one.text for one in results if one.name.startswith(MEMORY_TOOLS))
        if ids and self._group is not None:
            state.asked |= set(ids)
            state.asking.append(self._begun(state, viewer, self._asked(viewer, ids), Room(len(ids))))

    async def before_call(self, session: Session) -> list[Recalled]:
        """Takes over what the searches have found by now; returns what is new, for whoever follows the turn.

        What was found a while ago is asked for again: it may have been deleted since.
        """
        state = self._states.get(session)
        if state is None or state.viewer is None:
            return []
        asking, state.asking = state.asking, []
        await self._wait(asking, RECORDS_WAIT_S)
        done = state.ended()
        state.read(session)
        before = {one.id for one in (*state.shown, *state.unsure)}
        asked = [*state.shown, *state.unsure, *(one for search in done if search.late for one in search.task.result())]
        there = await self._still_there(state.viewer, asked, state.asked)
        if there is None:
            done = [search for search in done if not search.late]
        state.confirm(there)
        state.take(done)
        found = ((search, search.task.result()) for search in done)
        state.show([(one, [hit for hit in hits if not one.late or hit in (there or ())]) for one, hits in found])
        return [one for one in state.shown if one.id not in before]

    def entry(self, session: Session) -> RecallEntry | None:
        """What calls of this turn were shown since the last entry; never the text, which may be deleted one day."""
        state = self._states.get(session)
        if state is None:
            return None
        fresh, always = state.unnoted(), state.unnoted_always()
        if not fresh and not always:
            return None
        if state.viewer is not None:
            self._spawn(self._note(state.viewer, [one.id for one in fresh if one.kind == "memory"]), "recall noted")
        return RecallEntry(turn=state.turn, shown=shown_of(fresh) | ({"always": always} if always else {}))

    # --- searches ---------------------------------------------------------------------------------------------------

    def _viewer(self, session: Session, incoming: Incoming) -> Viewer:
        """Who is shown memories: the person who speaks, in the project the agent belongs to."""
        return viewer_of_chat(session.key, incoming.speaker, self._agents)

    def _always_at_start(self, session: Session, state: Shown, viewer: Viewer) -> list[Search]:
        """In a chat of many the prefix belongs to all: what is always on for the one who speaks is shown beside it."""
        if session.key.type not in shared_chats.TYPES or viewer.user is None:
            return []
        return [self._begun(state, viewer, self._always_shown(viewer), Room(ALWAYS_LIMIT))]

    def _at_start(
        self, session: Session, state: Shown, viewer: Viewer, texts: Sequence[str], room: Room
    ) -> list[Search]:
        """The searches a turn begins with: for its messages, and in a new session for what the one before was about."""
        started = self._started(session, state, viewer, texts, room)
        if self._previous is not None and not any(isinstance(entry, AssistantEntry) for entry in session.entries):
            after = started[0].task if started else None
            former = self._search_former(session, viewer, room.left, self._previous, after)
            started.append(self._begun(state, viewer, former, room))
        return started

    def _started(
        self, session: Session, state: Shown, viewer: Viewer, texts: Sequence[str], room: Room
    ) -> list[Search]:
        search = self._start(session, state, viewer, query_of_messages(texts), room)
        return [] if search is None else [search]

    def _start(self, session: Session, state: Shown, viewer: Viewer, words: str, room: Room) -> Search | None:
        if self._group is None or not words.strip() or (viewer.user is None and self._files is None):
            return None
        limit = room.left + len(state.shown)  # what is shown already may be found again, and takes nobody's place
        return self._begun(state, viewer, self._search(session.record.agent, viewer, words, limit), room)

    def _begun(self, state: Shown, viewer: Viewer, work: Coroutine[Any, Any, list[Recalled]], room: Room) -> Search:
        assert self._group is not None  # noqa: S101
        search = Search(self._group.create_task(work, name="recall"), viewer, room)
        state.searches.append(search)
        return search

    async def _search_former(
        self, session: Session, viewer: Viewer, limit: int, previous: Previous, first: asyncio.Task[Any] | None
    ) -> list[Recalled]:
        """What belongs to the session before; it takes the places the newest message has left, so it ends after
        `first`."""
        try:
            told = await previous(session)
        except (StorageError, LookupError) as error:  # SessionGone is a LookupError
            log.warning("recall.former_session_not_read", error=str(error))
            return []
        found = await self._search(session.record.agent, viewer, query_of_messages([told]), limit) if told else []
        if first is not None:
            await asyncio.wait([first])
        return found

    async def _search(self, agent: str, viewer: Viewer, words: str, limit: int) -> list[Recalled]:
        """The outermost of a task: memory that fails leaves the turn without it."""
        try:
            found: list[tuple[float, Recalled]] = []
            project = None
            mode = await self._mode(words)
            if viewer.user is not None:
                memories = await self._memory.open()
                project = await shared_project(memories, viewer)
                if memories.may_find(viewer):
                    result = await memories.search(
                        viewer, words, mode=mode, limit=limit, filters=Filters(recalled=True)
                    )
                    found += [(hit.score, recalled_memory(hit.memory, None)) for hit in result.hits]
            if self._files is not None:
                found += await self._files.find(agent, project, words, limit, mode)
            self.problem = None
        except Exception as error:
            self.problem = f"Recall failed ({type(error).__name__}); replies go on without memory."
            log.warning("recall.failed", error=str(error), kind=type(error).__name__)
            return []
        return [one for _, one in sorted(found, key=lambda scored: -scored[0])]

    async def _mode(self, words: str) -> SearchMode:
        return "keyword" if self._is_small_talk is not None and await self._is_small_talk(words) else "hybrid"

    async def _still_there(self, viewer: Viewer, shown: Sequence[Recalled], asked: Set[str]) -> set[Recalled] | None:
        """Those that are still there; None while nobody can tell."""
        return await self._soon(self._present(viewer, shown, asked), "recall confirmed") if shown else set()

    async def _present(self, viewer: Viewer, shown: Sequence[Recalled], asked: Set[str] = frozenset()) -> set[Recalled]:
        """`asked` are ids a tool was asked for: also those count that are not recalled by themselves. Raises
        MemoryProblem."""
        facts = [one for one in shown if one.kind == "memory"]
        pieces = [one for one in shown if one.kind == "file"]
        there: set[Recalled] = set()
        if facts:
            there |= await present_memories(await self._memory.open(), viewer, facts, asked)
        if self._files is not None and pieces:
            project = await shared_project(await self._memory.open(), viewer) if viewer.project else None
            present = await self._files.present(pieces, project)
            there |= {one for one in pieces if one.id in present}
        return there

    async def _asked(self, viewer: Viewer, ids: Sequence[str]) -> list[Recalled]:
        """The outermost of a task."""
        try:
            memories = await self._memory.open()
            return [recalled_memory(memory, None) for memory in await memories.store.confirm(ids, viewer)]
        except Exception as error:
            log.warning("recall.failed", error=str(error), kind=type(error).__name__)
            return []

    async def _note(self, viewer: Viewer, ids: Sequence[str]) -> None:
        if not ids:
            return
        try:
            memories = await self._memory.open()
            await memories.store.note_recalled(viewer, ids)
        except Exception as error:
            log.warning("recall.not_noted", error=str(error), kind=type(error).__name__)

    # --- the prefix -------------------------------------------------------------------------------------------------

    async def _renew_prefix(self, session: Session, state: Shown, viewer: Viewer) -> None:
        """MEMORY.md and the topics that are always on, once for a session (spec memory.md, "Recall"). What was deleted
        since leaves it; what came or changed waits for the next session."""
        owner = None if session.key.type in shared_chats.TYPES else viewer
        known = state.prefix
        if known is None or known.owner != owner or known.always:
            made = self._prefixes.begun(session, owner) if known is None else self._prefixes.checked(known, owner)
            fresh = await self._soon(made, "recall prefix")
            if fresh is None and known is not None and known.owner != owner:
                fresh = Prefix(None, known.notes)  # of another person: rather nothing, and again at the next turn
            state.prefix = fresh or known
        if state.prefix is None:
            return
        if known is None or state.prefix.text != known.text:
            self._thaw(session)
        if owner is not None and (fresh_ids := state.prefix.not_in(known)):
            self._spawn(self._note(owner, fresh_ids), "recall noted")
        if state.kept != (kept := state.prefix.kept()):
            state.kept = kept
            self._spawn(self._prefixes.keep(session.id, kept), "prefix kept")

    def appended(self, session: Session, written: Sequence[Entry]) -> None:
        """A hook for the store: of a session that has ended nothing is kept."""
        if any(isinstance(entry, EndedEntry) for entry in written):
            if (state := self._states.get(session)) is not None:
                state.kept = None
            self._spawn(self._prefixes.forget([session.id]), "prefix forgotten")

    async def _always_shown(self, viewer: Viewer) -> list[Recalled]:
        try:
            return await self._prefixes.always(viewer)
        except Exception as error:
            log.warning("recall.always_not_loaded", error=str(error), kind=type(error).__name__)
            return []

    def follow(self, memories: Memories) -> None:
        """What is deleted leaves the prefixes at once: a summary may be asked behind one before the next turn."""
        memories.after_write.append(self._trashed)
        memories.store.after_purge.append(self._purged)

    def _trashed(self, memory: Memory) -> None:
        if memory.state == "trashed":
            self._spawn(self._let_go(lambda one: one.id == memory.id), "prefixes checked")

    async def _purged(self, gone: Purged) -> None:
        await self._let_go(lambda one: one.text in gone.texts)

    async def _let_go(self, suspect: Callable[[Recalled], bool]) -> None:
        """Of prefixes with suspects stays what is still there; while nobody can tell, all but those."""
        for session, state in list(self._states.items()):
            known = state.prefix
            if known is None or known.owner is None or not any(suspect(one) for one in known.always):
                continue
            checked = await self._soon(self._prefixes.checked(known, known.owner), "recall prefix")
            if state.prefix is known and checked is not known:
                state.prefix = checked or known.without(suspect)
                self._thaw(session)

    # --- waiting ----------------------------------------------------------------------------------------------------

    async def _soon(self, work: Coroutine[Any, Any, T], name: str) -> T | None:
        """What the records say within a second; None when they do not, or fail."""

        async def guarded() -> T | None:
            try:
                return await work
            except Exception as error:
                log.warning("recall.records_not_read", what=name, error=str(error), kind=type(error).__name__)
                return None

        if self._group is None:
            work.close()
            return None
        task = self._group.create_task(guarded(), name=name)
        await _within([task], self._clock, RECORDS_WAIT_S)
        return task.result() if task.done() else None

    async def _wait(self, searches: Sequence[Search], wait_s: float) -> None:
        """Until all have ended, or so long."""
        if wait_s > 0:
            await _within([search.task for search in searches], self._clock, wait_s)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        if self._group is None:
            work.close()
        else:
            self._group.create_task(work, name=name)


async def _within(tasks: Sequence[asyncio.Task[Any]], clock: Clock, wait_s: float) -> None:
    """Until all are done, or so long."""
    if all(task.done() for task in tasks):
        return
    waits = [asyncio.ensure_future(clock.sleep(wait_s)), asyncio.ensure_future(asyncio.wait(tasks))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()
