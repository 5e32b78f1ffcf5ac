"""What is known of a session's last model calls: what was sent, what was reported, what came from the cache."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, cast
from weakref import WeakKeyDictionary

import structlog

from compaction.explainer import CAUSES, Cause, Step, Verdict, explain
from compaction.fingerprints import SECTIONS, Outline, Section, first_byte, outline_of, shared_prefix
from gateway.models.cache_terms import cache_terms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compaction.fingerprints import Chain, Shared
    from compaction.layout import Prompt
    from gateway.learnt import LearntModels
    from gateway.models.base import ChatModel, ContextOverflow, Finished
    from gateway.models.policy import ModelPolicy
    from gateway.prompts import Built
    from sessions.session import Session
    from sessions.usage import Usage

RECENT = 10
FINE = "none"

log = structlog.get_logger()


class Policies(Protocol):
    """Settings of a model by its name; None for one nobody configured."""

    def policy(self, name: str) -> ModelPolicy | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCall:
    """One finished call. `base` is the digest of the agent's own system text and tools; `input_tokens`,
    `cached` and `written` are the provider's, `reply_tokens` what its reply adds to the next prompt, `counted` the
    prompt by our own count, `shared_tokens` what it had in common with the call before it, in the provider's tokens.

    `byte`: where the first differing section differs, None when the earlier text is not known any more.
    """

    at: datetime
    model: str
    generation: int
    outline: Outline
    base: int
    input_tokens: int
    reply_tokens: int
    counted: int
    reported: bool
    cached: int
    written: int
    shared_tokens: int
    cause: Cause | None
    section: Section | None
    byte: int | None

    def to_json(self) -> list[Any]:
        """A list, not an object: every session in the index has one."""
        return [
            round(self.at.timestamp() * 1000),
            self.model,
            self.generation,
            self.outline.to_json(),
            f"{self.base:x}",
            self.input_tokens,
            self.reply_tokens,
            self.counted,
            int(self.reported),
            self.cached,
            self.written,
            self.shared_tokens,
            self.cause,
            self.section,
            self.byte,
        ]

    @staticmethod
    def from_json(raw: Sequence[Any]) -> LastCall:
        """Raises ValueError and TypeError for what is no call."""
        at, model, generation, outline, base, input_, reply, counted, reported, *cache = raw
        cached, written, shared, cause, section, byte = cache
        if cause not in (None, *CAUSES) or section not in (None, *SECTIONS):
            raise ValueError(f"{cause!r:.40} is no cause, or {section!r:.40} no section")
        return LastCall(
            at=datetime.fromtimestamp(at / 1000, UTC),
            model=str(model),
            generation=int(generation),
            outline=Outline.from_json(outline),
            base=int(base, 16),
            input_tokens=int(input_),
            reply_tokens=int(reply),
            counted=int(counted),
            reported=bool(reported),
            cached=int(cached),
            written=int(written),
            shared_tokens=int(shared),
            cause=cast("Cause | None", cause),
            section=section,
            byte=None if byte is None else int(byte),
        )


@dataclass(frozen=True, slots=True)
class _Sent:
    """The newest prompt of a session, to say where the next one differs."""

    prompt: Prompt
    history: Chain


class _Kept:
    """A session's calls since it was loaded."""

    __slots__ = ("recent", "sent")

    def __init__(self, last: LastCall | None) -> None:
        self.recent: deque[LastCall] = deque([] if last is None else [last], maxlen=RECENT)
        self.sent: _Sent | None = None


class CallWatch:
    """Notes every finished chat call: teaches the model's factor, and explains its cache. Calls of summaries and
    helpers never come here: theirs is not the session's context."""

    def __init__(self, policies: Policies, learnt: LearntModels) -> None:
        self._policies = policies
        self._learnt = learnt
        self._kept: WeakKeyDictionary[Session, _Kept] = WeakKeyDictionary()
        self._causes: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()

    @property
    def causes(self) -> Mapping[str, int]:
        """Calls since the start by cause; `none`: nothing was wrong."""
        return self._causes

    @property
    def tokens(self) -> Mapping[str, int]:
        """Prompt tokens since the start: `input` in all, `shared` with the call before, `cached` as reported."""
        return self._tokens

    def last(self, session: Session) -> LastCall | None:
        recent = self._of(session).recent
        return recent[-1] if recent else None

    def recent(self, session: Session) -> list[LastCall]:
        """The newest last; after a restart only the last one is known."""
        return list(self._of(session).recent)

    def _of(self, session: Session) -> _Kept:
        kept = self._kept.get(session)
        if kept is None:
            kept = self._kept[session] = _Kept(_stored(session))
        return kept

    def answered(self, session: Session, built: Built, asked: str, reply: Finished) -> LastCall | None:
        """Notes a call; None when nothing is known of its usage. `asked`: the configured name of the model."""
        usage = reply.usage
        if usage is None:
            return None
        name = reply.name or asked
        counted = built.fingerprint.tokens
        if usage.reported and not built.fingerprint.history.files:
            self._learnt.report(name, counted=counted, usage=usage)
        kept = self._of(session)
        step, shared, byte = self._compared(kept, built, name, usage.input_total / max(1, counted))
        verdict = self._explained(name, step, usage)
        call = LastCall(
            at=built.at,
            model=name,
            generation=built.generation,
            outline=outline_of(built.fingerprint),
            base=built.base,
            input_tokens=usage.input_total,
            reply_tokens=max(0, usage.output - usage.reasoning),
            counted=counted,
            reported=usage.reported,
            cached=usage.cached_read,
            written=usage.cache_write,
            shared_tokens=0 if step is None else step.shared_tokens,
            cause=verdict.cause,
            section=None if shared is None else shared.section,
            byte=byte,
        )
        kept.recent.append(call)
        kept.sent = _Sent(built.prompt, built.fingerprint.history)
        self._causes[call.cause or FINE] += 1
        self._tokens.update(input=call.input_tokens, shared=call.shared_tokens, cached=call.cached)
        return call

    def refused(self, built: Built, model: ChatModel, error: ContextOverflow) -> None:
        """Notes a prompt that was too long: the provider's numbers correct the factor and the window."""
        self._learnt.overflow(
            error.name or model.name,
            counted=built.fingerprint.tokens,
            tokens=error.tokens,
            window=error.window,
            known_window=model.window,
        )

    def _compared(
        self, kept: _Kept, built: Built, name: str, ratio: float
    ) -> tuple[Step | None, Shared | None, int | None]:
        if not kept.recent:
            return None, None, None
        before, sent = kept.recent[-1], kept.sent
        shared = shared_prefix(before.outline, built.fingerprint, None if sent is None else sent.history)
        byte = None
        if shared.section is not None and sent is not None:
            byte = first_byte(sent.prompt, built.prompt, shared, built.fingerprint.history)
        step = Step(
            shared=shared,
            shared_tokens=round(shared.tokens * ratio),
            elapsed_s=(built.at - before.at).total_seconds(),
            same_model=name == before.model,
            same_generation=built.generation == before.generation,
        )
        return step, shared, byte

    def _explained(self, name: str, step: Step | None, usage: Usage) -> Verdict:
        policy = self._policies.policy(name)
        if policy is None:
            return Verdict(cause=None)
        return explain(step, usage, cache_terms(policy, seen=self._learnt.of(name).caches))


def is_estimate(session_call: Sequence[Any] | None) -> bool:
    """Whether the context size in an index record is our own count: its provider reported none."""
    return session_call is not None and len(session_call) > 8 and not session_call[8]


def _stored(session: Session) -> LastCall | None:
    raw = session.record.call
    if raw is None:
        return None
    try:
        return LastCall.from_json(raw)
    except (ValueError, TypeError, OverflowError) as error:
        log.warning("session.last_call_unreadable", session=session.id, error=str(error))
        return None
