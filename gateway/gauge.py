"""How large the next prompt of a session is, against what its model can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import structlog

from compaction.tokens import LEAST, next_prompt, window_of

if TYPE_CHECKING:
    from compaction.fingerprints import Chain
    from compaction.policy import CompactionPolicy
    from compaction.tokens import Reading
    from gateway.calls import CallWatch, LastCall
    from gateway.learnt import LearntModels
    from gateway.models.base import ChatModel
    from gateway.prompts import Frame
    from sessions.session import Session

log = structlog.get_logger()


class ChosenModels(Protocol):
    """Which model answers a session. Raises UnknownModel."""

    def choose(self, agent: str, wanted: str | None) -> ChatModel: ...


class Outlook(Protocol):
    """What the next prompt of a session is made of."""

    def frame(self, session: Session) -> Frame: ...
    def history(self, session: Session) -> Chain: ...


class Gauge:
    """Measures; decides nothing. `wanted` is the model a message asks for, where that is not the session's own."""

    def __init__(
        self,
        *,
        models: ChosenModels,
        prompts: Outlook,
        calls: CallWatch,
        learnt: LearntModels,
        policy: CompactionPolicy,
    ) -> None:
        self._models = models
        self._prompts = prompts
        self._calls = calls
        self._learnt = learnt
        self._policy = policy
        self._warned: set[str] = set()

    def known_window(self, session: Session, wanted: str | None = None) -> int | None:
        """Tokens the model can read, by the settings, the list, or what it refused; None when nobody knows."""
        model = self._model(session, wanted)
        return window_of(model.window, self._learnt.of(model.name).window)

    def window(self, session: Session, wanted: str | None = None) -> int:
        """The known window, else the assumed one."""
        known = self.known_window(session, wanted)
        if known is not None:
            return known
        name = self._model(session, wanted).name
        if name not in self._warned:
            self._warned.add(name)
            log.warning(
                "model.window_unknown",
                model=name,
                assumed=self._policy.assumed_window,
                hint=f"Set models.{name}.window to the number of tokens it can read.",
            )
        return self._policy.assumed_window

    def reading(self, session: Session, wanted: str | None = None) -> Reading:
        """The next prompt in the model's tokens: what the provider reported of an unchanged prefix, and our count times
        the model's factor of what came after; all by our count where nothing reported fits."""
        model = self._model(session, wanted)
        learnt = self._learnt.of(model.name)
        frame, history, last = self._prompts.frame(session), self._prompts.history(session), self._calls.last(session)
        window = window_of(model.window, learnt.window)
        counted = history.mark(len(history)).tokens
        if last is not None and _holds(last, model.name, frame, history):
            answered = min(len(history), last.outline.messages + (1 if last.reply_tokens else 0))
            return next_prompt(
                measured=last.input_tokens + last.reply_tokens,
                tail=counted - history.mark(answered).tokens,
                factor=learnt.factor,
                window=window,
            )
        head = frame.head_tokens
        if last is not None:  # what a client added to the agent's own text and tools, it will add again
            head = max(head, last.outline.system.tokens + last.outline.tools.tokens)
        tail = head + frame.summary_mark.tokens + counted
        return next_prompt(measured=0, tail=tail, factor=learnt.factor, window=window)

    def prompt_tokens(self, session: Session) -> int:
        """Size of the next prompt in the model's tokens."""
        return self.reading(session).tokens

    def crowded(self, session: Session, wanted: str | None = None) -> bool:
        """Whether the next prompt would be above the hard limit."""
        return self.reading(session, wanted).at_most >= self._policy.hard_limit * self.window(session, wanted)

    def limit(self, session: Session, wanted: str | None = None) -> int | None:
        """Tokens a prompt may have, by our own count; None while the model's window is not known."""
        known = self.known_window(session, wanted)
        if known is None:
            return None
        return max(1, int(self._policy.hard_limit * known / self._learnt.of(self._model(session, wanted).name).factor))

    def own_window(self, session: Session) -> int:
        """The window in tokens of our own count, as entries have them."""
        return int(self.window(session) / self._learnt.of(self._model(session, None).name).factor)

    def _model(self, session: Session, wanted: str | None) -> ChatModel:
        return self._models.choose(session.record.agent, wanted or session.record.settings.model)


def _holds(last: LastCall, model: str, frame: Frame, history: Chain) -> bool:
    """Whether the next prompt begins with the last one, for the same model: then its reported size is true of it."""
    outline = last.outline
    return (
        last.reported
        and last.input_tokens >= LEAST * last.counted  # a server that cuts prompts in silence reports what is left
        and (last.model, last.generation, last.base) == (model, frame.generation, frame.base)
        and len(history) >= outline.messages
        and history.mark(outline.messages).digest == outline.history.digest
    )
