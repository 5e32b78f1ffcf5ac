"""What waits and what runs: the line of every session, one turn at a time, and how each turn ends."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from gateway.kept_turns import KeptTurns
from gateway.models.base import ModelError
from gateway.replies import others
from gateway.turn import TurnResult, result_from_entries
from sessions.entries import CommandEntry, EndReason, Entry, TurnFailedEntry, session_of_turn
from sessions.files import StorageError
from sessions.queues import Lane
from sessions.session import SessionGone

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
    """The lines of all sessions. A line is there as long as its task, which takes it away when nobody waits."""

    def __init__(
        self, *, store: SessionStore, replies: Replies, clock: Clock, queue: QueuePolicy, policy: TurnPolicy
    ) -> None:
        self._store = store
        self._replies = replies
        self._clock = clock
        self._queue = queue
        self.after_turn: list[Callable[[Session], None]] = []
        self._lanes: dict[str, Lane[Turn]] = {}
        self._leaving: dict[str, Turn] = {}
        self._ended = KeptTurns(policy.kept_turns)
        self._unstored: dict[str, set[str]] = {}
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

    def present(self, session_id: str) -> bool:
        """Whether a session has a line: something runs or waits, in it or in the one before it."""
        return session_id in self._lanes

    def live(self, wanted: str) -> Turn | None:
        """A turn that runs, waits, or ended recently enough for its events to be replayed."""
        known = self._ended.find(wanted) or self._leaving.get(wanted)
        if known is not None:
            return known
        parts = session_of_turn(wanted)
        lane = self._lanes.get(parts[0]) if parts else None
        return lane.find(lambda turn: turn.id == wanted) if lane else None

    # --- in and out -----------------------------------------------------------------------------------------------

    def admit(self, turn: Turn) -> None:
        """Puts a turn in its session's line."""
        lane = self._lanes.get(turn.session.id) or self._begin(turn.session)
        if lane.busy:
            turn.events.emit("queued", position=len(lane.waiting) + 1, mode=turn.mode)
        lane.waiting.append(turn)
        if turn.mode == "interrupt":
            for running in lane.running:
                running.stop("interrupted")

    def follow(self, following: Session, session_id: str) -> None:
        """The line of a session that begins while the one before is not done with its own."""
        self._begin(following, after=self._lanes[session_id])

    def _begin(self, session: Session, *, after: Lane[Turn] | None = None) -> Lane[Turn]:
        lane: Lane[Turn] = Lane(after)
        self._lanes[session.id] = lane
        self.spawn(self._run_lane(session, lane), f"lane {session.id}")
        return lane

    async def stop(self, turn: Turn) -> bool:
        """Stops a running turn, keeping what came, or takes a waiting one out of the line. False when it has ended."""
        lane = None if turn.result is not None else self._lanes.get(turn.session.id)
        if lane is None:
            return False
        if turn in lane.waiting:
            await self._take_out(lane, turn)
            return True
        return turn in lane.running and any(running.stop("stopped") for running in lane.running)

    async def _take_out(self, lane: Lane[Turn], turn: Turn) -> None:
        lane.remove(turn)
        session = turn.session
        self._leaving[turn.id] = turn
        failure = TurnFailedEntry(turn=turn.id, code="stopped", error="Stopped before it had begun.")
        try:
            await self._store.append(session, failure)
            self.finish(turn, result_from_entries(session, turn.id))
        except (StorageError, SessionGone) as error:
            self._end_unstored([turn], error)
        finally:
            del self._leaving[turn.id]

    def stop_session(self, session_id: str) -> bool:
        """Stops what runs in a session; False when nothing does."""
        lane = self._lanes.get(session_id)
        return lane is not None and any(turn.stop("stopped") for turn in lane.running)

    async def drain(self, session_id: str) -> None:
        """Stops what runs in a session and what waits, and returns when nothing runs any more."""
        lane = self._lanes.get(session_id)
        if lane is None:
            return
        while lane.waiting:
            await self._take_out(lane, lane.waiting[0])
        for turn in list(lane.running):
            turn.stop("stopped")
        if lane.running:
            await lane.drained.wait()

    def forget(self, session_id: str) -> None:
        """The ended turns of a session that is deleted are found no more."""
        self._ended.forget(session_id)
        self._unstored.pop(session_id, None)

    def finish(self, turn: Turn, result: TurnResult | None) -> None:
        """Tells everybody who follows a turn how it ended, and keeps it a while."""
        if turn.result is not None:
            return
        deleted = turn.session.deleted
        turn.end(result or _failed(turn, "internal", "The turn ended without a reply."))
        if not deleted:
            self._ended.keep(turn)

    def end_deleted(self, turn: Turn) -> None:
        self.finish(turn, _failed(turn, "stopped", "The conversation was deleted."))

    def ended_unstored(self, turn: str) -> bool:
        """Whether a turn has ended, and its transcript does not tell yet."""
        parts = session_of_turn(turn)
        return parts is not None and turn in self._unstored.get(parts[0], ())

    # --- the line -------------------------------------------------------------------------------------------------

    async def _run_lane(self, session: Session, lane: Lane[Turn]) -> None:
        """Nothing that goes wrong in one session leaves it: in the group it would end every turn."""
        try:
            await self._run_waiting(session, lane)
            if not lane.waiting and not session.ended and (word := pending_end(session.commands)) is not None:
                await self._store.close(session, word)
        except (StorageError, SessionGone) as error:
            log.warning("session.not_ended", session=session.id, error=str(error))
        except Exception:
            log.exception("lane.failed", session=session.id)
        finally:
            self._take_away(session, lane)
            lane.drained.set()

    async def _run_waiting(self, session: Session, lane: Lane[Turn]) -> None:
        """Until nobody waits, or the daemon stops: what waits then is answered after the next start."""
        if lane.after is not None:
            await lane.after.drained.wait()
            lane.after = None
        while lane.waiting and not self._stopping:
            try:
                await self._run_next(session, lane)
            except Exception as error:
                log.exception("lane.failed", session=session.id)
                lane.running = lane.running or (lane.take() if lane.waiting else [])
                await self._give_up(session, lane.running, error)
            finally:
                lane.running = []
        self._take_away(session, lane)

    def _take_away(self, session: Session, lane: Lane[Turn]) -> None:
        if self._lanes.get(session.id) is lane:
            del self._lanes[session.id]

    async def _run_next(self, session: Session, lane: Lane[Turn]) -> None:
        """What waits may be stopped meanwhile, to the last turn."""
        if lane.waiting[0].mode == "collect":
            await self._collect(lane)
        await self._settle(session)
        if lane.waiting and not self._stopping:
            await self._run_turn(session, lane, lane.take())

    async def _collect(self, lane: Lane[Turn]) -> None:
        """Waits until no further message has come for `debounce_ms`."""
        seen = 0
        while len(lane.waiting) != seen:
            seen = len(lane.waiting)
            await self._clock.sleep(self._queue.debounce_ms / 1000)

    async def _settle(self, session: Session) -> None:
        """Marks turns as failed whose end could not be written at the time (a full disk); their askers were told."""
        unstored = self._unstored.get(session.id, set())
        lost = [turn for turn in session.open if turn in unstored]
        try:
            if lost:
                await self._store.append(session, *(_lost(turn) for turn in lost))
            self._unstored.pop(session.id, None)
        except (StorageError, SessionGone) as error:
            log.warning("turn.not_settled", session=session.id, turns=lost, error=str(error))

    async def _give_up(self, session: Session, turns: Sequence[Turn], error: Exception) -> None:
        """The end of turns that a fault of ours has struck outside of their replies."""
        why = _fault(error)
        broken = [turn.id for turn in turns if turn.id in session.open]
        try:
            if broken:
                failures = [TurnFailedEntry(turn=turn, code="internal", error=why) for turn in broken]
                await self._store.append(session, *failures)
        except (StorageError, SessionGone) as unwritten:
            self._end_unstored(turns, unwritten)
        for turn in turns:
            self.finish(turn, _failed(turn, "internal", why))

    # --- a turn and its end ---------------------------------------------------------------------------------------

    async def _run_turn(self, session: Session, lane: Lane[Turn], batch: list[Turn]) -> None:
        lead = batch[0]
        lead.task = asyncio.create_task(self._replies.generate(lane, lead), name=f"turn {lead.id}")
        for turn in batch:
            turn.state = "running"
        retry_after_s: float | None = None
        try:
            await lead.task
        except asyncio.CancelledError:
            if lead.stop_as is None and _is_cut():
                lead.task.cancel()
                raise
            await self._end_with(lane, lead, lambda: self._after_cancel(lane, lead))
        except ModelError as error:
            retry_after_s = error.retry_after_s
            entry = self._after_model_error(lane, lead, error)
            await self._end_with(lane, lead, lambda: entry)
        except (StorageError, SessionGone) as error:
            self._end_unstored(lane.running, error)
        except Exception as error:
            log.exception("turn.failed", session=session.id, turn=lead.id)
            failure = TurnFailedEntry(turn=lead.id, code="internal", error=_fault(error), also=others(lead, lane))
            await self._end_with(lane, lead, lambda: failure)
        for turn in list(lane.running):
            result = result_from_entries(session, turn.id)
            self.finish(turn, result and dataclasses.replace(result, retry_after_s=retry_after_s))
        for hook in self.after_turn:
            hook(session)

    async def _end_with(self, lane: Lane[Turn], lead: Turn, end: Callable[[], Entry]) -> None:
        """Writes the end of a turn that did not get its reply. What is being written of it comes first: a reply that
        was stopped while it went to the disk stands."""
        session = lead.session
        async with session.lock:
            pass
        try:
            await self._replies.append(session, end(), only_if=lambda: lead.id in session.open)
        except (StorageError, SessionGone) as error:
            self._end_unstored(lane.running, error)

    def _after_cancel(self, lane: Lane[Turn], lead: Turn) -> Entry:
        """What came is kept where somebody stopped the turn. Nobody has: what it called has cancelled itself."""
        if lead.stop_as is not None:
            return self._replies.cut_reply(lane, lead, lead.stop_as)
        log.error("turn.failed", session=lead.session.id, turn=lead.id, error="cancelled from within")
        why = _fault(asyncio.CancelledError())
        return TurnFailedEntry(turn=lead.id, code="internal", error=why, also=others(lead, lane))

    def _after_model_error(self, lane: Lane[Turn], lead: Turn, error: ModelError) -> Entry:
        """What was already shown stays, marked incomplete; otherwise the turn has failed."""
        log.warning("turn.model_error", session=lead.session.id, turn=lead.id, code=error.code, detail=str(error))
        if lead.shown:
            return self._replies.cut_reply(lane, lead, "incomplete")
        return TurnFailedEntry(turn=lead.id, code=error.code, error=str(error), also=others(lead, lane))

    def _end_unstored(self, turns: Sequence[Turn], error: StorageError | SessionGone) -> None:
        """Tells the askers; the turn stays open in its transcript, if that is there, until it can be settled."""
        for turn in turns:
            if turn.result is not None:
                continue
            if isinstance(error, SessionGone):
                self.end_deleted(turn)
                continue
            if turn.id in turn.session.open:
                self._unstored.setdefault(turn.session.id, set()).add(turn.id)
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
    record = turn.record
    return TurnResult(
        turn=turn.id, session=record.session, key=record.key, text="", entries=(), error_code=code, error=error
    )


def _lost(turn: str) -> TurnFailedEntry:
    return TurnFailedEntry(turn=turn, code="storage", error="The reply could not be stored at the time.")


def _is_cut() -> bool:
    """Whether the task that runs has been cancelled itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _fault(error: BaseException) -> str:
    return f"The turn failed inside sessiond ({type(error).__name__}). The log has the details."
