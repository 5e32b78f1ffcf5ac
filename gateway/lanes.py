"""What waits and what runs: the line of every session, one turn at a time, and how each turn ends."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from gateway.models.base import ModelError
from gateway.replies import others
from gateway.turn import TurnResult, result_from_entries
from sessions.entries import CommandEntry, EndReason, Entry, TurnFailedEntry, session_of_turn
from sessions.files import StorageError
from sessions.queues import Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from gateway.clock import Clock
    from gateway.replies import Replies
    from gateway.turn import Turn
    from sessions.policy import QueuePolicy, TurnPolicy
    from sessions.session import Session
    from sessions.store import SessionStore

T = TypeVar("T")

STARTED = "A new session has started."

log = structlog.get_logger()


class Lanes:
    """The lines of all sessions. Turns that ended a moment ago are kept, so that their events can be replayed."""

    def __init__(
        self, *, store: SessionStore, replies: Replies, clock: Clock, queue: QueuePolicy, policy: TurnPolicy
    ) -> None:
        self._store = store
        self._replies = replies
        self._clock = clock
        self._queue = queue
        self._policy = policy
        self.after_turn: list[Callable[[Session], None]] = []
        self._lanes: dict[str, Lane[Turn]] = {}
        self._ended: OrderedDict[str, Turn] = OrderedDict()
        self._group: asyncio.TaskGroup | None = None
        self._stopping = False

    # --- life -----------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event, *, grace_s: float) -> None:
        """Owns the turns' tasks until `stop`; then lets running turns end within `grace_s` and cuts the rest.

        What is cut stays open in its transcript and is resumed at the next start.
        """
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                await stop.wait()
                self._stopping = True
                lanes = [lane for lane in self._lanes.values() if lane.running]
                waits = [asyncio.ensure_future(turn.done()) for lane in lanes for turn in lane.running]
                if waits:
                    log.info("turns.draining", running=len(waits), grace_s=grace_s)
                    await asyncio.wait(waits, timeout=grace_s)
                for wait in waits:
                    wait.cancel()
                raise _Cut
        except* _Cut:
            pass
        finally:
            self._group = None

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """A task that ends with the turns, whoever has asked for it leaves. Only while `accepting`."""
        assert self._group is not None  # noqa: S101
        return self._group.create_task(work, name=name)

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def accepting(self) -> bool:
        return self._group is not None and not self._stopping

    # --- looking --------------------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        return sum(len(lane.running) for lane in self._lanes.values())

    def state(self, session_id: str) -> tuple[list[Turn], list[Turn]]:
        """(running, waiting) turns of a session."""
        lane = self._lanes.get(session_id)
        return ([], []) if lane is None else (list(lane.running), list(lane.waiting))

    def busy(self, session_id: str) -> bool:
        """Whether something runs or waits in a session."""
        lane = self._lanes.get(session_id)
        return lane is not None and lane.busy

    def live(self, wanted: str) -> Turn | None:
        """A turn that runs, waits, or ended recently enough for its events to be replayed."""
        ended = self._ended.get(wanted)
        if ended is not None:
            return ended
        parts = session_of_turn(wanted)
        lane = self._lanes.get(parts[0]) if parts else None
        return lane.find(lambda turn: turn.id == wanted) if lane else None

    # --- in and out -----------------------------------------------------------------------------------------------

    def lane(self, session: Session) -> Lane[Turn]:
        return self._lanes.setdefault(session.id, Lane())

    def admit(self, lane: Lane[Turn], turn: Turn) -> None:
        """Puts a turn in its session's line and sees to it that the line moves."""
        if lane.busy:
            turn.events.emit("queued", position=len(lane.waiting) + 1, mode=turn.mode)
        idle = not lane.busy
        lane.waiting.append(turn)
        if turn.mode == "interrupt":
            for running in lane.running:
                running.stop("interrupted")
        if idle:
            self.spawn(self._run_lane(turn.session.id, lane), f"lane {turn.session.id}")

    def follow(self, following: Session, lane: Lane[Turn]) -> None:
        """The line of a session that begins while the one before still has turns to finish."""
        self._lanes[following.id] = Lane(after=lane)

    def close(self, session_id: str) -> None:
        """Takes away the line of a session that nothing runs in."""
        self._lanes.pop(session_id, None)

    async def stop(self, turn: Turn) -> bool:
        """Stops a running turn, keeping what came, or takes a waiting one out of the line. False when it has ended."""
        lane = self._lanes.get(turn.session.id)
        if lane is None or turn.result is not None:
            return False
        if lane.remove(turn):
            failure = TurnFailedEntry(turn=turn.id, code="stopped", error="Stopped before it had begun.")
            await self._store.append(turn.session, failure)
            self.finish(turn, result_from_entries(turn.session, turn.id))
            return True
        return any(running.stop("stopped") for running in lane.running)

    def stop_session(self, session_id: str) -> bool:
        """Stops what runs in a session; False when nothing does."""
        lane = self._lanes.get(session_id)
        return lane is not None and any(turn.stop("stopped") for turn in lane.running)

    async def drain(self, session_id: str) -> None:
        """Stops what runs in a session and what waits, and returns when its line is empty."""
        lane = self._lanes.get(session_id)
        if lane is None or not lane.busy:  # a lane that only a command has looked into never drains
            return
        for turn in list(lane.waiting):
            await self.stop(turn)
        for turn in list(lane.running):
            turn.stop("stopped")
        await lane.drained.wait()

    def forget(self, session_id: str) -> None:
        """The ended turns of a session that is deleted are found no more."""
        for turn in [t for t in self._ended.values() if t.session.id == session_id]:
            del self._ended[turn.id]

    def finish(self, turn: Turn, result: TurnResult | None) -> None:
        """Tells everybody who follows a turn how it ended, and keeps it a while."""
        turn.end(result or _failed(turn, "internal", "The turn ended without a reply."))
        self._ended[turn.id] = turn
        while len(self._ended) > self._policy.kept_turns:
            self._ended.popitem(last=False)

    # --- the line -------------------------------------------------------------------------------------------------

    async def _run_lane(self, session_id: str, lane: Lane[Turn]) -> None:
        if lane.after is not None:
            await lane.after.drained.wait()
            lane.after = None
        session = lane.waiting[0].session
        while lane.waiting:
            if lane.waiting[0].mode == "collect":
                await self._collect(lane)
            await self._settle(session, lane)
            batch = lane.take()
            try:
                await self._run_turn(lane, batch)
            finally:
                lane.running = []
        self._lanes.pop(session_id, None)
        try:
            if (word := pending_end(session.commands)) is not None and not session.ended:
                await self._store.close(session, word)
        except StorageError as error:
            log.warning("session.not_ended", session=session_id, error=str(error))
        finally:
            lane.drained.set()

    async def _collect(self, lane: Lane[Turn]) -> None:
        """Waits until no further message has come for `debounce_ms`."""
        seen = 0
        while len(lane.waiting) != seen:
            seen = len(lane.waiting)
            await self._clock.sleep(self._queue.debounce_ms / 1000)

    async def _settle(self, session: Session, lane: Lane[Turn]) -> None:
        """Marks turns as failed whose end could not be written at the time (a full disk); their askers were told."""
        lost = [turn for turn in session.open if turn not in lane.ids()]
        if lost:
            try:
                await self._store.append(session, *(_lost(turn) for turn in lost))
            except StorageError as error:
                log.warning("turn.not_settled", session=session.id, turns=lost, error=str(error))

    # --- a turn and its end ---------------------------------------------------------------------------------------

    async def _run_turn(self, lane: Lane[Turn], batch: list[Turn]) -> None:
        lead = batch[0]
        lead.task = asyncio.create_task(self._replies.generate(lane, lead), name=f"turn {lead.id}")
        for turn in batch:
            turn.state = "running"
        retry_after_s: float | None = None
        try:
            await lead.task
        except asyncio.CancelledError:
            if lead.stop_as is None:
                lead.task.cancel()
                raise
            await self._end_with(lane, lead, self._replies.cut_reply(lane, lead, lead.stop_as))
        except ModelError as error:
            retry_after_s = error.retry_after_s
            await self._end_with(lane, lead, self._after_model_error(lane, lead, error))
        except StorageError as error:
            self._end_unstored(lane, error)
        except Exception as error:
            log.exception("turn.failed", session=lead.session.id, turn=lead.id)
            why = f"The turn failed inside sessiond ({type(error).__name__}). The log has the details."
            await self._end_with(
                lane, lead, TurnFailedEntry(turn=lead.id, code="internal", error=why, also=others(lead, lane))
            )
        for turn in list(lane.running):
            result = result_from_entries(turn.session, turn.id)
            self.finish(turn, result and dataclasses.replace(result, retry_after_s=retry_after_s))
        for hook in self.after_turn:
            hook(lead.session)

    async def _end_with(self, lane: Lane[Turn], lead: Turn, entry: Entry) -> None:
        """Writes the end of a turn that did not get its reply; a reply that was written meanwhile stands."""
        if lead.id not in lead.session.open:
            return
        try:
            await self._replies.append(lead.session, entry)
        except StorageError as error:
            self._end_unstored(lane, error)

    def _after_model_error(self, lane: Lane[Turn], lead: Turn, error: ModelError) -> Entry:
        """What was already shown stays, marked incomplete; otherwise the turn has failed."""
        log.warning("turn.model_error", session=lead.session.id, turn=lead.id, code=error.code, detail=str(error))
        if lead.shown:
            return self._replies.cut_reply(lane, lead, "incomplete")
        return TurnFailedEntry(turn=lead.id, code=error.code, error=str(error), also=others(lead, lane))

    def _end_unstored(self, lane: Lane[Turn], error: StorageError) -> None:
        """Tells the askers; the turn stays open in its transcript until it can be settled."""
        for turn in list(lane.running):
            self.finish(turn, _failed(turn, error.code, str(error)))


class _Cut(Exception):
    """Ends the turns' task group at the end of the grace time."""


def pending_end(commands: Sequence[CommandEntry]) -> EndReason | None:
    """Why a session is about to end: a `/new` or `/reset` among its commands that no end has followed yet."""
    for command in reversed(commands):
        if command.name in ("new", "reset") and command.reply == STARTED:
            return "new" if command.name == "new" else "reset"
    return None


def _failed(turn: Turn, code: str, error: str) -> TurnResult:
    """The end of a turn that its transcript does not tell."""
    record = turn.session.record
    return TurnResult(
        turn=turn.id, session=record.session, key=record.key, text="", entries=(), error_code=code, error=error
    )


def _lost(turn: str) -> TurnFailedEntry:
    return TurnFailedEntry(turn=turn, code="storage", error="The reply could not be stored at the time.")
