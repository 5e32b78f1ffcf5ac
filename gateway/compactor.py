"""Summarises sessions beside their replies: decides purely, asks a model, commits if nothing has changed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Protocol

import structlog

from compaction.extract import extract_summary
from compaction.plan import NothingToDo, Plan, next_generation, pin_refusal, plan_compaction, prefix_hash
from compaction.prompt import build_summary_prompt
from compaction.summary import (
    SCHEMA,
    BadSummary,
    completed,
    parse_summary,
    render_summary,
    shortened,
    texts_of,
)
from compaction.triggers import MAX_FAILURES, CompactionState, is_due
from gateway.models.base import ModelError, ModelRequest, complete
from gateway.replies import CallNote
from sessions.entries import CompactionFailedEntry, CompactionStartedEntry
from sessions.files import StorageError
from sessions.store import SessionGone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compaction.policy import CompactionPolicy
    from gateway.clock import Clock
    from gateway.gauge import Gauge
    from gateway.models.base import ChatModel
    from gateway.replies import Ledger
    from sessions.entries import Entry, JsonObject
    from sessions.record import SessionRecord
    from sessions.store import Session, SessionStore

log = structlog.get_logger()


class SummaryModels(Protocol):
    """Who writes summaries: the model of a role, or the session's own."""

    def for_role(self, role: str) -> ChatModel | None: ...
    def choose(self, agent: str, wanted: str | None) -> ChatModel: ...


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
        clock: Clock,
        policy: CompactionPolicy,
    ) -> None:
        self._store = store
        self._models = models
        self._ledger = ledger
        self._count = count
        self._gauge = gauge
        self._clock = clock
        self._policy = policy
        self._jobs: dict[str, asyncio.Task[str]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Owns the jobs until it is cancelled; a job that is cut leaves the session as it was."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            await asyncio.Event().wait()

    def pin_refusal(self, session: Session, seq: int) -> str | None:
        """Why a message cannot be pinned; None when it can."""
        return pin_refusal(session.entries, seq, self._policy, self._gauge.window(session))

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
        return job

    async def compact(self, session: Session, wish: str | None = None) -> str:
        """Summarises now, whatever is due. The job goes on when the caller leaves."""
        job = self._jobs.get(session.id) or self._start(session, "command", wish)
        return await asyncio.shield(job)

    def begin(self, session: Session, wish: str | None) -> str:
        """Like compact, but answers at once with what will happen."""
        plan = plan_compaction(session.entries, self._policy, self._gauge.window(session))
        if isinstance(plan, NothingToDo):
            return plan.reason
        if session.id not in self._jobs:
            self._start(session, "command", wish)
        return f"Summarising {len(plan.fresh)} messages in the background; go on talking meanwhile."

    async def make_room(self, session: Session) -> None:
        """Before a call that would not fit: waits for a running job, then summarises by rules, without a model."""
        job = self._jobs.get(session.id)
        if job is not None:
            await asyncio.wait({job}, timeout=self._policy.wait_s)
        if self._gauge.crowded(session):
            await self.emergency(session)

    async def emergency(self, session: Session) -> bool:
        """Summarises by rules at once, keeping as little as possible word for word. True when that freed something."""
        plan = plan_compaction(session.entries, self._policy, self._gauge.window(session), overlap=False)
        if isinstance(plan, NothingToDo):
            return False
        return await self._commit(session, plan, self._by_rules(session, plan), by="rules", model=None)

    async def _job(self, session: Session, reason: str, wish: str | None) -> str:
        try:
            return await self._compact(session, reason, wish)
        except (StorageError, SessionGone) as error:
            log.warning("compaction.not_stored", session=session.id, error=str(error))
            return f"The summary could not be stored: {error}"
        except Exception as error:
            log.exception("compaction.failed", session=session.id)
            with contextlib.suppress(StorageError, SessionGone):
                await self._failed(session, f"failed inside ({type(error).__name__})")
            return "The summary failed; the conversation goes on as it was."

    async def _compact(self, session: Session, reason: str, wish: str | None) -> str:
        plan = plan_compaction(session.entries, self._policy, self._gauge.window(session))
        if isinstance(plan, NothingToDo):
            return plan.reason
        await self._store.append(session, CompactionStartedEntry(reason=reason, anchor=plan.summarised_through))
        summary, by, model, error = await self._summary(session, plan, wish)
        if summary is None:
            failures = await self._failed(session, error)
            if failures < MAX_FAILURES:
                return f"The summary failed ({error}); the conversation goes on as it was."
            summary, by, model = self._by_rules(session, plan), "rules", None
        if not await self._commit(session, plan, summary, by=by, model=model):
            return "The conversation changed meanwhile; nothing was summarised."
        after = sum(e.tokens for e in session.entries)
        return f"Summarised messages up to {plan.summarised_through}: {plan.tokens_before} tokens are now {after}."

    async def _summary(
        self, session: Session, plan: Plan, wish: str | None
    ) -> tuple[JsonObject | None, str, str | None, str]:
        """(summary or None, by whom, which model, why not)."""
        record = session.record
        model = self._models.for_role("summary") or self._models.choose(record.agent, record.settings.model)
        if model.model == "offline":
            return self._by_rules(session, plan), "rules", None, ""
        source = texts_of(plan.fresh)
        previous = plan.previous.summary if plan.previous else None
        why: str | None = None
        for _ in range(2):
            try:
                async with asyncio.timeout(self._policy.timeout_s):
                    reply = await self._ask(session, model, plan, wish, why)
                summary = parse_summary(reply, source=source, previous=previous)
                return self._finished(session, plan, summary), "model", model.model, ""
            except BadSummary as error:
                why = str(error)
            except TimeoutError:
                return None, "model", None, f"{model.name} took longer than {self._policy.timeout_s:g} s"
            except ModelError as error:
                return None, "model", None, str(error)
        return None, "model", None, f"{model.name} gave no usable summary: {why}"

    async def _ask(self, session: Session, model: ChatModel, plan: Plan, wish: str | None, repair: str | None) -> str:
        previous = plan.previous.summary if plan.previous else None
        prompt = build_summary_prompt(plan.fresh, previous, wish, repair)
        started = self._clock.monotonic()
        reply = await complete(model, ModelRequest(prompt=prompt, schema=SCHEMA))
        if reply.usage is not None:
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
                    duration_s=self._clock.monotonic() - started,
                )
            )
        if reply.calls or reply.finish != "stop":
            raise BadSummary("the answer called a tool" if reply.calls else f"the answer was cut ({reply.finish})")
        return reply.text

    def _by_rules(self, session: Session, plan: Plan) -> JsonObject:
        previous = plan.previous.summary if plan.previous else None
        return self._finished(session, plan, extract_summary(plan.fresh, previous))

    def _finished(self, session: Session, plan: Plan, summary: JsonObject) -> JsonObject:
        previous = plan.previous.summary if plan.previous else None
        whole = completed(
            summary, texts=texts_of(plan.fresh), previous=previous, generation=session.record.generation + 1
        )
        replaced = sum(e.tokens for e in plan.fresh) + (plan.previous.tokens if plan.previous else 0)
        budget = min(int(self._policy.summary_share * self._gauge.window(session)), max(50, replaced // 2))
        return shortened(whole, budget, self._count)

    async def _commit(self, session: Session, plan: Plan, summary: JsonObject, *, by: str, model: str | None) -> bool:
        tokens = self._count(render_summary(summary))

        def build(entries: Sequence[Entry]) -> Sequence[Entry] | None:
            if prefix_hash(entries, plan.summarised_through) != plan.prefix_sha256:
                return None
            return next_generation(plan, entries, summary, by=by, model=model, tokens=tokens)

        after = tokens + plan.tokens_kept
        window = self._gauge.window(session)

        def change(record: SessionRecord) -> SessionRecord:
            state = CompactionState.from_json(record.compaction).succeeded(
                before=plan.tokens_before, after=after, messages=record.messages, window=window
            )
            return dataclasses.replace(record, compaction=state.to_json(), context_tokens=None)

        done = await self._store.move_generation(
            session, build, anchor=plan.summarised_through, replay_from=plan.replay_from, change=change
        )
        log.info(
            "compaction.done" if done else "compaction.outdated", session=session.id, by=by, before=plan.tokens_before
        )
        return done

    async def _failed(self, session: Session, error: str) -> int:
        """Writes the failure and when the next attempt is; how many there were in a row."""
        state = CompactionState.from_json(session.record.compaction).failed(error, self._clock.now())
        log.warning("compaction.failed", session=session.id, failures=state.failures, error=error)
        entry = CompactionFailedEntry(error=error, failures=state.failures, retry_at=state.retry_at)
        await self._store.append(
            session, entry, change=lambda record: dataclasses.replace(record, compaction=state.to_json())
        )
        return state.failures
