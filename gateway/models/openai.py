"""Models behind the OpenAI Chat Completions API, wherever it is served."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import openai
from openai import AsyncOpenAI, DefaultAioHttpClient

from gateway.models import openai_wire
from gateway.models.base import Finished, ModelBroken, ModelUnavailable, TextDelta
from gateway.models.wire import error_of, model_errors, number, parse_object, read_events, text_of
from sessions.entries import Finish, ToolCall
from sessions.usage import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gateway.models.base import ModelEvent, ModelRequest
    from gateway.models.policy import ModelPolicy

STREAM_RAW = {"X-Stainless-Raw-Response": "stream"}
FINISH: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "filter",
}


@dataclass(slots=True)
class _Reply:
    """What has come so far."""

    text: list[str] = field(default_factory=list[str])
    calls: dict[int, dict[str, str]] = field(default_factory=dict[int, dict[str, str]])
    finish: str | None = None
    usage: Usage | None = None
    model: str = ""
    choices: int = 0
    done: bool = False


class OpenAIModel:
    """One model. The SDK sends and authenticates; chunks are read as bytes, which is several times faster than its
    typed stream, and survives servers that are not quite OpenAI."""

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
        self._asks_usage = True
        self._client = AsyncOpenAI(
            api_key=api_key or "none",
            base_url=policy.base_url,
            max_retries=0,
            timeout=openai.Timeout(
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
            model_errors(self.name, reply.text, self._policy.timeouts.total_s, openai.APIConnectionError),
            self._post(request) as response,
            aclosing(self._read(response, reply)) as pieces,
        ):
            async for piece in pieces:
                yield TextDelta(piece)
        yield self._finished(reply, request)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        body = openai_wire.render(request.prompt, model=self.model, load_blob=self._load_blob)
        limit = request.max_output or self._policy.max_output
        if limit is not None:
            body["max_completion_tokens" if self._policy.base_url is None else "max_tokens"] = limit
        if request.schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": dict(request.schema)},
            }
        if request.cache_key is not None and self._policy.base_url is None:
            body["prompt_cache_key"] = request.cache_key
        body |= request.params
        body["stream"] = True
        if self._asks_usage:
            body["stream_options"] = {"include_usage": True}
        return body

    @asynccontextmanager
    async def _post(self, request: ModelRequest) -> AsyncIterator[Any]:
        """The open response. Raises ModelError for an HTTP error."""
        try:
            response = await self._send(request)
        except openai.APIStatusError as error:
            text = error.response.text
            if self._asks_usage and error.status_code in (400, 422) and "stream_options" in text:
                self._asks_usage = False
                response = await self._send(request)
            else:
                raise error_of(self.name, error.status_code, text, error.response.headers) from error
        try:
            yield response
        finally:
            await response.close()

    async def _send(self, request: ModelRequest) -> Any:
        try:
            async with asyncio.timeout(self._policy.timeouts.first_token_s):
                return await self._client.post(
                    "/chat/completions", cast_to=object, body=self._body(request), options={"headers": STREAM_RAW}
                )
        except TimeoutError as error:
            raise ModelUnavailable(
                f"{self.name} sent nothing for {self._policy.timeouts.first_token_s:g} s."
            ) from error

    async def _read(self, response: Any, reply: _Reply) -> AsyncIterator[str]:
        kind = str(response.http_response.headers.get("content-type", ""))
        chunks = cast("AsyncIterator[bytes]", response.iter_bytes())
        if "event-stream" not in kind:
            content = b"".join([chunk async for chunk in chunks])
            for piece in self._take(parse_object(content, self.name), reply, part="message"):
                yield piece
            reply.done = True
            return
        async with aclosing(read_events(chunks, self.name, self._policy.timeouts)) as events:
            async for name, fields in events:
                if name == "done" and not fields:
                    reply.done = True
                    return
                for piece in self._take(fields, reply, part="delta"):
                    yield piece

    def _take(self, fields: dict[str, Any], reply: _Reply, *, part: str) -> list[str]:
        """Takes over one chunk; the new text in it. Raises ModelError for an error object."""
        error = fields.get("error")
        if error:
            text = error.get("message") if isinstance(error, dict) else str(error)
            code = error.get("code") if isinstance(error, dict) else None
            raise error_of(self.name, code if isinstance(code, int) else None, str(text or error))
        if isinstance(fields.get("usage"), dict):
            reply.usage = usage_of(fields["usage"])
        reply.model = text_of(fields.get("model")) or reply.model
        pieces: list[str] = []
        for choice in fields.get("choices") or ():
            reply.choices += 1
            delta = choice.get(part) or {}
            piece = text_of(delta.get("content"))
            if piece:
                reply.text.append(piece)
                pieces.append(piece)
            for position, call in enumerate(delta.get("tool_calls") or ()):
                _take_call(reply, position, call)
            reply.finish = choice.get("finish_reason") or reply.finish
        return pieces

    def _finished(self, reply: _Reply, request: ModelRequest) -> Finished:
        """Raises ModelBroken for a reply that did not come to its end, or is none."""
        text = "".join(reply.text)
        if reply.finish is None and not reply.done:
            raise ModelBroken(f"The stream of {self.name} broke off.", partial=text)
        calls = tuple(
            ToolCall(id=call["id"] or f"call_{n}", name=call["name"], arguments=call["arguments"])
            for n, call in sorted(reply.calls.items())
            if call["name"]
        )
        finish = FINISH.get(reply.finish or "stop", "stop")
        if not text and not calls and finish not in ("length", "filter"):
            raise ModelBroken(f"{self.name} gave an empty reply.")
        usage = reply.usage or self._estimate(text, request)
        return Finished(
            text=text, calls=calls, finish="tool_calls" if calls else finish, usage=usage, model=reply.model
        )

    def _estimate(self, text: str, request: ModelRequest) -> Usage:
        sent = self._count(request.prompt.system) + sum(self._count(m.text) + 4 for m in request.prompt.messages)
        return Usage(input_total=sent, output=self._count(text), reported=False)


def _take_call(reply: _Reply, position: int, fields: dict[str, Any]) -> None:
    index = fields.get("index")
    call = reply.calls.setdefault(
        index if isinstance(index, int) else position, {"id": "", "name": "", "arguments": ""}
    )
    function = fields.get("function") or {}
    call["id"] = call["id"] or text_of(fields.get("id"))
    call["name"] = call["name"] or text_of(function.get("name"))
    arguments = function.get("arguments")
    call["arguments"] += text_of(arguments) if not isinstance(arguments, dict) else openai_wire.dumps(arguments)


def usage_of(raw: dict[str, Any]) -> Usage:
    """OpenAI's `prompt_tokens` include the cached ones."""
    prompt = raw.get("prompt_tokens_details") or {}
    completion = raw.get("completion_tokens_details") or {}
    total = number(raw.get("prompt_tokens"))
    return Usage(
        input_total=total,
        cached_read=min(total, number(prompt.get("cached_tokens"))),
        cache_write=number(prompt.get("cache_write_tokens")),
        output=number(raw.get("completion_tokens")),
        reasoning=number(completion.get("reasoning_tokens")),
    )
