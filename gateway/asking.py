"""Questions to a model beside the replies: bounded in time, asked once more when the answer cannot be read, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from compaction.layout import build_prompt
from gateway.clock import within
from gateway.models.base import ModelRequest, ModelUnavailable, complete
from gateway.replies import CallNote
from sessions.context import AssistantMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.clock import Clock
    from gateway.ledger import UsageLedger
    from gateway.models.base import ChatModel, Finished

T = TypeVar("T")

ANSWER_S = 300.0
REPAIR = "That was not the JSON object asked for. Answer again, with the JSON object only and nothing around it."


class Asker:
    """Asks models for JSON. `key` names what asks, in the ledger."""

    def __init__(self, ledger: UsageLedger, clock: Clock, *, key: str) -> None:
        self._ledger = ledger
        self._clock = clock
        self._key = key

    async def ask(
        self,
        model: ChatModel,
        *,
        role: str,
        system: str,
        question: str,
        schema: Mapping[str, Any],
        parse: Callable[[str], T | None],
        user: str | None = None,
    ) -> T | None:
        """What `parse` makes of the answer; None when two answers could not be read. Raises ModelError."""
        messages: list[UserMessage | AssistantMessage] = [UserMessage(text=question)]
        for _ in range(2):
            reply = await self._call(
                model, ModelRequest(prompt=build_prompt(system=system, messages=messages), schema=schema), role, user
            )
            parsed = None if reply.calls else parse(reply.text)
            if parsed is not None:
                return parsed
            messages = [messages[0], AssistantMessage(text=reply.text or "?"), UserMessage(text=REPAIR)]
        return None

    async def _call(self, model: ChatModel, request: ModelRequest, role: str, user: str | None) -> Finished:
        started = self._clock.monotonic()
        try:
            reply = await within(self._clock, ANSWER_S, complete(model, request))
        except TimeoutError as error:
            raise ModelUnavailable(f"{model.name} took longer than {ANSWER_S:g} s") from error
        if reply.usage is not None:
            self._note(model, reply, role, user, self._clock.monotonic() - started)
        return reply

    def _note(self, model: ChatModel, reply: Finished, role: str, user: str | None, duration_s: float) -> None:
        assert reply.usage is not None  # noqa: S101
        name = reply.name or model.name
        self._ledger.note(
            CallNote(
                id=self._clock.new_id(),
                session="",
                key=self._key,
                user=user,
                agent="",
                role=role,
                model_name=name,
                model=reply.model,
                usage=reply.usage,
                cost=self._ledger.cost(name, reply.model, reply.usage),
                duration_s=duration_s,
            )
        )
