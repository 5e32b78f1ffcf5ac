"""The one protocol of language models: what is asked, what comes back, and what can go wrong."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from gateway.masking import masked

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from compaction.layout import Prompt
    from sessions.entries import Finish, ToolCall
    from sessions.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One call. `params` are sampling settings passed through as they are (temperature, top_p, stop, ...).

    `schema` asks for a JSON object of this JSON schema where the provider can hold the model to it.
    `cache_key` is stable per session; it steers provider-side prompt caches. `may_call` False: the tools stay in the
    prompt, since everything behind them is cached with them, but the model must answer now.
    """

    prompt: Prompt
    max_output: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    schema: Mapping[str, Any] | None = None
    cache_key: str | None = None
    may_call: bool = True


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the reply's text, never cut inside a character."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The end of a stream, exactly once, with the whole reply.

    `model` is the provider's name for what answered; `name` the configured one, which after a failover is not that of
    the model that was asked.
    """

    text: str
    calls: tuple[ToolCall, ...]
    finish: Finish
    usage: Usage | None
    model: str
    name: str = ""


ModelEvent = TextDelta | Finished


class ChatModel(Protocol):
    """A language model. `name` is its name in the configuration, `model` the provider's name for it."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def window(self) -> int | None:
        """Tokens it can read; None when unknown."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yields text as it comes, then Finished. Raises ModelError; closing the iterator ends the call."""
        ...

    async def close(self) -> None: ...


class ModelError(Exception):
    """A call that gave no usable reply. The message is for the person who waits for it; it names no password.

    `partial` is what had already been shown when the stream broke.
    """

    code = "model_error"

    def __init__(self, message: str, *, partial: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(masked(message))
        self.partial = partial
        self.retry_after_s = retry_after_s


class ModelUnavailable(ModelError):
    """Refused, down, overloaded, rate limited, or silent for too long: another model may answer."""

    code = "model_unavailable"


class ModelBroken(ModelError):
    """The answer was not one: malformed, empty, or cut in the middle."""

    code = "model_broken"


class ModelRejected(ModelError):
    """The provider refused the request itself (400, 401, 404, ...): no outage, and no reason to hold the model."""

    code = "model_rejected"


class ContextOverflow(ModelRejected):
    """The prompt is longer than the model's window. Numbers as the provider's text gives them, where it does.

    `name` is the configured model that refused it, where that is not the one that was asked.
    """

    code = "context_overflow"

    def __init__(self, message: str, *, tokens: int | None = None, window: int | None = None) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.window = window
        self.name = ""


class UnknownModel(LookupError):
    """No configured model has that name."""


async def complete(model: ChatModel, request: ModelRequest) -> Finished:
    """The whole reply of one call. Raises ModelError."""
    async with aclosing(model.stream(request)) as events:
        async for event in events:
            if isinstance(event, Finished):
                return event
    raise ModelBroken(f"{model.name} ended its reply without saying so.")
