"""Claude models behind the Anthropic Messages API."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import anthropic
from anthropic import AsyncAnthropic, DefaultAioHttpClient

from gateway.models import anthropic_wire
from gateway.models.base import Finished, ModelBroken, ModelUnavailable, TextDelta
from gateway.models.openai_wire import dumps
from gateway.models.wire import error_of, model_errors, number, parse_object, read_events, text_of
from sessions.entries import Finish, ToolCall
from sessions.usage import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gateway.models.base import ModelEvent, ModelRequest
    from gateway.models.policy import ModelPolicy

STREAM_RAW = {"X-Stainless-Raw-Response": "stream"}
DEFAULT_MAX_OUTPUT = 8192
FINISH: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "filter",
}
SCHEMA_TOOL = "reply"


@dataclass(slots=True)
class _Reply:
    """What has come so far."""

    text: list[str] = field(default_factory=list[str])
    calls: dict[int, dict[str, str]] = field(default_factory=dict[int, dict[str, str]])
    usage: dict[str, int] = field(default_factory=dict[str, int])
    finish: str | None = None
    model: str = ""
    stopped: bool = False


class AnthropicModel:
    """One model. As with OpenAI, the SDK sends and authenticates, and the event stream is read as bytes."""

    def __init__(
        self,
        name: str,
        policy: ModelPolicy,
        *,
        api_key: str | None,
        window: int | None,
        count: Callable[[str], int],
        load_blob: Callable[[str], bytes],
    ) -> None:
        self.name = name
        self.model = policy.model
        self.window = window
        self._policy = policy
        self._count = count
        self._load_blob = load_blob
        self._client = AsyncAnthropic(
            api_key=api_key or "none",
            base_url=policy.base_url,
            max_retries=0,
            timeout=anthropic.Timeout(
                policy.timeouts.between_tokens_s,
                connect=policy.timeouts.connect_s,
                read=max(policy.timeouts.first_token_s, policy.timeouts.between_tokens_s) + 1,
            ),
            http_client=DefaultAioHttpClient(),
        )

    async def close(self) -> None:
        await self._client.close()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        reply = _Reply(model=self.model)
        async with (
            model_errors(self.name, reply.text, self._policy.timeouts.total_s, anthropic.APIConnectionError),
            self._post(request) as response,
            aclosing(self._read(response, reply)) as pieces,
        ):
            async for piece in pieces:
                yield TextDelta(piece)
        yield self._finished(reply, request)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        body = anthropic_wire.render(
            request.prompt, model=self.model, load_blob=self._load_blob, cache_ttl=self._policy.cache_ttl
        )
        if request.schema is not None:
            tool = {"name": SCHEMA_TOOL, "description": "The reply.", "input_schema": dict(request.schema)}
            body["tools"] = [*body.get("tools", ()), tool]
            body["tool_choice"] = {"type": "tool", "name": SCHEMA_TOOL}
        params = dict(request.params)
        if "stop" in params:
            stop = params.pop("stop")
            params["stop_sequences"] = [stop] if isinstance(stop, str) else stop
        known = ("temperature", "top_p", "top_k", "stop_sequences", "tool_choice", "metadata", "thinking")
        body |= {name: value for name, value in params.items() if name in known}
        body["max_tokens"] = request.max_output or self._policy.max_output or DEFAULT_MAX_OUTPUT
        body["stream"] = True
        return body

    @asynccontextmanager
    async def _post(self, request: ModelRequest) -> AsyncIterator[Any]:
        """The open response. Raises ModelError for an HTTP error."""
        limit = self._policy.timeouts.first_token_s
        try:
            async with asyncio.timeout(limit):
                response: Any = await self._client.post(
                    "/v1/messages", cast_to=object, body=self._body(request), options={"headers": STREAM_RAW}
                )
        except TimeoutError as error:
            raise ModelUnavailable(f"{self.name} sent nothing for {limit:g} s.") from error
        except anthropic.APIStatusError as error:
            raise error_of(self.name, error.status_code, error.response.text, error.response.headers) from error
        try:
            yield response
        finally:
            await response.close()

    async def _read(self, response: Any, reply: _Reply) -> AsyncIterator[str]:
        kind = str(response.http_response.headers.get("content-type", ""))
        chunks = cast("AsyncIterator[bytes]", response.iter_bytes())
        if "event-stream" not in kind:
            content = b"".join([chunk async for chunk in chunks])
            parse_object(content, self.name)
            raise ModelBroken(f"{self.name} did not answer with a stream of events.")
        async with aclosing(read_events(chunks, self.name, self._policy.timeouts)) as events:
            async for _, fields in events:
                piece = self._take(fields, reply)
                if piece:
                    reply.text.append(piece)
                    yield piece
                if reply.stopped:
                    return

    def _take(self, fields: dict[str, Any], reply: _Reply) -> str:
        """Takes over one event; the new text in it. Raises ModelError for an error event."""
        match fields.get("type"):
            case "message_start":
                message = fields.get("message") or {}
                reply.model = text_of(message.get("model")) or reply.model
                _take_usage(reply, message.get("usage"))
            case "content_block_start":
                return _start_block(reply, fields)
            case "content_block_delta":
                delta = fields.get("delta") or {}
                if delta.get("type") == "input_json_delta":
                    call = reply.calls.get(number(fields.get("index")))
                    if call is not None:
                        call["arguments"] += text_of(delta.get("partial_json"))
                return text_of(delta.get("text"))
            case "message_delta":
                delta = fields.get("delta") or {}
                reply.finish = delta.get("stop_reason") or reply.finish
                _take_usage(reply, fields.get("usage"))
            case "message_stop":
                reply.stopped = True
            case "error":
                error = fields.get("error") or {}
                kind = text_of(error.get("type"))
                status = 400 if kind == "invalid_request_error" else None
                raise error_of(self.name, status, text_of(error.get("message")) or kind or "an error")
            case _:
                pass
        return ""

    def _finished(self, reply: _Reply, request: ModelRequest) -> Finished:
        """Raises ModelBroken for a reply that did not come to its end, or is none."""
        text = "".join(reply.text)
        if not reply.stopped and reply.finish is None:
            raise ModelBroken(f"The stream of {self.name} broke off.", partial=text)
        calls = tuple(
            ToolCall(id=call["id"], name=call["name"], arguments=call["arguments"] or "{}")
            for _, call in sorted(reply.calls.items())
        )
        finish = FINISH.get(reply.finish or "end_turn", "stop")
        if request.schema is not None and len(calls) == 1 and calls[0].name == SCHEMA_TOOL:
            text, calls, finish = calls[0].arguments, (), "stop"
        if not text and not calls and finish not in ("length", "filter"):
            raise ModelBroken(f"{self.name} gave an empty reply.")
        return Finished(
            text=text,
            calls=calls,
            finish="tool_calls" if calls else finish,
            usage=usage_of(reply.usage) if reply.usage else self._estimate(text, request),
            model=reply.model,
        )

    def _estimate(self, text: str, request: ModelRequest) -> Usage:
        sent = self._count(request.prompt.system) + sum(self._count(m.text) + 4 for m in request.prompt.messages)
        return Usage(input_total=sent, output=self._count(text), reported=False)


def _start_block(reply: _Reply, fields: dict[str, Any]) -> str:
    block = fields.get("content_block") or {}
    if block.get("type") == "tool_use":
        given = block.get("input")
        reply.calls[number(fields.get("index"))] = {
            "id": text_of(block.get("id")) or f"call_{len(reply.calls)}",
            "name": text_of(block.get("name")),
            "arguments": dumps(given) if given else "",
        }
    return text_of(block.get("text"))


def _take_usage(reply: _Reply, raw: Any) -> None:
    """Counts come cumulatively in several events: the newest of each stands."""
    if isinstance(raw, dict):
        counts = cast("dict[str, Any]", raw)
        reply.usage |= {name: number(value) for name, value in counts.items() if isinstance(value, int)}


def usage_of(raw: dict[str, int]) -> Usage:
    """Anthropic's `input_tokens` leave out what was read from and written to the cache."""
    read = raw.get("cache_read_input_tokens", 0)
    written = raw.get("cache_creation_input_tokens", 0)
    return Usage(
        input_total=raw.get("input_tokens", 0) + read + written,
        cached_read=read,
        cache_write=written,
        output=raw.get("output_tokens", 0),
    )
