"""Summarises sessions beside their replies: decides purely, asks a model, commits if nothing has changed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from compaction.plan import NothingToDo, Plan, next_generation, pin_refusal, plan_compaction, prefix_of
from compaction.summary import render_summary
from compaction.triggers import MAX_FAILURES, CompactionState, is_due
from gateway.clock import within
from gateway.replies import CallNote
from gateway.summariser import REPLY_ROOM, NothingToGain, Summariser, SummaryFailed, SummaryJob
from sessions.entries import CompactionFailedEntry, CompactionStartedEntry
from sessions.files import StorageError
from sessions.session import SessionGone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compaction.layout import Prompt
    from compaction.policy import CompactionPolicy
    from gateway.clock import Clock
    from gateway.gauge import Gauge
    from gateway.models.base import ChatModel, Finished
    from gateway.replies import Ledger
    from sessions.entries import Entry, JsonObject
    from sessions.record import SessionRecord
    from sessions.session import Session
    from sessions.store import SessionStore

log = structlog.get_logger()

OFFLINE = "offline"
INSTRUCTION_ROOM = 500
UNCHANGED = "the conversation goes on as it was"
OVERTAKEN = "the summary took longer than a reply at the hard limit could wait, so one was made by rules"


class SummaryModels(Protocol):
    """Who writes summaries: the model of a role, or the session's own."""

    def for_role(self, role: str) -> ChatModel | None: ...
    def choose(self, agent: str, wanted: str | None) -> ChatModel: ...


class Conversations(Protocol):
    """What a model is shown of a session: all of it so far, how much of that is the same in every prompt, and the
    tokens of its parts by our own count."""

    def conversation(self, session: Session) -> Prompt: ...
    def head_tokens(self, session: Session) -> int: ...
    def parts(self, session: Session) -> list[tuple[str, int]]: ...


@dataclass(frozen=True, slots=True)
class Written:
    """A summary, and who wrote it: `model` its name, None for the rules."""

    summary: JsonObject
    model: str | None = None

    @property
    def by(self) -> str:
        return "rules" if self.model is None else "model"


class Compactor:
    """One job for a session at a time. The session is held only for the moment of the commit."""

    def __init__(
        self,
        *,
        store: SessionStore,
        models: SummaryModels,
        ledger: Ledger,
        count: Callable[[str], int],
        gauge: Gauge,
        prompts: Conversations,
        clock: Clock,
        policy: CompactionPolicy,
    ) -> None:
        self._store = store
        self._models = models
        self._ledger = ledger
        self._count = count
        self._gauge = gauge
        self._prompts = prompts
        self._clock = clock
        self._policy = policy
        self._summariser = Summariser(count=count, clock=clock, policy=policy)
        self.listeners: list[Callable[[Session, dict[str, Any]], None]] = []
        self._jobs: dict[str, asyncio.Task[str]] = {}
        self._overtaken: set[asyncio.Task[str]] = set()
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Owns the jobs until it is cancelled; a job that is cut leaves the session as it was."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            await asyncio.Event().wait()

    def pin_refusal(self, session: Session, seq: int) -> str | None:
        """Why a message cannot be pinned; None when it can."""
        return pin_refusal(session.entries, seq, self._policy, self._gauge.own_window(session))

    def consider(self, session: Session) -> None:
        """Starts a job when one is due. Called when a person's message has been accepted; returns at once."""
        if session.id in self._jobs or self._group is None:
            return
        reason = is_due(
            self._policy,
            CompactionState.from_json(session.record.compaction),
            tokens=self._gauge.prompt_tokens(session),
            window=self._gauge.window(session),
            messages=session.record.messages,
            now=self._clock.now(),
        )
        if reason is not None:
            self._start(session, reason)

    def _start(self, session: Session, reason: str, wish: str | None = None) -> asyncio.Task[str]:
        assert self._group is not None  # noqa: S101
        job = self._group.create_task(self._job(session, reason, wish), name=f"compaction {session.id}")
        self._jobs[session.id] = job
        job.add_done_callback(lambda _: self._jobs.pop(session.id, None))
        job.add_done_callback(self._overtaken.discard)
        return job

    async def compact(self, session: Session, wish: str | None = None) -> str:
        """Summarises now, whatever is due. The job goes on when the caller leaves."""
        job = self._jobs.get(session.id) or self._start(session, "command", wish)
        return await asyncio.shield(job)

    async def begin(self, session: Session, wish: str | None) -> str:
        """Like compact, but answers at once with what will happen."""
        plan = await self._plan(session)
        if isinstance(plan, NothingToDo):
            return plan.reason
        if session.id not in self._jobs:
            self._start(session, "command", wish)
        return f"Summarising {len(plan.fresh)} messages in the background; go on talking meanwhile."

    async def _plan(self, session: Session, *, overlap: bool = True) -> Plan | NothingToDo:
        """In a thread: a history may have any length."""
        window, fixed = self._gauge.own_window(session), self._prompts.head_tokens(session)
        entries = tuple(session.entries)
        return await asyncio.to_thread(plan_compaction, entries, self._policy, window, overlap=overlap, fixed=fixed)

    async def make_room(self, session: Session) -> None:
        """Before a call that would not fit: waits for a running job, then summarises by rules, without a model. A job
        that was waited for in vain is of what is summarised now, and ends: no reply shall wait for it again."""
        job = self._jobs.get(session.id)
        if job is not None:
            with contextlib.suppress(TimeoutError):
                await within(self._clock, self._policy.wait_s, _ended(job))
        if self._gauge.crowded(session) and await self.emergency(session) and job is not None and not job.done():
            self._overtaken.add(job)
            job.cancel()

    async def emergency(self, session: Session) -> bool:
        """Summarises by rules at once, keeping as little as possible word for word. True when that freed something;
        what cannot be stored frees nothing, and fails no reply."""
        plan = await self._plan(session, overlap=False)
        if isinstance(plan, NothingToDo):
            return False
        try:
            return await self._commit(session, plan, await self._by_rules(session, plan), forced=True)
        except SummaryFailed:
            return False
        except StorageError as error:
            log.warning("compaction.not_stored", session=session.id, error=str(error))
            return False

    async def _job(self, session: Session, reason: str, wish: str | None) -> str:
        try:
            return await self._compact(session, reason, wish)
        except asyncio.CancelledError:
            if asyncio.current_task() not in self._overtaken:
                raise
            with contextlib.suppress(SessionGone):
                await self._failed(session, OVERTAKEN)
            return f"{OVERTAKEN.capitalize()}."
        except SessionGone as error:
            return f"The summary could not be stored: {error}"
        except StorageError as error:
            with contextlib.suppress(SessionGone):
                await self._failed(session, f"could not be stored: {error}")
            return f"The summary could not be stored: {error}"
        except Exception as error:
            log.exception("compaction.failed", session=session.id)
            with contextlib.suppress(SessionGone):
                await self._failed(session, f"failed inside ({type(error).__name__})")
            return f"The summary failed; {UNCHANGED}."

    async def _compact(self, session: Session, reason: str, wish: str | None) -> str:
        plan = await self._plan(session)
        if isinstance(plan, NothingToDo):
            return plan.reason
        await self._store.append(session, CompactionStartedEntry(reason=reason, anchor=plan.summarised_through))
        self._tell(session, state="started", reason=reason, messages=len(plan.fresh))
        try:
            written = await self._written(session, plan, wish)
        except NothingToGain as error:
            await self._in_vain(session)
            return str(error)
        except SummaryFailed as error:
            failures = await self._failed(session, str(error))
            if failures < MAX_FAILURES:
                return f"The summary failed ({error}); {UNCHANGED}."
            try:
                written = await self._by_rules(session, plan)
            except SummaryFailed as error:
                return str(error)
        if not await self._commit(session, plan, written):
            return "The conversation changed meanwhile; nothing was summarised."
        after = sum(e.tokens for e in session.entries)
        done = f"Summarised messages up to {plan.summarised_through}: {plan.tokens_before} tokens are now {after}."
        return done if plan.shortfall is None else f"{done} {plan.shortfall}"

    async def _written(self, session: Session, plan: Plan, wish: str | None) -> Written:
        """By the model of `roles.summary`, else by the session's own. Raises SummaryFailed."""
        record = session.record
        own = self._models.choose(record.agent, record.settings.model)
        model = self._models.for_role("summary") or own
        if model.model == OFFLINE:
            return await self._by_rules(session, plan)
        job = SummaryJob(
            plan=plan,
            generation=record.generation + 1,
            model=model,
            window=self._gauge.window(session, model.name),
            conversation=self._shown_so_far(session, plan) if model.name == own.name else None,
            cache_key=session.id if model.name == own.name else None,
            wish=wish,
            noted=lambda reply, duration_s: self._note(session, model, reply, duration_s),
            progress=lambda done, of: self._tell(session, state="progress", done=done, of=of),
        )
        return Written(await self._summariser.write(job), model.model)

    def _shown_so_far(self, session: Session, plan: Plan) -> Prompt | None:
        """The session's own prompt, when there is room behind it for the instruction and the summary."""
        needed = self._gauge.prompt_tokens(session) + INSTRUCTION_ROOM + max(REPLY_ROOM, plan.summary_limit)
        return self._prompts.conversation(session) if needed <= self._gauge.window(session) else None

    def _note(self, session: Session, model: ChatModel, reply: Finished, duration_s: float) -> None:
        """A summary is spend of its own; it never becomes the size of a context."""
        if reply.usage is None:
            return
        record = session.record
        self._ledger.note(
            CallNote(
                id=self._clock.new_id(),
                session=record.session,
                key=record.key,
                user=record.owner,
                agent=record.agent,
                role="summary",
                model_name=model.name,
                model=reply.model,
                usage=reply.usage,
                cost=self._ledger.cost(model.name, reply.model, reply.usage),
                duration_s=duration_s,
            )
        )

    async def _by_rules(self, session: Session, plan: Plan) -> Written:
        generation = session.record.generation + 1
        return Written(await asyncio.to_thread(self._summariser.by_rules, plan, generation))

    def _tell(self, session: Session, **fields: Any) -> None:
        for listener in self.listeners:
            listener(session, fields)

    async def _commit(self, session: Session, plan: Plan, written: Written, *, forced: bool = False) -> bool:
        """False when the conversation has changed. `forced`: at the hard limit, which says nothing of the model, so
        that its cool-down goes on."""
        tokens = self._count(render_summary(written.summary))

        def build(entries: Sequence[Entry]) -> Sequence[Entry] | None:
            if prefix_of(entries, plan.summarised_through) != plan.prefix:
                return None
            return next_generation(plan, entries, written.summary, by=written.by, model=written.model, tokens=tokens)

        before, window = self._gauge.prompt_tokens(session), self._gauge.window(session)
        counted = max(1, sum(tokens for _, tokens in self._prompts.parts(session)))
        freed = plan.tokens_before - plan.tokens_kept - tokens
        after = round(before * (1 - min(freed, counted) / counted))

        def change(record: SessionRecord) -> SessionRecord:
            known = CompactionState.from_json(record.compaction)
            state = known.succeeded(
                before=before, after=after, messages=record.messages, window=window, now=self._clock.now()
            )
            if forced:
                state = state.still_cooling(known)
            return dataclasses.replace(record, compaction=state.to_json(), context_tokens=None)

        done = await self._store.move_generation(
            session, build, anchor=plan.summarised_through, replay_from=plan.replay_from, change=change
        )
        if not done:
            await self._thrown_away(session)
        log.info(
            "compaction.done" if done else "compaction.outdated",
            session=session.id,
            by=written.by,
            before=before,
            after=after if done else before,
            shortfall=plan.shortfall,
        )
        outcome = {"generation": session.record.generation, "by": written.by, "before": before, "after": after}
        self._tell(session, **({"state": "done", **outcome} if done else {"state": "outdated"}))
        return done

    async def _thrown_away(self, session: Session) -> None:
        """The session's next attempt is later, and counted."""
        state = CompactionState.from_json(session.record.compaction).thrown_away(self._clock.now())
        await self._store.update(session, lambda record: dataclasses.replace(record, compaction=state.to_json()))

    async def _in_vain(self, session: Session) -> None:
        tokens, window = self._gauge.prompt_tokens(session), self._gauge.window(session)
        state = CompactionState.from_json(session.record.compaction).in_vain(tokens=tokens, window=window)
        self._tell(session, state="nothing")
        await self._store.update(session, lambda record: dataclasses.replace(record, compaction=state.to_json()))

    async def _failed(self, session: Session, error: str) -> int:
        """Writes the failure and when the next attempt is; how many there were in a row. Where the transcript takes
        nothing the index knows it, at least in memory."""
        state = CompactionState.from_json(session.record.compaction).failed(error, self._clock.now())
        log.warning("compaction.failed", session=session.id, failures=state.failures, error=error)
        self._tell(session, state="failed", error=error, failures=state.failures)
        entry = CompactionFailedEntry(error=error, failures=state.failures, retry_at=state.retry_at)

        def change(record: SessionRecord) -> SessionRecord:
            return dataclasses.replace(record, compaction=state.to_json())

        try:
            await self._store.append(session, entry, change=change)
        except StorageError:
            with contextlib.suppress(StorageError):
                await self._store.update(session, change)
        return state.failures


async def _ended(job: asyncio.Task[str]) -> None:
    await asyncio.wait({job})
