"""The path of one message: accepted on disk, its place in the line, the model's calls, the reply on disk."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, Literal, Protocol
from weakref import WeakValueDictionary

import structlog

from gateway.announce import TOLD_BY_ENTRIES
from gateway.commands import may_use, parse_command
from gateway.lanes import STARTED, Lanes, pending_end
from gateway.models.base import UnknownModel
from gateway.models.image_tokens import attachment_tokens
from gateway.turn import Incoming, Turn, result_from_entries
from sessions.cleanup import used_at
from sessions.context import failed_attempt
from sessions.entries import (
    AssistantEntry,
    CommandEntry,
    EndReason,
    Entry,
    RetractedEntry,
    ToolResultEntry,
    TurnFailedEntry,
    UserEntry,
)
from sessions.queues import QueueFull, effective_mode
from sessions.resets import effective_reset, reset_due

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from zoneinfo import ZoneInfo

    from gateway.bus import EventBus
    from gateway.clock import Clock
    from gateway.commands import Command, CommandsPolicy
    from gateway.models.base import ChatModel
    from gateway.replies import Models, Prompts, Replies
    from gateway.turn import TurnResult
    from sessions.keys import SessionKey
    from sessions.policy import QueueMode, QueuePolicy, SessionsPolicy, TurnPolicy
    from sessions.record import SessionRecord
    from sessions.resets import ResetReason
    from sessions.session import Request, Session
    from sessions.store import SessionStore

QUEUE_RETRY_S = 5.0
HELD = "job:"  # sources whose cut turns go on only when their owner says so
READ_BACK = "transcript"  # origin of the events of a turn that is no longer in memory

log = structlog.get_logger()


class RequestConflict(Exception):
    """The same request id came with another body."""


class MessageTooLong(Exception):
    """The message alone is longer than the model's window."""

    def __init__(self, tokens: int, window: int) -> None:
        super().__init__(
            f"The message has about {tokens} tokens; the model reads at most {window}. Shorten it, or send it in parts."
        )
        self.tokens = tokens
        self.window = window


class Stopping(Exception):
    """The daemon is going down and takes no new messages."""


class CommandRunner(Protocol):
    """Answers commands that do not end the session."""

    async def answer(self, command: Command, session: Session, incoming: Incoming) -> str: ...
    def noted(self, command: Command) -> Command:
        """As it stands in the transcript."""
        ...


class Turns:
    """All turns of the daemon. `start` and `resume_open` are the two ways in."""

    def __init__(
        self,
        *,
        store: SessionStore,
        models: Models,
        prompts: Prompts,
        replies: Replies,
        clock: Clock,
        sessions: SessionsPolicy,
        queue: QueuePolicy,
        policy: TurnPolicy,
        commands: CommandsPolicy,
        machine_zone: ZoneInfo,
        bus: EventBus,
    ) -> None:
        self._store = store
        self._models = models
        self._prompts = prompts
        self._replies = replies
        self._clock = clock
        self._sessions = sessions
        self._queue = queue
        self._policy = policy
        self._machine_zone = machine_zone
        self._allowed = commands
        self._bus = bus
        self.commands: CommandRunner | None = None
        self.after_accept: list[Callable[[Session], None]] = []
        self._gates: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._held: WeakValueDictionary[str, Turn] = WeakValueDictionary()
        self._lanes = Lanes(store=store, replies=replies, clock=clock, queue=queue, policy=policy)
        self.after_turn = self._lanes.after_turn

    # --- life -----------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event, *, grace_s: float) -> None:
        """Owns the turns' tasks until `stop`; then lets running turns end within `grace_s` and cuts the rest.

        What is cut stays open in its transcript and is resumed at the next start.
        """
        await self._lanes.run(stop, grace_s=grace_s)

    @property
    def stopping(self) -> bool:
        return self._lanes.stopping

    @property
    def running(self) -> int:
        return self._lanes.running

    def lane_state(self, session_id: str) -> tuple[list[Turn], list[Turn]]:
        """(running, waiting) turns of a session."""
        return self._lanes.state(session_id)

    def busy(self, session_id: str) -> bool:
        """Whether something runs or waits in a session."""
        return self._lanes.busy(session_id)

    # --- in -------------------------------------------------------------------------------------------------------

    async def start(self, key: SessionKey, incoming: Incoming) -> Turn:
        """Writes the message and returns its turn, which goes on whoever leaves.

        Raises QueueFull, RequestConflict, MessageTooLong, UnknownModel, Stopping, StorageError: then nothing of the
        message was kept.
        """
        if not self._lanes.accepting:
            raise Stopping("The daemon is stopping. Send the message again in a moment.")
        outcome = await asyncio.shield(self._lanes.spawn(self._outcome(key, incoming), f"accept {key}"))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def record(
        self,
        key: SessionKey,
        owner: str | None,
        drafts: Sequence[Entry],
        request_id: str | None = None,
        request_sha256: str | None = None,
    ) -> tuple[Session, list[Entry]]:
        """Stores what was said elsewhere, in order, after the resets that are due; no model is asked.

        Of a request that was stored before, only what is missing is written, after a crash in the middle.
        Raises Stopping, RequestConflict and StorageError: then nothing was kept.
        """
        if self._lanes.stopping:
            raise Stopping("The daemon is stopping. Send it again in a moment.")
        async with self._gate(key):
            session, _ = await self._session_for(key, Incoming(text="", user=owner))
            if request_id is None:
                return session, await self._store.append(session, *drafts)
            known = await self._request(session, request_id, request_sha256)
            stored_in = None if known is None else await self._store.session_of(known.turn)
            session = stored_in or session
            told = [] if stored_in is None else _stored_with(request_id, await self._store.everything(session))
            missing = _marked(drafts, request_id, request_sha256)[len(told) :]
            return session, [*told, *(await self._store.append(session, *missing) if missing else ())]

    async def _outcome(self, key: SessionKey, incoming: Incoming) -> Turn | Exception:
        """A refusal is for the one who asked; raised in the group it would end every turn."""
        try:
            return await self._accept(key, incoming)
        except Exception as error:
            return error

    async def _accept(self, key: SessionKey, incoming: Incoming) -> Turn:
        await self._prompts.ready()
        async with self._gate(key):
            before = self._store.find(key)
            try:
                return await self._entered(key, incoming)
            except Exception:
                self._store.forget_unused(key, before)
                raise

    async def _entered(self, key: SessionKey, incoming: Incoming) -> Turn:
        session, reason = await self._session_for(key, incoming)
        known = await self._known(session, incoming)
        if known is not None:
            return known
        if incoming.fresh and session.record.entries:
            session, reason = await self._succeed(session, "new", key), "new"
        if len(self._lanes.state(session.id)[1]) >= self._queue.cap:
            raise QueueFull(self._queue.cap, QUEUE_RETRY_S)
        if incoming.before and not self._store.sessions_of(key):
            await self._store.append(session, *incoming.before)
        command = parse_command(incoming.text) if incoming.commands and not incoming.results else None
        if command is not None and not may_use(self._allowed, command, key, incoming.role):
            reply = f"/{command.name} is not open in this chat. An administrator can allow it under commands.allow."
            return await self._record_command(session, command, incoming, reply)
        if command is not None and command.ends_session:
            return await self._end_by_command(session, command, incoming)
        if command is not None:
            return await self._answer_command(session, command, incoming)
        turn = await self._enqueue(session, incoming)
        if reason is not None:
            turn.events.emit("session.started", session=session.id, reason=reason)
        return turn

    def _gate(self, key: SessionKey) -> asyncio.Lock:
        """Messages of one key enter one after the other, in the order they arrived."""
        text = str(key)
        gate = self._gates.get(text)
        if gate is None:
            gate = self._gates[text] = asyncio.Lock()
        return gate

    async def _session_for(self, key: SessionKey, incoming: Incoming) -> tuple[Session, str | None]:
        """The session a message belongs to, after the resets that are due; and why it is a new one, if it is."""
        session = await self._store.active(key, owner=incoming.user)
        if session.record.entries == 0:
            previous = self._store.former(key)
            return session, previous.ended if previous else "first"
        if (word := pending_end(session.commands)) is not None:
            return await self._succeed(session, word), word
        due = self._due(key, session.record, busy=self._lanes.busy(session.id))
        return (session, None) if due is None else (await self._store.end(session, due), due)

    def _due(self, key: SessionKey, record: SessionRecord, *, busy: bool) -> ResetReason | None:
        return reset_due(
            effective_reset(self._sessions.reset, key, record.settings.reset, self._machine_zone),
            started_at=record.resumed_at or record.created_at,
            active_at=used_at(record),
            now=self._clock.now(),
            busy=busy,
        )

    async def end_if_due(self, key: SessionKey, session_id: str) -> Literal["ended", "busy", "not due"]:
        """Ends the session that holds a key when a reset is due; a message that arrives meanwhile waits for it, or has
        come first. Raises StorageError and SessionGone."""
        async with self._gate(key):
            record = self._store.find(key)
            if self._lanes.stopping or record is None or record.session != session_id or record.ended is not None:
                return "not due"
            session = await self._store.open(session_id)
            if session.open or self._lanes.busy(session_id):
                return "busy"
            due = self._due(key, session.record, busy=False)
            if due is None:
                return "not due"
            await self._store.close(session, due)
            return "ended"

    async def _known(self, session: Session, incoming: Incoming) -> Turn | None:
        """The turn this request id has already opened. Raises RequestConflict when the body is another one."""
        if incoming.request_id is None:
            return None
        request = await self._request(session, incoming.request_id, incoming.request_sha256)
        return None if request is None else await self.find(request.turn)

    async def _request(self, session: Session, request_id: str, sha256: str | None) -> Request | None:
        """What a request id has stored. Raises RequestConflict when that was something else."""
        request = await self._store.request(session, request_id)
        if request is not None and request.sha256 != sha256:
            raise RequestConflict(
                f"The request id {request_id!r} was used for another message. Use a new id for a new message."
            )
        return request

    async def _enqueue(self, session: Session, incoming: Incoming) -> Turn:
        model = self._models.choose(session.record.agent, incoming.model or session.record.settings.model)
        drafts = self._drafts(incoming, model)
        drafts += _in_place_of_failed(session.entries, drafts[0])
        entries = await self._store.append(session, *drafts, opens_turn=True)
        mode = incoming.queue or effective_mode(self._queue, session.record.channel, session.record.settings.queue_mode)
        turn = self._told_turn(entries[0].turn or "", session, incoming, mode)
        turn.events.emit("accepted", turn=turn.id, session=session.id, seq=entries[0].seq)
        self._lanes.admit(turn)
        for hook in self.after_accept:
            hook(session)
        return turn

    def _told_turn(self, wanted: str, session: Session, incoming: Incoming, mode: QueueMode) -> Turn:
        """A turn whose events go to all who follow its key; what starts or compacts a session is told once, by
        gateway.announce. Whoever has asked for it before it could go on follows the same one."""
        held = self._held.pop(wanted, None)
        if held is not None:
            held.incoming, held.mode = incoming, mode
            return held

        def tell(name: str, fields: dict[str, Any]) -> None:
            if name not in TOLD_BY_ENTRIES:
                record = session.record
                told = {**fields, "turn": wanted}
                self._bus.emit(name, told, key=record.key, session=record.session, owner=record.owner, turn=wanted)

        return Turn(wanted, session, incoming, mode, tell, origin=self._bus.run)

    def _drafts(self, incoming: Incoming, model: ChatModel) -> list[Entry]:
        if incoming.results:
            return [dataclasses.replace(r, tokens=self._prompts.count(r.text)) for r in incoming.results]
        tokens = self._prompts.count(incoming.text)
        if incoming.attachments:
            policy = self._models.policy(model.name)
            tokens += sum(attachment_tokens(policy and policy.provider, a) for a in incoming.attachments)
        window = model.window
        if window is not None and tokens > window:
            raise MessageTooLong(tokens, window)
        return [
            UserEntry(
                text=incoming.text,
                attachments=incoming.attachments,
                sender=incoming.sender,
                sender_name=incoming.sender_name,
                user=incoming.speaker,
                request_id=incoming.request_id,
                request_sha256=incoming.request_sha256,
                model=incoming.model,
                source=incoming.source,
                tokens=tokens,
            )
        ]

    # --- commands -------------------------------------------------------------------------------------------------

    async def _answer_command(self, session: Session, command: Command, incoming: Incoming) -> Turn:
        if self.commands is None:
            raise UnknownModel("Commands are not available here.")
        reply = await self.commands.answer(command, session, incoming)
        active = await self._store.active(session.key, owner=incoming.user)
        return await self._record_command(active, command, incoming, reply)

    async def _record_command(self, session: Session, command: Command, incoming: Incoming, reply: str) -> Turn:
        entry = CommandEntry(
            name=command.name,
            argument=(command if self.commands is None else self.commands.noted(command)).argument,
            reply=reply,
            sender=incoming.sender,
            request_id=incoming.request_id,
            request_sha256=incoming.request_sha256,
        )
        (written,) = await self._store.append(session, entry, opens_turn=True)
        turn = self._told_turn(written.turn or "", session, incoming, "followup")
        turn.events.emit("accepted", turn=turn.id, session=session.id, seq=written.seq)
        turn.events.emit_text(reply)
        self._lanes.finish(turn, result_from_entries(session, turn.id))
        return turn

    async def _end_by_command(self, session: Session, command: Command, incoming: Incoming) -> Turn:
        """`/new` and `/reset`: the next session takes messages at once; the old one ends when its line is empty."""
        text = command.argument if command.name == "new" else ""
        recorded = incoming if not text else dataclasses.replace(incoming, request_id=None)
        if session.record.entries:
            told = await self._record_command(session, command, recorded, STARTED)
            following = await self._succeed(session, "new" if command.name == "new" else "reset")
        else:
            told = await self._record_command(session, command, recorded, "This session is new already.")
            following = session
        if not text:
            told.events.emit("session.started", session=following.id, reason=command.name)
            return told
        first = dataclasses.replace(incoming, text=text, commands=False)
        turn = await self._enqueue(following, first)
        turn.events.emit("session.started", session=following.id, reason=command.name)
        return turn

    async def _succeed(self, session: Session, reason: EndReason, key: SessionKey | None = None) -> Session:
        if not self._lanes.present(session.id):
            return await self._store.end(session, reason, key=key)
        following = self._store.succeed(session)
        self._lanes.follow(following, session.id)
        return following

    # --- finding, stopping, resuming ------------------------------------------------------------------------------

    def live(self, wanted: str) -> Turn | None:
        """A turn that runs, waits, or ended recently enough for its events to be replayed."""
        return self._lanes.live(wanted)

    async def find(self, wanted: str) -> Turn | None:
        """Any turn that was ever accepted, read back from its transcript if need be; None when there is none."""
        known = self._lanes.live(wanted)
        session = None if known else await self._store.session_of(wanted)
        if session is None:
            return known
        told: Sequence[Entry] = session.entries
        entries = session.turn_entries(wanted)
        if not entries and session.record.generation > 1:
            told = await self._store.everything(session)
            entries = [e for e in told if e.turn == wanted]
        known = self._lanes.live(wanted)
        if known is not None or not entries:
            return known
        if wanted in session.open and not self._lanes.ended_unstored(wanted):
            return self._hold(wanted, session, _incoming_of(entries))
        turn = Turn(wanted, session, _incoming_of(entries), "followup", origin=READ_BACK)
        turn.events.emit("accepted", turn=wanted, session=session.id, seq=entries[0].seq)
        result = result_from_entries(session, wanted, told)
        if result is not None and result.text:
            turn.events.emit_text(result.text)
        self._lanes.finish(turn, result)
        return turn

    def _hold(self, wanted: str, session: Session, incoming: Incoming) -> Turn:
        """A turn that waits in its transcript only: when it goes on, whoever asked for it now is told."""
        turn = self._held.get(wanted) or self._told_turn(wanted, session, incoming, "followup")
        self._held[wanted] = turn
        return turn

    async def stop(self, turn: Turn) -> bool:
        """Stops a running turn, keeping what came, or takes a waiting one out of the line. False when it has ended."""
        return await self._lanes.stop(turn)

    async def stop_session(self, session_id: str) -> bool:
        """Stops what runs in a session; False when nothing does."""
        return self._lanes.stop_session(session_id)

    async def forget(self, key: SessionKey, session_ids: Sequence[str]) -> None:
        """Deletes sessions of a key for good; what runs in them is stopped, what waits goes with them."""
        async with self._gate(key):
            for session_id in session_ids:
                await self._lanes.drain(session_id)
                await self._delete(session_id)

    async def _delete(self, session_id: str) -> None:
        self._lanes.forget(session_id)
        await self._store.delete(session_id)
        for turn in [held for held in self._held.values() if held.record.session == session_id]:
            self._lanes.end_deleted(turn)

    async def discard(self, key: SessionKey, unchanged: SessionRecord) -> bool:
        """Deletes a session for good that is as it was when that was decided; else it stays, and this returns False.

        Raises StorageError and SessionGone.
        """
        async with self._gate(key):
            if self._lanes.busy(unchanged.session) or self._store.index.find(unchanged.session) != unchanged:
                return False
            await self._delete(unchanged.session)
            return True

    async def archive(self, key: SessionKey, session_id: str, *, unchanged: SessionRecord | None = None) -> bool:
        """Moves a session to the archive, between two messages; False when something runs or waits in it, or it is no
        longer `unchanged`. Raises StorageError and SessionGone."""
        async with self._gate(key):
            if self._lanes.busy(session_id) or (unchanged and self._store.index.find(session_id) != unchanged):
                return False
            return await self._store.archive(session_id)

    async def restore(self, key: SessionKey, session_id: str) -> SessionRecord:
        """Takes a session out of the archive. Raises StorageError and SessionGone."""
        async with self._gate(key):
            return await self._store.restore(session_id)

    async def resume_open(self) -> int:
        """Puts every message that still waits for its reply back in line, after a crash or a stop. Returns how many.

        Before anything is accepted: a message of today must not find its session's older ones unaccounted for.
        """
        resumed = 0
        for record in self._store.with_open_turns():
            try:
                resumed += self._resume_all(await self._store.open(record.session))
            except Exception as error:
                log.warning("session.not_resumed", session=record.session, key=record.key, error=str(error))
        return resumed

    def _resume_all(self, session: Session) -> int:
        asked = {wanted: _incoming_of(session.turn_entries(wanted)) for wanted in session.open}
        going = {wanted: one for wanted, one in asked.items() if not (one.source or "").startswith(HELD)}
        for wanted, incoming in going.items():
            self._resume(session, wanted, incoming)
        return len(going)

    def _resume(self, session: Session, wanted: str, incoming: Incoming) -> Turn:
        incoming = dataclasses.replace(incoming, user=incoming.user or session.record.owner)
        turn = self._told_turn(wanted, session, incoming, "followup")
        turn.resumed = True
        turn.events.emit("accepted", turn=wanted, session=session.id)
        self._lanes.admit(turn)
        return turn

    # --- turns whose owner remembers them ---------------------------------------------------------------------------

    async def turn_of(self, key: SessionKey, request_id: str) -> str | None:
        """The turn that a request id has opened in the active session of a key, or the one before it."""
        if self._store.find(key) is None:
            return None
        request = await self._store.request(await self._store.active(key), request_id)
        return None if request is None else request.turn

    async def resume(self, wanted: str) -> Turn | None:
        """A turn by id; one that was cut and is held for its owner goes on. None: there is none."""
        session = None if self._lanes.live(wanted) else await self._store.session_of(wanted)
        if session is None or wanted not in session.open or self._lanes.ended_unstored(wanted):
            return await self.find(wanted)
        if (running := self._lanes.live(wanted)) is not None:
            return running
        if not self._lanes.accepting:
            raise Stopping("The daemon is stopping.")
        return self._resume(session, wanted, _incoming_of(session.turn_entries(wanted)))

    async def result_of(self, wanted: str) -> TurnResult | None:
        """How a turn ended; None while it has not."""
        session = await self._store.session_of(wanted)
        if session is None or wanted in session.open:
            return None
        turn = await self.find(wanted)
        return None if turn is None else turn.result

    async def abandon(self, wanted: str, why: str) -> None:
        """Ends a turn that was cut and is held: it gets no reply."""
        session = await self._store.session_of(wanted)
        if session is not None and wanted in session.open and self._lanes.live(wanted) is None:
            await self._store.append(session, TurnFailedEntry(turn=wanted, code="interrupted", error=why))
            turn = self._held.pop(wanted, None)
            if turn is not None:
                self._lanes.finish(turn, result_from_entries(session, wanted))


def _incoming_of(entries: Sequence[Entry]) -> Incoming:
    """What a turn was asked, as far as its transcript tells: tools and settings of a client are gone with it."""
    first = entries[0]
    if isinstance(first, UserEntry):
        return Incoming(
            text=first.text,
            attachments=first.attachments,
            sender=first.sender,
            sender_name=first.sender_name,
            user=first.user,
            speaker=first.user,
            request_id=first.request_id,
            request_sha256=first.request_sha256,
            model=first.model,
            source=first.source,
        )
    return Incoming(text="", results=tuple(e for e in entries if isinstance(e, ToolResultEntry)))


def _in_place_of_failed(entries: Sequence[Entry], draft: Entry) -> list[Entry]:
    """A message that is sent again after its turn failed stands in the conversation once."""
    failed = failed_attempt(entries, draft) if isinstance(draft, UserEntry) else None
    return [] if failed is None else [RetractedEntry(turn=failed.turn, seqs=(failed.seq,))]


def _marked(drafts: Sequence[Entry], request_id: str, sha256: str | None) -> list[Entry]:
    """Drafts that are found again by their request; the first also says what the request was."""
    hashes = (sha256, *[None] * (len(drafts) - 1))
    return [
        dataclasses.replace(draft, request_id=request_id, request_sha256=sha)
        for draft, sha in zip(drafts, hashes, strict=True)
        if isinstance(draft, UserEntry | AssistantEntry | ToolResultEntry)
    ]


def _stored_with(request_id: str, entries: Sequence[Entry]) -> list[Entry]:
    said = (UserEntry, AssistantEntry, ToolResultEntry)
    return [entry for entry in entries if isinstance(entry, said) and entry.request_id == request_id]
