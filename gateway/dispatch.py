"""Answers commands: runs a parsed command against its session and words what happened."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import TYPE_CHECKING

from gateway.commands import render_help
from gateway.ledger import LedgerClosed, UsageFilter
from gateway.memory_commands import answer_memory_command, without_secrets
from sessions.entries import AssistantEntry, PinnedEntry, UserEntry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from compaction.explainer import Cause
    from compaction.tokens import Reading
    from gateway.agents import AgentPolicy
    from gateway.calls import CallWatch, LastCall
    from gateway.clock import Clock
    from gateway.commands import Command
    from gateway.compactor import Compactor
    from gateway.gauge import Gauge
    from gateway.ledger import UsageLedger
    from gateway.memories import MemoryPart
    from gateway.models.pool import ModelPool
    from gateway.prompts import PromptBuilder
    from gateway.turn import Incoming
    from gateway.turns import Turns
    from sessions.record import SessionRecord
    from sessions.session import Session
    from sessions.store import SessionStore

SPANS = {"day": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=30)}
LISTED_FORMER = 10


class CommandAnswers:
    """The commands that do not end a session; `/new` and `/reset` are the turns' own."""

    def __init__(
        self,
        *,
        store: SessionStore,
        turns: Turns,
        models: ModelPool,
        prompts: PromptBuilder,
        compactor: Compactor,
        gauge: Gauge,
        calls: CallWatch,
        ledger: UsageLedger,
        memory: MemoryPart,
        agents: Mapping[str, AgentPolicy],
        allow_secrets: bool,
        clock: Clock,
    ) -> None:
        self._store = store
        self._turns = turns
        self._models = models
        self._prompts = prompts
        self._compactor = compactor
        self._gauge = gauge
        self._calls = calls
        self._ledger = ledger
        self._memory = memory
        self._agents = agents
        self._allow_secrets = allow_secrets
        self._clock = clock

    async def answer(self, command: Command, session: Session, incoming: Incoming) -> str:
        """The text the person gets. Raises StorageError."""
        match command.name:
            case "status":
                return self._status(session)
            case "context":
                return self._context(session)
            case "usage":
                return await self._usage(session, command.argument)
            case "stop":
                stopped = await self._turns.stop_session(session.id)
                return "Stopped." if stopped else "Nothing is running."
            case "model":
                return await self._model(session, command.argument)
            case "resume":
                return await self._resume(session, command.argument)
            case "compact":
                return await self._compactor.begin(session, command.argument or None)
            case "pin":
                return await self._pin(session)
            case "remember" | "forget" | "memory":
                asked = command if command.name == "remember" else self.noted(command)  # memories hold no secrets
                return await answer_memory_command(asked, session.key, incoming.speaker, self._memory, self._agents)
            case _:
                return render_help()

    def noted(self, command: Command) -> Command:
        """As the transcript keeps it: without what the secret filter takes out."""
        return command if self._allow_secrets else without_secrets(command)

    def _status(self, session: Session) -> str:
        record = session.record
        running, waiting = self._turns.lane_state(session.id)
        model = self._models.choose(record.agent, record.settings.model)
        return "\n".join(
            [
                f"Session {record.session} ({record.key}), since {_local(record.created_at)}.",
                f"Model: {model.name} ({model.model}).",
                f"Context: {context_line(self._gauge.reading(session))}.",
                f"Messages: {record.messages}. Tokens: {record.input_tokens} in ({record.cache_read} from the cache), "
                f"{record.output_tokens} out. Cost: {_cost_line(record)}.",
                f"Compactions: {record.compactions}. Queue: {len(running)} running, {len(waiting)} waiting.",
            ]
        )

    def _context(self, session: Session) -> str:
        parts = self._prompts.parts(session)
        lines = [f"{name}: {tokens}" for name, tokens in parts]
        total = sum(tokens for _, tokens in parts)
        return "\n".join(
            [
                "The next prompt, in tokens by our own count:",
                *lines,
                f"together: {total}",
                f"For the model: {context_line(self._gauge.reading(session))}.",
                f"Cache: {cache_line(self._calls.last(session))}",
            ]
        )

    async def _usage(self, session: Session, argument: str) -> str:
        span = SPANS.get(argument.lower() or "day")
        if span is None:
            return "Say /usage day, /usage week or /usage month."
        try:
            rows = await self._ledger.report(
                ["model"], UsageFilter(since=self._clock.now() - span, key=session.record.key)
            )
        except LedgerClosed as error:
            return str(error)
        if not rows:
            return f"No model calls in this chat in the last {argument.lower() or 'day'}."
        lines = [
            f"{row.group['model']}: {row.calls} calls, {row.usage.input_total} tokens in "
            f"({row.usage.cached_read} from the cache), {row.usage.output} out, "
            f"cost {'unknown' if row.cost is None else f'${row.cost:.4f}'}"
            for row in rows
        ]
        return "\n".join(lines)

    async def _model(self, session: Session, argument: str) -> str:
        names = self._models.names()
        if not argument:
            current = self._models.choose(session.record.agent, session.record.settings.model)
            return f"This session uses {current.name}. Known models: {', '.join(names)}. Change it with /model <name>."
        if argument not in names:
            return f"There is no model {argument!r}. Known models: {', '.join(names)}."
        settings = dataclasses.replace(session.record.settings, model=argument)
        await self._store.update(
            session,
            lambda record: dataclasses.replace(record, settings=settings, context_tokens=None, window=None),
        )
        return f"This session now uses {argument}."

    async def _resume(self, session: Session, argument: str) -> str:
        former = [r for r in self._store.sessions_of(session.key) if r.session != session.id][:LISTED_FORMER]
        if not former:
            return "There is no earlier session of this chat."
        if not argument:
            lines = [f"{n}. {_local(r.created_at)}: {r.title or 'untitled'}" for n, r in enumerate(former, 1)]
            return "Earlier sessions; go back to one with /resume <number>:\n" + "\n".join(lines)
        if not argument.isdecimal() or not 1 <= int(argument) <= len(former):
            return f"Say /resume with a number from 1 to {len(former)}."
        chosen = former[int(argument) - 1]
        running, waiting = self._turns.lane_state(session.id)
        if running or waiting:
            return "A reply is still being written. Wait for it, or say /stop, then /resume again."
        await self._store.resume(session, chosen.session)
        return f"Back in the session of {_local(chosen.created_at)}: {chosen.title or 'untitled'}."

    async def _pin(self, session: Session) -> str:
        last = next((e for e in reversed(session.entries) if isinstance(e, UserEntry | AssistantEntry)), None)
        if last is None:
            return "There is no message to pin yet."
        refusal = self._compactor.pin_refusal(session, last.seq)
        if refusal is not None:
            return refusal
        await self._store.append(session, PinnedEntry(of=last.seq))
        return f"Pinned message {last.seq}: it stays word for word through compactions."


def _local(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def context_line(reading: Reading) -> str:
    """Fill of the window in words; no percentage of an unknown one."""
    tokens = f"about {reading.tokens}" if reading.estimated else str(reading.tokens)
    source = "estimated" if reading.estimated else "measured"
    if reading.window is None:
        return f"{tokens} tokens, {source} (the model's window is not known)"
    return f"{tokens} of {reading.window} tokens ({100 * reading.tokens / reading.window:.0f} %), {source}"


CAUSES: dict[Cause, str] = {
    "first_call": "this was the first call",
    "expired": "the provider keeps an unused prompt for a shorter time",
    "model_changed": "another model answered",
    "tools_changed": "the tools are others",
    "system_changed": "the system text is another one",
    "history_edited": "messages were changed or left out",
    "compaction": "the conversation was summarised",
    "below_minimum": "the prompt is shorter than what the provider keeps",
    "provider_miss": "the provider did not use it although nothing has changed",
}


def cache_line(call: LastCall | None) -> str:
    """What the last call had in common with the one before, and why it broke, if it did."""
    if call is None:
        return "no call yet."
    known = f"{call.shared_tokens} of {call.input_tokens} tokens were as in the call before; {call.cached} were cached"
    if call.cause is None:
        return f"{known}."
    place = "" if call.section is None else f", first in {call.section}"
    if call.byte is not None:
        place += f" at byte {call.byte}"
    return f"{known}; {call.cause}: {CAUSES[call.cause]}{place}."


def _cost_line(record: SessionRecord) -> str:
    return "unknown" if record.cost is None else f"${record.cost}"
