"""How one turn gets its reply: model calls and tool calls in turn, each written before it is told."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol

import structlog

from gateway.calls import FINE
from gateway.models.base import ContextOverflow, Finished, ModelBroken, ModelRequest, TextDelta
from sessions.entries import AssistantEntry, AttemptEntry, Entry, TurnFailedEntry
from sessions.files import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compaction.layout import Prompt
    from gateway.calls import LastCall
    from gateway.clock import Clock
    from gateway.models.base import ChatModel
    from gateway.models.policy import ModelPolicy
    from gateway.prompts import Built
    from gateway.tools import ToolContext, ToolRegistry
    from gateway.turn import Incoming, Turn
    from memory.recall import Recalled
    from sessions.entries import Finish, RecallEntry, ToolCall, ToolResultEntry
    from sessions.policy import TurnPolicy
    from sessions.queues import Lane
    from sessions.record import SessionRecord
    from sessions.session import Session
    from sessions.store import SessionStore
    from sessions.usage import Usage

log = structlog.get_logger()

WRITE_RETRIES_S = (0.2, 1.0)
OVERFLOW_RETRIES = 2


class Models(Protocol):
    """Which model answers. Raises UnknownModel for a name nobody configured."""

    def choose(self, agent: str, wanted: str | None) -> ChatModel: ...
    def policy(self, name: str) -> ModelPolicy | None: ...


class Prompts(Protocol):
    """What a model is sent for the next call of some turns of a session."""

    def build(
        self, session: Session, turns: frozenset[str], incoming: Incoming, *, tools: bool, limit: int | None
    ) -> Built: ...
    def tool_context(self, session: Session, incoming: Incoming) -> ToolContext: ...
    def count(self, text: str) -> int: ...
    async def ready(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallNote:
    """One finished model call, for the usage ledger. `id` is unique: noting the same call twice changes nothing.

    `cause`: why the provider's cache broke, `none` where it did not; None where that is not looked for.
    """

    id: str
    session: str
    key: str
    user: str | None
    agent: str
    role: str
    model_name: str
    model: str
    usage: Usage
    cost: Decimal | None
    duration_s: float
    cause: str | None = None


class Ledger(Protocol):
    """Where every model call leaves a row."""

    def cost(self, model_name: str, model: str, usage: Usage) -> Decimal | None: ...
    def note(self, call: CallNote) -> None: ...


class Gauge(Protocol):
    """How large the next prompt is."""

    def crowded(self, session: Session, wanted: str | None) -> bool: ...
    def limit(self, session: Session, wanted: str | None) -> int | None: ...
    def known_window(self, session: Session, wanted: str | None) -> int | None: ...


class Calls(Protocol):
    """Notes what calls came to."""

    def answered(self, session: Session, built: Built, asked: str, reply: Finished) -> LastCall | None: ...
    def refused(self, built: Built, model: ChatModel, error: ContextOverflow) -> None: ...


class Room(Protocol):
    """Keeps prompts within the model's window."""

    async def make_room(self, session: Session) -> None: ...
    async def emergency(self, session: Session) -> bool: ...


class Remembers(Protocol):
    """What a turn is shown of memory. Nothing of it fails a turn, or makes it wait longer than it may."""

    async def begin(self, session: Session, turn: str, incoming: Incoming, texts: Sequence[str]) -> None: ...
    def joined(self, session: Session, joining: Sequence[Incoming]) -> None: ...
    def tools_ran(
        self, session: Session, incoming: Incoming, calls: Sequence[ToolCall], results: Sequence[ToolResultEntry]
    ) -> None: ...
    async def before_call(self, session: Session) -> Sequence[Recalled]: ...
    def entry(self, session: Session) -> RecallEntry | None: ...


class NoMemory:
    """For daemons and tests without memory."""

    async def begin(self, session: Session, turn: str, incoming: Incoming, texts: Sequence[str]) -> None:
        return

    def joined(self, session: Session, joining: Sequence[Incoming]) -> None:
        return

    def tools_ran(
        self, session: Session, incoming: Incoming, calls: Sequence[ToolCall], results: Sequence[ToolResultEntry]
    ) -> None:
        return

    async def before_call(self, session: Session) -> Sequence[Recalled]:
        return ()

    def entry(self, session: Session) -> RecallEntry | None:
        return None


class Replies:
    """Generates the reply of a running turn. `generate` ends with the reply, or the failure, on disk."""

    def __init__(
        self,
        *,
        store: SessionStore,
        models: Models,
        prompts: Prompts,
        tools: ToolRegistry,
        ledger: Ledger,
        gauge: Gauge,
        calls: Calls,
        room: Room,
        clock: Clock,
        policy: TurnPolicy,
        slots: asyncio.Semaphore | None = None,
        recall: Remembers | None = None,
    ) -> None:
        """`slots`: how many model calls may run at once, where others make some too."""
        self._store = store
        self._recall: Remembers = recall or NoMemory()
        self._models = models
        self._prompts = prompts
        self._tools = tools
        self._ledger = ledger
        self._gauge = gauge
        self._calls = calls
        self._room = room
        self._clock = clock
        self._policy = policy
        self._slots = slots or asyncio.Semaphore(policy.max_parallel)

    async def generate(self, lane: Lane[Turn], lead: Turn) -> None:
        """Raises ModelError and StorageError; what was shown by then is in `lead.shown`."""
        await self._prompts.ready()
        if lead.resumed and not await self._another_attempt(lane, lead):
            return
        session = lead.session
        model = self._models.choose(session.record.agent, lead.incoming.model or session.record.settings.model)
        theirs = {tool.name for tool in lead.incoming.client_tools}
        also = others(lead, lane)
        await self._recall.begin(session, lead.id, lead.incoming, [turn.incoming.text for turn in lane.running])
        for rounds_left in range(self._policy.max_tool_rounds, -1, -1):
            await self._show_recalled(lane, lead)
            reply, call, duration_s = await self._ask(model, lane, lead, may_call=rounds_left > 0)
            ours = [call for call in reply.calls if call.name not in theirs]
            finish = _finish_of(reply, to_client=len(ours) < len(reply.calls), last=rounds_left == 0)
            await self._append_reply(lane, lead, model, reply, call, finish, also, duration_s)
            if finish in ("tool_calls", "client_tools") and ours:
                await self._run_tools(lane, lead, ours)
            if finish != "tool_calls":
                return
            also = self._steer(lane)
            if also:
                self._recall.joined(session, [turn.incoming for turn in lane.running if turn.id in also])

    async def _show_recalled(self, lane: Lane[Turn], lead: Turn) -> None:
        """The next call is shown what has been found by now. Followers are told which, but no text: in a group they
        are others than the person whose memories these are."""
        fresh = await self._recall.before_call(lead.session)
        if fresh:
            memories = [{"id": one.id, "kind": one.kind, "file": one.where} for one in fresh]
            for turn in lane.running:
                turn.events.emit("recall", memories=memories)

    async def _another_attempt(self, lane: Lane[Turn], lead: Turn) -> bool:
        """Counts the attempt of a turn that a crash or a stop has cut. False when there were enough of them."""
        earlier = sum(1 for e in lead.session.entries if isinstance(e, AttemptEntry) and e.turn == lead.id)
        number = earlier + 2
        if number <= self._policy.max_attempts:
            await self.append(lead.session, AttemptEntry(turn=lead.id, number=number))
            return True
        failure = TurnFailedEntry(
            turn=lead.id,
            code="interrupted",
            error=f"The reply was interrupted {earlier + 1} times and is not tried again. Send the message again.",
            also=others(lead, lane),
        )
        await self.append(lead.session, failure)
        return False

    async def _ask(
        self, model: ChatModel, lane: Lane[Turn], lead: Turn, *, may_call: bool
    ) -> tuple[Finished, LastCall | None, float]:
        """One call, made to fit. A prompt the provider finds too long is shortened and sent again, at most twice."""
        session, wanted = lead.session, lead.incoming.model
        shown = frozenset(turn.id for turn in lane.running)
        halvings = 0
        for retries_left in range(OVERFLOW_RETRIES, -1, -1):
            limit = await self._limit(session, wanted, refused=retries_left < OVERFLOW_RETRIES)
            if limit is not None:
                limit >>= halvings
            built = self._prompts.build(session, shown, lead.incoming, tools=True, limit=limit)
            try:
                reply, duration_s = await self._call(model, lane, lead, built.prompt, may_call=may_call)
                return reply, self._calls.answered(session, built, model.name, reply), duration_s
            except ContextOverflow as error:
                self._calls.refused(built, model, error)
                halvings += error.tokens is None or error.window is None  # with its numbers the limit is right now
                freed = retries_left > 0 and await self._room.emergency(session)
                if retries_left == 0 or not (freed or self._gauge.limit(session, wanted)):
                    raise
                for turn in lane.running:
                    turn.events.emit("compaction", reason="overflow", generation=session.record.generation)
        raise AssertionError("the last retry returns or raises")

    async def _limit(self, session: Session, wanted: str | None, *, refused: bool) -> int | None:
        """What the next prompt is cut to, in our own tokens. None as long as it fits by what the provider reported:
        our count alone would cut prompts that do, and break the cache with it."""
        if self._gauge.crowded(session, wanted):
            await self._room.make_room(session)
            refused = refused or self._gauge.crowded(session, wanted)
        return self._gauge.limit(session, wanted) if refused else None

    async def _call(
        self, model: ChatModel, lane: Lane[Turn], lead: Turn, prompt: Prompt, *, may_call: bool
    ) -> tuple[Finished, float]:
        lead.shown = []
        request = ModelRequest(
            prompt=prompt,
            max_output=lead.incoming.max_output,
            params=lead.incoming.params,
            cache_key=lead.session.id,
            may_call=may_call,
        )
        async with self._slots:
            started = self._clock.monotonic()
            async for event in model.stream(request):
                if isinstance(event, TextDelta):
                    lead.shown.append(event.text)
                    for turn in lane.running:
                        turn.events.emit_text(event.text)
                else:
                    return event, self._clock.monotonic() - started
        raise ModelBroken(f"{model.name} ended its reply without saying so.", partial="".join(lead.shown))

    async def _append_reply(
        self,
        lane: Lane[Turn],
        lead: Turn,
        model: ChatModel,
        reply: Finished,
        note: LastCall | None,
        finish: Finish,
        also: tuple[str, ...],
        duration_s: float,
    ) -> None:
        usage = reply.usage
        cost = None if usage is None else self._ledger.cost(reply.name or model.name, reply.model, usage)
        entry = AssistantEntry(
            turn=lead.id,
            text=reply.text,
            calls=reply.calls,
            model=reply.model,
            usage=usage,
            finish=finish,
            tokens=self._prompts.count(reply.text + "".join(call.arguments for call in reply.calls)),
            also=also,
        )
        window = self._gauge.known_window(lead.session, lead.incoming.model)
        shown = self._recall.entry(lead.session)
        drafts = [entry] if shown is None else [shown, entry]

        def charged(record: SessionRecord) -> SessionRecord:
            lead.shown = []  # it stands in the transcript now, also when the turn was stopped meanwhile
            return _charged(record, note, usage, cost, window)

        *_, written = await self.append(lead.session, *drafts, change=charged)
        if usage is not None:
            record = lead.session.record
            self._ledger.note(
                CallNote(
                    id=written.id,
                    session=record.session,
                    key=record.key,
                    user=lead.incoming.user,
                    agent=record.agent,
                    role="chat",
                    model_name=reply.name or model.name,
                    model=reply.model,
                    usage=usage,
                    cost=cost,
                    duration_s=duration_s,
                    cause=None if note is None else note.cause or FINE,
                )
            )
        for call in reply.calls:
            for turn in lane.running:
                turn.events.emit("tool_call", id=call.id, name=call.name, arguments=call.arguments)

    async def _run_tools(self, lane: Lane[Turn], lead: Turn, calls: Sequence[ToolCall]) -> None:
        context = self._prompts.tool_context(lead.session, lead.incoming)
        results = await asyncio.gather(*(self._tools.run(call, context) for call in calls))
        drafts = [dataclasses.replace(r, turn=lead.id, tokens=self._prompts.count(r.text)) for r in results]
        await self.append(lead.session, *drafts)
        self._recall.tools_ran(lead.session, lead.incoming, calls, drafts)
        for result in drafts:
            for turn in lane.running:
                turn.events.emit(
                    "tool_result", id=result.call_id, name=result.name, text=result.text, is_error=result.is_error
                )

    def _steer(self, lane: Lane[Turn]) -> tuple[str, ...]:
        joining = lane.take_steering()
        for turn in joining:
            turn.state = "running"
        return tuple(turn.id for turn in joining)

    async def append(
        self,
        session: Session,
        *drafts: Entry,
        change: Callable[[SessionRecord], SessionRecord] | None = None,
        only_if: Callable[[], bool] | None = None,
    ) -> list[Entry]:
        """An append that is not given up at the first failure: somebody waits for this reply. Raises StorageError."""
        for wait_s in WRITE_RETRIES_S:
            try:
                return await self._store.append(session, *drafts, change=change, only_if=only_if)
            except StorageError as error:
                log.warning("turn.write_failed", session=session.id, error=str(error), retry_s=wait_s)
                await self._clock.sleep(wait_s)
        return await self._store.append(session, *drafts, change=change, only_if=only_if)

    def cut_reply(self, lane: Lane[Turn], lead: Turn, finish: Finish) -> AssistantEntry:
        """What was shown so far, as the reply of a turn that was cut."""
        text = "".join(lead.shown)
        return AssistantEntry(
            turn=lead.id, text=text, finish=finish, tokens=self._prompts.count(text), also=others(lead, lane)
        )


def others(lead: Turn, lane: Lane[Turn]) -> tuple[str, ...]:
    """The further turns that get the same reply."""
    return tuple(turn.id for turn in lane.running if turn is not lead)


def _finish_of(reply: Finished, *, to_client: bool, last: bool) -> Finish:
    if not reply.calls:
        return "stop" if reply.finish == "tool_calls" else reply.finish
    if to_client:
        return "client_tools"
    return "length" if last else "tool_calls"


def _charged(
    record: SessionRecord, call: LastCall | None, usage: Usage | None, cost: Decimal | None, window: int | None
) -> SessionRecord:
    """Counters of the index, written with the reply that causes them. An unknown price adds nothing.

    A compaction may have come between the call and its reply: then the next prompt is another one.
    """
    if usage is None:
        return record
    total = record.cost if cost is None else str(Decimal(record.cost or "0") + cost)
    same = call is not None and call.generation == record.generation
    return dataclasses.replace(
        record,
        context_tokens=usage.context_tokens if same else None,
        call=record.call if call is None else call.to_json(),
        window=window,
        cost=total,
    )
