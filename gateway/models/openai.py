"""Models behind the OpenAI Chat Completions API, wherever it is served."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import openai
import structlog
from openai import AsyncOpenAI, DefaultAioHttpClient

from gateway.models import openai_wire
from gateway.models.base import Finished, ModelBroken, ModelError, TextDelta
from gateway.models.cache_terms import OPENAI_HOST, has_breakpoints
from gateway.models.endpoint import END, WHOLE, Endpoint, Refused
from gateway.models.estimate import estimate
from gateway.models.failures import error_of_object, error_of_status
from gateway.models.openai_wire import has_files
from gateway.models.partial import PartialReply, fields_of, number, string, take_all
from gateway.models.quirks import Quirks, plain_roles
from gateway.models.tls import checked_by
from sessions.files import StorageError
from sessions.usage import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from gateway.models.base import ModelEvent, ModelRequest
    from gateway.models.policy import ModelPolicy
    from sessions.entries import Finish

log = structlog.get_logger()

FINISH: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "filter",
}
MAX_LESSONS = 4


class OpenAIModel:
    """One model. What its server refuses is learnt, and not asked again."""

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
        timeout = openai.Timeout(None, connect=policy.timeouts.connect_s)
        http = DefaultAioHttpClient(timeout=timeout, verify=checked_by())
        self._client = AsyncOpenAI(api_key=api_key or "none", base_url=policy.base_url, max_retries=0, http_client=http)
        base = str(self._client.base_url)
        headers = {**self._client.default_headers, **self._client.auth_headers}
        self._endpoint = Endpoint(name, http, f"{base.rstrip('/')}/chat/completions", headers, policy.timeouts)
        original = urlsplit(base).hostname == OPENAI_HOST
        self._quirks = Quirks(
            limit="max_completion_tokens" if original else "max_tokens",
            cache_key=original,
            breakpoints=has_breakpoints(policy),
        )

    async def close(self) -> None:
        await self._client.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        reply = PartialReply(self.model)
        try:
            async with aclosing(self._batches(request, reply)) as batches:
                async for batch in batches:
                    text, failure = take_all(batch, lambda name, fields: self._take(name, fields, reply))
                    if text:
                        yield TextDelta(text)
                    if failure is not None:
                        raise failure
        except ModelError as error:
            if reply.finish is None:
                error.partial = reply.shown
                raise
            log.warning("model.failed_after_reply", model=self.name, error=str(error))
        yield self._finished(reply, request)

    async def _batches(
        self, request: ModelRequest, reply: PartialReply
    ) -> AsyncGenerator[list[tuple[str, dict[str, Any]]], None]:
        """Asks again, worded otherwise, as long as a refusal teaches something; servers may contradict themselves."""
        lessons = 0
        while True:
            try:
                events = self._endpoint.events(await self._rendered(request), lambda: reply.begun)
                async with aclosing(events):
                    async for batch in events:
                        yield batch
                return
            except Refused as error:
                learnt = self._quirks.learn(error.status, error.text, images=has_files(request.prompt))
                if learnt is None or lessons == MAX_LESSONS:
                    raise error_of_status(self.name, error.status, error.text, error.headers) from error
                self._quirks = learnt
                lessons += 1

    async def _rendered(self, request: ModelRequest) -> dict[str, Any]:
        """Files are read in a thread."""
        if has_files(request.prompt):
            return await asyncio.to_thread(self._body, request)
        return self._body(request)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        quirks = self._quirks
        load_blob = self._load_blob if quirks.images else _not_wanted
        breakpoints = quirks.breakpoints and request.cache_key is not None
        body = openai_wire.render(request.prompt, model=self.model, load_blob=load_blob, breakpoints=breakpoints)
        if breakpoints:
            body["prompt_cache_options"] = {"mode": "explicit"}
        if quirks.plain_roles:
            body["messages"] = plain_roles(body["messages"])
        limit = request.max_output or self._policy.max_output
        if limit is not None:
            body[quirks.limit] = limit
        if request.schema is not None and quirks.schema:
            schema = {"name": "reply", "schema": dict(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if request.cache_key is not None and quirks.cache_key:
            body["prompt_cache_key"] = request.cache_key
        body |= request.params
        if not request.may_call and "tools" in body:
            _keep_from_calling(body, told=quirks.tool_choice)
        body["stream"] = True
        if quirks.usage:
            body["stream_options"] = {"include_usage": True}
        return body

    def _take(self, name: str, fields: dict[str, Any], reply: PartialReply) -> str:
        """Takes over one object; the new text in it. Raises ModelError for an error object."""
        piece = _plain_piece(fields)
        if piece is not None and reply.begun:
            return reply.add_text(piece)
        if name == END:
            reply.ended = True
            return ""
        if fields.get("error") or fields.get("object") == "error":
            raise error_of_object(self.name, fields.get("error") or fields)
        if fields.get("usage"):
            reply.usage = usage_of(fields_of(fields["usage"])) or reply.usage
        choices = fields.get("choices")
        if not isinstance(choices, list) or not choices:
            return ""
        reply.model = string(fields.get("model")) or reply.model
        choice = fields_of(cast("list[Any]", choices)[0])
        if choice.get("finish_reason"):
            reply.finish = FINISH.get(str(choice["finish_reason"]), "stop")
        if name == WHOLE:
            reply.ended = True
            return _take_delta(reply, fields_of(choice.get("message")))
        return _take_delta(reply, fields_of(choice.get("delta")))

    def _finished(self, reply: PartialReply, request: ModelRequest) -> Finished:
        """Raises ModelBroken for a reply that did not come to its end, or is none."""
        if reply.finish is None and not reply.ended:
            raise ModelBroken(f"The stream of {self.name} broke off.", partial=reply.shown)
        calls = reply.calls(f"call_{len(request.prompt.messages)}")
        finish = reply.finish or "stop"
        if not reply.text and not calls and finish not in ("length", "filter"):
            raise ModelBroken(f"{self.name} gave an empty reply{' after its reasoning' if reply.begun else ''}.")
        return Finished(
            text=reply.shown,
            calls=calls,
            finish="tool_calls" if calls else finish,
            usage=reply.usage or estimate(request.prompt, reply.shown, self._count),
            model=reply.model,
            name=self.name,
        )


def _keep_from_calling(body: dict[str, Any], *, told: bool) -> None:
    """A server that cannot be told is not shown the tools."""
    if told:
        body["tool_choice"] = "none"
        return
    del body["tools"]
    for name in ("tool_choice", "parallel_tool_calls"):
        body.pop(name, None)


def _not_wanted(sha256: str) -> bytes:
    raise StorageError(f"The model takes no files, so {sha256[:12]} is not read.")


def _plain_piece(fields: dict[str, Any]) -> str | None:
    """The text of an object that brings a piece of text and nothing else, as nearly all do; None for any other."""
    choices = fields.get("choices")
    if not isinstance(choices, list) or len(cast("list[Any]", choices)) != 1 or fields.get("usage"):
        return None
    choice = fields_of(choices[0])
    delta = fields_of(choice.get("delta"))
    if len(delta) != 1 or choice.get("finish_reason") or fields.get("error"):
        return None
    piece = delta.get("content")
    return piece if isinstance(piece, str) else None


def _take_delta(reply: PartialReply, delta: dict[str, Any]) -> str:
    """What a delta, or a whole message, adds; the new text in it."""
    calls = delta.get("tool_calls")
    if calls:
        for position, call in enumerate(cast("list[Any]", calls)):
            _take_call(reply, position, fields_of(call))
    content = delta.get("content")
    if content:
        return reply.add_text(content)
    reply.begun = reply.begun or bool(delta.get("reasoning_content") or delta.get("reasoning"))
    return ""


def _take_call(reply: PartialReply, position: int, fields: dict[str, Any]) -> None:
    index = fields.get("index")
    call = reply.call_at(index if isinstance(index, int) else position, string(fields.get("id")))
    function = fields_of(fields.get("function"))
    call.name = call.name or string(function.get("name"))
    arguments = function.get("arguments")
    call.arguments.append(openai_wire.as_text(arguments) if isinstance(arguments, dict) else string(arguments))


def usage_of(raw: Mapping[str, Any]) -> Usage | None:
    """OpenAI's `prompt_tokens` include the cached ones; other servers name those differently. None for no report."""
    prompt = fields_of(raw.get("prompt_tokens_details"))
    completion = fields_of(raw.get("completion_tokens_details"))
    total = number(raw.get("prompt_tokens"))
    output = number(raw.get("completion_tokens"))
    if not total and not output:
        return None
    read = (prompt.get("cached_tokens"), raw.get("prompt_cache_hit_tokens"), raw.get("cache_read_input_tokens"))
    written = (prompt.get("cache_write_tokens"), raw.get("cache_creation_input_tokens"))
    cached_read = min(total, max(map(number, read)))
    return Usage(
        input_total=total,
        cached_read=cached_read,
        cache_write=min(total - cached_read, max(map(number, written))),
        output=output,
        reasoning=number(completion.get("reasoning_tokens")),
    )
