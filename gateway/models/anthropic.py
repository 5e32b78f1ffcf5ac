"""Claude models behind the Anthropic Messages API."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import anthropic
import structlog
from anthropic import AsyncAnthropic, DefaultAioHttpClient

from gateway.models import anthropic_wire
from gateway.models.base import Finished, ModelBroken, ModelError, TextDelta
from gateway.models.endpoint import END, WHOLE, Endpoint, Refused
from gateway.models.estimate import estimate
from gateway.models.failures import error_of_object, error_of_status
from gateway.models.openai_wire import as_text, has_files
from gateway.models.partial import PartialReply, fields_of, number, string, take_all
from gateway.models.tls import checked_by
from sessions.usage import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from gateway.models.base import ModelEvent, ModelRequest
    from gateway.models.policy import ModelPolicy
    from sessions.entries import Finish

log = structlog.get_logger()

DEFAULT_MAX_OUTPUT = 8192
FINISH: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "filter",
}
SCHEMA_TOOL = "reply"
SAME_NAME = ("top_p", "top_k", "stop_sequences", "thinking", "metadata")


class AnthropicModel:
    """One model. A schema is asked for as a tool the model must call."""

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
        timeout = anthropic.Timeout(None, connect=policy.timeouts.connect_s)
        http = DefaultAioHttpClient(timeout=timeout, verify=checked_by())
        base_url = policy.base_url.rstrip("/").removesuffix("/v1") if policy.base_url else None
        self._client = AsyncAnthropic(api_key=api_key or "none", base_url=base_url, max_retries=0, http_client=http)
        headers = {**self._client.default_headers, **self._client.auth_headers}
        url = f"{str(self._client.base_url).rstrip('/')}/v1/messages"
        self._endpoint = Endpoint(name, http, url, headers, policy.timeouts)
        self._chooses = True

    async def close(self) -> None:
        await self._client.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        reply = PartialReply(self.model)
        usage: dict[str, int] = {}
        try:
            async with aclosing(self._batches(request, reply)) as batches:
                async for batch in batches:
                    text, failure = take_all(batch, lambda name, fields: self._take(name, fields, reply, usage))
                    if text:
                        yield TextDelta(text)
                    if failure is not None:
                        raise failure
        except Refused as error:
            raise error_of_status(self.name, error.status, error.text, error.headers) from error
        except ModelError as error:
            if reply.finish is None:
                error.partial = reply.shown
                raise
            log.warning("model.failed_after_reply", model=self.name, error=str(error))
        reply.usage = usage_of(usage)
        yield self._finished(reply, request)

    async def _batches(
        self, request: ModelRequest, reply: PartialReply
    ) -> AsyncGenerator[list[tuple[str, dict[str, Any]]], None]:
        """A server that cannot be told to leave the tools alone is asked again without them, now and later."""
        while True:
            try:
                async with aclosing(
                    self._endpoint.events(await self._rendered(request), lambda: reply.begun)
                ) as events:
                    async for batch in events:
                        yield batch
                return
            except Refused as error:
                if request.may_call or not self._chooses or error.status != 400 or "tool_choice" not in error.text:
                    raise
                self._chooses = False

    async def _rendered(self, request: ModelRequest) -> dict[str, Any]:
        """Files are read in a thread."""
        if has_files(request.prompt):
            return await asyncio.to_thread(self._body, request)
        return self._body(request)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        body = anthropic_wire.render(
            request.prompt, model=self.model, load_blob=self._load_blob, cache_ttl=self._policy.cache_ttl
        )
        body |= params_of(request.params, tools="tools" in body)
        if not request.may_call and "tools" in body:
            if self._chooses:
                body["tool_choice"] = {"type": "none"}
            else:
                del body["tools"]
                body.pop("tool_choice", None)
        if request.schema is not None:
            tool = {"name": SCHEMA_TOOL, "description": "The reply.", "input_schema": dict(request.schema)}
            body["tools"] = [*body.get("tools", ()), tool]
            body["tool_choice"] = {"type": "tool", "name": SCHEMA_TOOL}
        body["max_tokens"] = request.max_output or self._policy.max_output or DEFAULT_MAX_OUTPUT
        body["stream"] = True
        return body

    def _take(self, name: str, fields: dict[str, Any], reply: PartialReply, usage: dict[str, int]) -> str:
        """Takes over one event; the new text in it. Raises ModelError for an error event."""
        if name == WHOLE and fields.get("type") == "message":
            return self._take_whole(fields, reply, usage)
        index = number(fields.get("index"))
        delta = fields_of(fields.get("delta"))
        match fields.get("type"):
            case "message_start":
                message = fields_of(fields.get("message"))
                reply.model = string(message.get("model")) or reply.model
                _take_usage(usage, message)
            case "content_block_start":
                return _take_block(reply, index, fields_of(fields.get("content_block")))
            case "content_block_delta":
                reply.begun = True
                if delta.get("type") == "input_json_delta":
                    reply.call_at(index).arguments.append(string(delta.get("partial_json")))
                return reply.add_text(delta.get("text"))
            case "message_delta":
                reply.finish = _finish(delta) or reply.finish
                _take_usage(usage, fields)
            case "message_stop":
                reply.ended = True
            case "error":
                raise error_of_object(self.name, fields.get("error"))
            case None if name == END:
                reply.ended = True
            case None if fields.get("error"):
                raise error_of_object(self.name, fields["error"])
            case _:
                pass
        return ""

    def _take_whole(self, fields: dict[str, Any], reply: PartialReply, usage: dict[str, int]) -> str:
        """A server that does not stream."""
        reply.model = string(fields.get("model")) or reply.model
        reply.finish = _finish(fields)
        reply.ended = True
        _take_usage(usage, fields)
        blocks = cast("list[Any]", fields.get("content") or [])
        return "".join([_take_block(reply, index, fields_of(block)) for index, block in enumerate(blocks)])

    def _finished(self, reply: PartialReply, request: ModelRequest) -> Finished:
        """Raises ModelBroken for a reply that did not come to its end, or is none."""
        if not reply.ended and reply.finish is None:
            raise ModelBroken(f"The stream of {self.name} broke off.", partial=reply.shown)
        text = reply.shown
        calls = reply.calls(f"call_{len(request.prompt.messages)}")
        finish = reply.finish or "stop"
        if request.schema is not None and len(calls) == 1 and calls[0].name == SCHEMA_TOOL:
            text, calls, finish = calls[0].arguments, (), "length" if finish == "length" else "stop"
        if not text and not calls and finish not in ("length", "filter"):
            raise ModelBroken(f"{self.name} gave an empty reply{' after its reasoning' if reply.begun else ''}.")
        return Finished(
            text=text,
            calls=calls,
            finish="tool_calls" if calls else finish,
            usage=reply.usage or estimate(request.prompt, text, self._count),
            model=reply.model,
            name=self.name,
        )


def _take_block(reply: PartialReply, index: int, block: dict[str, Any]) -> str:
    if block.get("type") == "tool_use":
        call = reply.call_at(index, string(block.get("id")))
        call.name = string(block.get("name"))
        if block.get("input"):
            call.arguments.append(as_text(block["input"]))
    return reply.add_text(block.get("text"))


def _finish(fields: Mapping[str, Any]) -> Finish | None:
    reason = fields.get("stop_reason")
    return FINISH.get(str(reason), "stop") if reason else None


def _take_usage(usage: dict[str, int], fields: Mapping[str, Any]) -> None:
    """Counts come cumulatively in several events: the newest of each stands."""
    usage |= {key: number(value) for key, value in fields_of(fields.get("usage")).items() if isinstance(value, int)}


def usage_of(raw: Mapping[str, int]) -> Usage | None:
    """Anthropic's `input_tokens` leave out what was read from and written to the cache. None for no report."""
    read = raw.get("cache_read_input_tokens", 0)
    written = raw.get("cache_creation_input_tokens", 0)
    total = raw.get("input_tokens", 0) + read + written
    output = raw.get("output_tokens", 0)
    return Usage(input_total=total, cached_read=read, cache_write=written, output=output) if total or output else None


def params_of(params: Mapping[str, Any], *, tools: bool) -> dict[str, Any]:
    """Sampling settings in OpenAI's words, in Anthropic's. What has no counterpart is left out."""
    known = {name: params[name] for name in SAME_NAME if name in params}
    if isinstance(params.get("temperature"), int | float):
        known["temperature"] = min(1.0, params["temperature"])
    stop = params.get("stop")
    if stop:
        known["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    choice = _tool_choice(params.get("tool_choice"))
    if tools and params.get("parallel_tool_calls") is False and (choice is None or choice["type"] != "none"):
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    if tools and choice is not None:
        known["tool_choice"] = choice
    return known


def _tool_choice(choice: Any) -> dict[str, Any] | None:
    match choice:
        case "auto" | "none":
            return {"type": choice}
        case "required":
            return {"type": "any"}
        case {"function": {"name": str(name)}}:
            return {"type": "tool", "name": name}
        case {"type": "auto" | "any" | "tool" | "none"}:
            return dict(cast("dict[str, Any]", choice))
        case _:
            return None
