"""Recall beside the replies: searches at the start of a turn and while it runs, and what calls are shown of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast
from weakref import WeakKeyDictionary

import structlog

from gateway.viewers import viewer_of_chat
from memory.errors import MemoryProblem
from memory.recall import ALWAYS, Recalled, fit, query_of_messages, query_of_tools, recalled_memory, render
from memory.records import Filters, ListQuery, project_pool
from sessions.entries import AssistantEntry, RecallEntry, SummaryEntry
from sessions.files import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gateway.agents import AgentPolicy
    from gateway.clock import Clock
    from gateway.turn import Incoming
    from gateway.vectors import Opener
    from memory.memory import Memories
    from memory.policy import RecallPolicy
    from memory.records import Viewer
    from sessions.entries import ToolCall, ToolResultEntry
    from sessions.session import Session
    from sessions.store import SessionStore

log = structlog.get_logger()

PREFIX_WAIT_S = 1.0
ALWAYS_LIMIT = 50
ALWAYS_BYTES = 20_000


class Previous(Protocol):
    """The summary of the session before this one, as words; None without one. Raises StorageError."""

    async def __call__(self, session: Session) -> str | None: ...


class AgentFiles(Protocol):
    """An agent's workspace: what of it stands in every prompt, and what is found in it."""

    async def prefix(self, agent: str) -> str | None: ...
    async def find(self, agent: str, project: str | None, words: str, limit: int) -> list[tuple[float, Recalled]]:
        """Pieces with their scores, the best first."""
        ...

    async def present(self, shown: Sequence[Recalled]) -> set[str]:
        """The ids of those pieces that are still there."""
        ...


@dataclass(slots=True)
class _Search:
    """A search that runs, or has ended and was not shown yet. `most`: how many of its memories may be shown.

    `late`: nobody waited for its end, so what it found may have been deleted since.
    """

    task: asyncio.Task[list[Recalled]]
    viewer: Viewer
    most: int
    late: bool = True


@dataclass(slots=True)
class _State:
    """What one session is shown. `shown`: in the calls of the running turn; `always`: in its prefix."""

    turn: str = ""
    viewer: Viewer | None = None
    shown: list[Recalled] = field(default_factory=list[Recalled])
    noted: set[str] = field(default_factory=set[str])
    searches: list[_Search] = field(default_factory=list[_Search])
    left: int = 0
    room_bytes: int = 0
    prefix: str | None = None
    always: frozenset[str] | None = None


class Recall:
    """Everything a conversation is shown of memory. Nothing here fails a turn: without memory, replies go on.

    `settings` are read at every turn, for the person it is for.
    """

    def __init__(
        self,
        *,
        memory: Opener,
        agents: Mapping[str, AgentPolicy],
        settings: Callable[[str | None], RecallPolicy],
        clock: Clock,
        files: AgentFiles | None = None,
        previous: Previous | None = None,
        thaw: Callable[[Session], None] = lambda _: None,
    ) -> None:
        self._memory = memory
        self._agents = agents
        self._settings = settings
        self._clock = clock
        self._files = files
        self._previous = previous
        self._thaw = thaw
        self._states: WeakKeyDictionary[Session, _State] = WeakKeyDictionary()
        self._group: asyncio.TaskGroup | None = None
        self.problem: str | None = None

    async def run(self) -> None:
        """Owns the searches; those that run when it is cancelled end with it."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None

    # --- for the prompt ---------------------------------------------------------------------------------------------

    def prefix(self, session: Session) -> str | None:
        """What stands in the system text: loaded when the session's first turn began, and not changed by others."""
        state = self._states.get(session)
        return None if state is None else state.prefix

    def block(self, session: Session, _: Incoming) -> str | None:
        """The part of the trailing block: what was recalled for the running turn."""
        state = self._states.get(session)
        return None if state is None else render(state.shown)

    # --- for the turn -----------------------------------------------------------------------------------------------

    async def begin(self, session: Session, turn: str, incoming: Incoming, texts: Sequence[str]) -> None:
        """A turn begins: searches for its messages, and waits for that `wait_s` at most."""
        settings = self._settings(incoming.speaker)
        state = self._states.setdefault(session, _State())
        viewer = self._viewer(session, incoming)
        state.turn, state.viewer = turn, viewer
        state.shown, state.noted = [], set()
        state.searches = [search for search in state.searches if search.viewer == viewer]
        state.room_bytes = settings.max_bytes
        state.left = settings.mid_turn.searches
        if state.always is None:
            await self._load_prefix(session, state, viewer, max(settings.wait_s, PREFIX_WAIT_S))
        if not settings.on_message or settings.limit == 0:
            return
        search = self._start(session, state, viewer, query_of_messages(texts), settings.limit)
        if self._group is not None and not any(isinstance(entry, AssistantEntry) for entry in session.entries):
            self._group.create_task(self._search_former(session, state, viewer, settings.limit), name="recall")
        if search is not None and settings.wait_s > 0:
            await self._wait(search.task, settings.wait_s)
            search.late = not search.task.done()

    def joined(self, session: Session, incoming: Incoming, texts: Sequence[str]) -> None:
        """Further messages joined the turn: they are searched too, and searching may begin again."""
        state, settings = self._states.get(session), self._settings(incoming.speaker)
        if state is None or state.viewer is None:
            return
        state.left = settings.mid_turn.searches
        if settings.on_message and settings.limit:
            self._start(session, state, state.viewer, query_of_messages(texts), settings.limit)

    def tools_ran(
        self, session: Session, incoming: Incoming, calls: Sequence[ToolCall], results: Sequence[ToolResultEntry]
    ) -> None:
        """Searches again in the background, as long as there is budget for it."""
        state, settings = self._states.get(session), self._settings(incoming.speaker)
        if state is None or state.viewer is None or not settings.during_turn:
            return
        if state.left <= 0 or settings.mid_turn.batch == 0:
            return
        words = query_of_tools(((call.name, call.arguments) for call in calls), (result.text for result in results))
        if self._start(session, state, state.viewer, words, settings.mid_turn.batch) is not None:
            state.left -= 1

    async def before_call(self, session: Session) -> list[Recalled]:
        """Takes over what the searches have found by now; returns what is new, for whoever follows the turn.

        What was found a while ago is asked for again: it may have been deleted since.
        """
        state = self._states.get(session)
        if state is None or state.viewer is None:
            return []
        done = [search for search in state.searches if search.task.done()]
        state.searches = [search for search in state.searches if not search.task.done()]
        before = {one.id for one in state.shown}
        state.shown = await self._still_there(state.viewer, state.shown)
        for search in done:
            found = search.task.result()
            if search.late:
                found = await self._still_there(state.viewer, found)
            seen = {*(one.id for one in state.shown), *(state.always or ())}
            room = state.room_bytes - sum(one.size_bytes for one in state.shown)
            state.shown += fit(found, seen=seen, limit=search.most, max_bytes=room)
        return [one for one in state.shown if one.id not in before]

    def entry(self, session: Session) -> RecallEntry | None:
        """What calls of this turn were shown since the last entry; never the text, which may be deleted one day."""
        state = self._states.get(session)
        if state is None:
            return None
        fresh = [one for one in state.shown if one.id not in state.noted]
        if not fresh:
            return None
        state.noted |= {one.id for one in fresh}
        if state.viewer is not None and self._group is not None:
            ids = [one.id for one in fresh if one.kind == "memory"]
            self._group.create_task(self._note(state.viewer, ids), name="recall noted")
        return RecallEntry(turn=state.turn, shown=shown_of(fresh))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _viewer(self, session: Session, incoming: Incoming) -> Viewer:
        """Who is shown memories: the person who speaks, in the project the agent belongs to."""
        return viewer_of_chat(session.key, incoming.speaker, self._agents)

    def _start(self, session: Session, state: _State, viewer: Viewer, words: str, most: int) -> _Search | None:
        if self._group is None or not words.strip() or (viewer.user is None and self._files is None):
            return None
        task = self._group.create_task(self._search(session.record.agent, viewer, words, most), name="recall")
        search = _Search(task, viewer, most)
        state.searches.append(search)
        return search

    async def _search_former(self, session: Session, state: _State, viewer: Viewer, most: int) -> None:
        """A session begins: what its predecessor was about is searched for too, for whichever call comes next."""
        try:
            told = None if self._previous is None else await self._previous(session)
        except (StorageError, LookupError) as error:  # SessionGone is a LookupError
            log.warning("recall.former_session_not_read", error=str(error))
            return
        if told:
            self._start(session, state, viewer, query_of_messages([told]), most)

    async def _wait(self, task: asyncio.Task[list[Recalled]], wait_s: float) -> None:
        alarm = asyncio.ensure_future(self._clock.sleep(wait_s))
        try:
            await asyncio.wait([task, alarm], return_when=asyncio.FIRST_COMPLETED)
        finally:
            alarm.cancel()

    async def _search(self, agent: str, viewer: Viewer, words: str, limit: int) -> list[Recalled]:
        """The outermost of a task: memory that fails leaves the turn without it."""
        try:
            found: list[tuple[float, Recalled]] = []
            project = None
            if viewer.user is not None:
                memories = await self._memory.open()
                project = await _shared_project(memories, viewer)
                if memories.may_find(viewer):
                    result = await memories.search(viewer, words, limit=limit, filters=Filters(recalled=True))
                    found += [(hit.score, recalled_memory(hit.memory, None)) for hit in result.hits]
            if self._files is not None:
                found += await self._files.find(agent, project, words, limit)
            self.problem = None
        except Exception as error:
            self.problem = f"Recall failed ({type(error).__name__}); replies go on without memory."
            log.warning("recall.failed", error=str(error), kind=type(error).__name__)
            return []
        return [one for _, one in sorted(found, key=lambda scored: -scored[0])]

    async def _still_there(self, viewer: Viewer, shown: Sequence[Recalled]) -> list[Recalled]:
        if not shown:
            return []
        ids = [one.id for one in shown if one.kind == "memory"]
        there: set[str] = set()
        try:
            if ids:
                memories = await self._memory.open()
                there |= {m.id for m in await memories.store.confirm(ids, viewer, Filters(recalled=True))}
            if self._files is not None and len(ids) < len(shown):
                there |= await self._files.present([one for one in shown if one.kind == "file"])
        except MemoryProblem as error:
            log.warning("recall.not_confirmed", error=str(error))
        return [one for one in shown if one.id in there]

    async def _note(self, viewer: Viewer, ids: Sequence[str]) -> None:
        if not ids:
            return
        try:
            memories = await self._memory.open()
            await memories.store.note_recalled(viewer, ids)
        except MemoryProblem as error:
            log.warning("recall.not_noted", error=str(error))

    async def _load_prefix(self, session: Session, state: _State, viewer: Viewer, wait_s: float) -> None:
        """MEMORY.md and the topics that are always on, once for a session (spec memory.md, "Recall")."""
        texts: list[str] = []
        if self._files is not None and (text := await self._files.prefix(session.record.agent)):
            texts.append(text)
        always: list[Recalled] = []
        if self._group is not None and viewer.user is not None and not viewer.delegated:
            task = self._group.create_task(self._always_on(viewer), name="memories always on")
            await self._wait(task, wait_s)
            always = task.result() if task.done() else []
        if (rendered := render(always, ALWAYS)) is not None:
            texts.append(rendered)
        state.always = frozenset(one.id for one in always)
        state.prefix = "\n\n".join(texts) or None
        if state.prefix is not None:
            self._thaw(session)

    async def _always_on(self, viewer: Viewer) -> list[Recalled]:
        try:
            memories = await self._memory.open()
            return await always_on(memories, viewer) if memories.may_find(viewer) else []
        except MemoryProblem as error:
            log.warning("recall.prefix_not_loaded", error=str(error))
            return []


def former_summary(store: SessionStore) -> Previous:
    """Of the session that had the same key."""

    async def load(session: Session) -> str | None:
        record = store.former(session.key)
        if record is None or record.session == session.id:
            return None
        entries = (await store.open(record.session)).entries
        opening = next((entry for entry in entries if isinstance(entry, SummaryEntry)), None)
        return None if opening is None else " ".join(_texts(opening.summary))

    return load


def _texts(value: object) -> Iterator[str]:
    """The texts inside of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in cast("dict[str, object]", value).values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in cast("list[object]", value):
            yield from _texts(one)


async def _shared_project(memories: Memories, viewer: Viewer) -> str | None:
    """The conversation's project, when the person is a member of it."""
    if viewer.project is None:
        return None
    member = project_pool(viewer.project) in await memories.store.pools(viewer)
    return viewer.project if member else None


async def always_on(memories: Memories, viewer: Viewer) -> list[Recalled]:
    """The memories of topics that are always on, as many as fit."""
    topics = {
        topic.id: topic.name
        for pool in await memories.store.pools(viewer)
        for topic in await memories.topics.topics(viewer, pool)
        if topic.always_on
    }
    if not topics:
        return []
    filters = Filters(topics=tuple(topics), recalled=True)
    found, _ = await memories.page(viewer, filters, ListQuery(limit=ALWAYS_LIMIT))
    told = [recalled_memory(memory, topics.get(memory.topic or "")) for memory in found]
    return fit(told, seen=(), limit=ALWAYS_LIMIT, max_bytes=ALWAYS_BYTES)


def shown_of(shown: Iterable[Recalled]) -> dict[str, list[str]]:
    """What was shown, by what can be looked up: ids of memories, files with their lines."""
    shown = list(shown)
    return {
        "memories": [one.id for one in shown if one.kind == "memory"],
        "files": [one.where for one in shown if one.kind == "file" and one.where is not None],
    }
