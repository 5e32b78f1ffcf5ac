"""OpenAI Chat Completions and models: any client of that API can use a session."""

from __future__ import annotations

import asyncio
import hashlib
import re
import unicodedata
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from compaction.layout import ToolSpec
from gateway.http.attachments import FileReader, file_reader, note_used
from gateway.http.auth import owner_of, speaker_of
from gateway.http.json import clean_text
from gateway.http.problems import TURN_STATUS, Problem, model_problem, retry_after
from gateway.http.routes import Body, Call, Route, json_answer
from gateway.http.sse import open_stream
from gateway.http.turns import checked_sender, idempotency_key
from gateway.models.base import ModelError, ModelRequest, TextDelta, complete
from gateway.replies import CallNote
from gateway.surfaces.history import History, HistoryMessage
from gateway.turn import Incoming
from sessions.entries import Attachment, ToolCall, ToolResultEntry
from sessions.keys import MalformedKey, SessionKey, clean_id, parse_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from gateway.models.base import ChatModel, Finished
    from gateway.parts import Parts
    from gateway.turn import Turn, TurnResult
    from sessions.usage import Usage

CHANNEL = "openai"
STATELESS = "stateless"
DEFAULT_AGENT = "main"
AGENT_PREFIX = "agent/"
PASSED = ("temperature", "top_p", "stop", "presence_penalty", "frequency_penalty", "seed", "response_format")
NAME_HEADERS = ("X-OpenWebUI-Chat-Id", "X-LibreChat-Conversation-Id", "x-litellm-session-id", "session-id")
ERROR_KINDS = {
    401: ("authentication_error", "invalid_api_key"),
    404: ("invalid_request_error", "not_found"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}
FINISH = {"length": "length", "filter": "content_filter", "client_tools": "tool_calls"}
SIDE_CALL = re.compile(
    r"^\s*### Task:\s|^\s*(?:Generate|Create|Suggest) (?:a|an|\d)[^\n]{0,60}\b(?:title|tags|follow-up)", re.IGNORECASE
)


class FunctionIn(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: Annotated[str, Field(min_length=1, max_length=128)]
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})


class ToolIn(BaseModel):
    type: Literal["function"]
    function: FunctionIn


class MessageIn(BaseModel):
    """One message of the history; fields of other roles are ignored."""

    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False


class CompletionIn(Body):
    """A Chat Completions request. What is not honoured is refused with its name."""

    model: Annotated[str, Field(min_length=1, max_length=512)]
    messages: Annotated[list[MessageIn], Field(min_length=1, max_length=20_000)]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    tools: Annotated[list[ToolIn], Field(max_length=128)] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    parallel_tool_calls: bool | None = None
    metadata: dict[str, str] | None = None
    user: Annotated[str, Field(max_length=512)] | None = None
    prompt_cache_key: Annotated[str, Field(max_length=512)] | None = None
    safety_identifier: str | None = None
    store: bool | None = None
    n: Literal[1] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=10**7)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=10**7)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None


class CompletionView(BaseModel):
    """A Chat Completions answer."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: str
    created: int
    model: str
    choices: list[dict[str, Any]]


class ErrorDetail(BaseModel):
    """What is wrong; `param` names the field."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorView(BaseModel):
    """An error as OpenAI's clients read it."""

    error: ErrorDetail


class ModelsView(BaseModel):
    """The models a client may name: agents, and configured models."""

    object: str = "list"
    data: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Target:
    """What a request's `model` means: an agent, and perhaps a configured model."""

    agent: str
    model: str | None


def routes(parts: Parts) -> list[Route]:
    surface = ChatCompletions(parts)
    return [
        Route(
            method="POST",
            path="/v1/chat/completions",
            endpoint=surface.complete,
            summary="OpenAI Chat Completions",
            tag="openai",
            body=CompletionIn,
            refuse=lambda problem, _: error_answer(problem),
            answers={200: (CompletionView, "text/event-stream")},
            errors=ErrorView,
        ),
        Route(
            method="GET",
            path="/v1/models",
            endpoint=surface.models,
            summary="Agents and models",
            tag="openai",
            refuse=lambda problem, _: error_answer(problem),
            answers={200: ModelsView},
            errors=ErrorView,
        ),
    ]


class ChatCompletions:
    """The dialect. The newest messages of a request go into the named session; without a name nothing is kept."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def models(self, call: Call) -> web.Response:
        names = [f"{AGENT_PREFIX}{agent}" for agent in dict.fromkeys([DEFAULT_AGENT, *self._parts.config.agents])]
        listed = [
            {"id": name, "object": "model", "created": 0, "owned_by": "sessiond"}
            for name in [*names, *self._parts.models.names()]
        ]
        return json_answer({"object": "list", "data": listed})

    async def complete(self, call: Call) -> web.StreamResponse:
        body: CompletionIn = call.body
        target = self._target(body.model)
        key = session_key(body, call.request.headers, target.agent)
        async with file_reader(self._parts, call.caller) as files:
            history = await self._history(body, files)
            if key is None or is_side_call(body):
                return await self._stateless(call, body, target, history)
            return await self._in_session(call, body, target, key, history)

    def _target(self, model: str) -> Target:
        """`agent/<id>`, or the name of a configured model, which then speaks as the default agent."""
        if model.startswith(AGENT_PREFIX):
            return Target(clean_id("agent", model[len(AGENT_PREFIX) :]), None)
        if model in self._parts.models.names():
            return Target(DEFAULT_AGENT, model)
        known = ", ".join([f"{AGENT_PREFIX}{DEFAULT_AGENT}", *self._parts.models.names()])
        raise Problem(404, "Unknown model", f"There is no model {model!r}. Known: {known}.", [("model", "unknown")])

    async def _history(self, body: CompletionIn, files: FileReader) -> History:
        """The request's messages, with images stored. Raises Problem with the place of what cannot be taken."""
        messages: list[HistoryMessage] = []
        for n, message in enumerate(body.messages):
            text, attachments = await self._content(message, n, files)
            calls = tuple(_call(raw, f"messages.{n}.tool_calls.{m}") for m, raw in enumerate(message.tool_calls or ()))
            messages.append(
                HistoryMessage(
                    role="system" if message.role == "developer" else message.role,
                    text=text,
                    attachments=attachments,
                    calls=calls,
                    call_id=message.tool_call_id,
                    name=message.name,
                )
            )
        return History(tuple(messages))

    async def _content(self, message: MessageIn, n: int, files: FileReader) -> tuple[str, tuple[Attachment, ...]]:
        if not isinstance(message.content, list):
            return clean_text(message.content or ""), ()
        texts: list[str] = []
        attachments: list[Attachment] = []
        for m, part in enumerate(message.content):
            place = f"messages.{n}.content.{m}"
            match part:
                case {"type": "text", "text": str(text)}:
                    texts.append(clean_text(text))
                case {"type": "image_url", "image_url": {"url": str(url)}}:
                    attachments.append(await asyncio.to_thread(files.read, url, place))
                case _:
                    detail = f"content part of type {part.get('type')!r} is not taken; send text or image_url"
                    raise Problem(400, "Invalid request", detail, [(place, detail)])
        return "\n".join(texts), tuple(attachments)

    # --- with a session -------------------------------------------------------------------------------------------

    async def _in_session(
        self, call: Call, body: CompletionIn, target: Target, key: SessionKey, history: History
    ) -> web.StreamResponse:
        parts = self._parts
        sender = checked_sender(parts, call.caller, key, None)
        owner = owner_of(key, sender, call.caller, parts.config.sessions.identities)
        newest = history.newest()
        if newest.results == () and newest.user is None:
            detail = "The last message must come from the user, or bring the results of tool calls."
            raise Problem(400, "Invalid request", detail, [("messages", detail)])
        user = newest.user
        before = history.before_newest() if not parts.store.sessions_of(key) else []
        incoming = Incoming(
            text=user.text if user else "",
            attachments=user.attachments if user else (),
            results=tuple(
                ToolResultEntry(call_id=r.call_id or "", name=r.name or "tool", text=r.text) for r in newest.results
            ),
            sender=sender,
            sender_name=user.name if user else None,
            user=owner,
            speaker=speaker_of(key, sender, call.caller, parts.config.sessions.identities),
            role=call.caller.role,
            request_id=idempotency_key(call.request),
            request_sha256=_fingerprint(body),
            model=target.model,
            source="chat_completions",
            client_tools=client_tools(body),
            params=params(body),
            max_output=body.max_completion_tokens or body.max_tokens,
            extra_system=history.system(),
            before=tuple(d for message in before if (d := message.draft(parts.prompts.count)) is not None),
        )
        turn = await parts.turns.start(key, incoming)
        if user and user.attachments:
            await note_used(parts, image_urls(body))
        if body.stream:
            return await self._stream_turn(call, body, turn)
        result = await turn.done()
        if result.failed:
            return error_answer(_turn_problem(result))
        calls = shown_calls(result, turn.client_tool_names)
        answer = self._chunks(turn.id, body).whole(result.text, calls, finish_of(result.finish), result.usage)
        return json_answer(answer, X_Sessiond_Turn=turn.id)

    def _chunks(self, wanted: str, body: CompletionIn) -> Chunks:
        return Chunks(wanted, body.model, int(self._parts.clock.now().timestamp()))

    async def _stream_turn(self, call: Call, body: CompletionIn, turn: Turn) -> web.StreamResponse:
        response = await open_stream(call.request, ping_s=self._parts.config.server.ping_s, X_Sessiond_Turn=turn.id)
        chunks = self._chunks(turn.id, body)
        async with response:
            try:
                await response.send(chunks.role())
                async for event in turn.events.follow():
                    if event.name == "delta":
                        await response.send(chunks.text(event.fields["text"]))
                await self._end_stream(response.send, body, turn, chunks)
            except (ConnectionResetError, TimeoutError):
                return response
        return response

    async def _end_stream(
        self, send: Callable[[str], Awaitable[None]], body: CompletionIn, turn: Turn, chunks: Chunks
    ) -> None:
        result = await turn.done()
        if result.failed:
            await send(orjson.dumps(error_body(_turn_problem(result))).decode())
        else:
            calls = shown_calls(result, turn.client_tool_names)
            if calls:
                await send(chunks.calls(calls))
            await send(chunks.end(finish_of(result.finish)))
            if body.stream_options and body.stream_options.include_usage:
                await send(chunks.usage(result.usage))
        await send("[DONE]")

    # --- without one ----------------------------------------------------------------------------------------------

    async def _stateless(self, call: Call, body: CompletionIn, target: Target, history: History) -> web.StreamResponse:
        """Answers from what was sent, and keeps nothing."""
        parts = self._parts
        await parts.prompts.ready()
        incoming = Incoming(text="", client_tools=client_tools(body), extra_system=history.system())
        model = parts.models.choose(target.agent, target.model)
        request = ModelRequest(
            prompt=parts.prompts.stateless(target.agent, history.messages_for_prompt(), incoming),
            max_output=body.max_completion_tokens or body.max_tokens,
            params=params(body),
        )
        chunks = self._chunks(parts.clock.new_id(), body)
        if not body.stream:
            async with parts.slots:
                finished = await complete(model, request)
            self._note(call, target, model, finished)
            return json_answer(chunks.whole(finished.text, finished.calls, finish_of(finished.finish), finished.usage))
        response = await open_stream(call.request, ping_s=parts.config.server.ping_s)
        async with response:
            try:
                await response.send(chunks.role())
                async with parts.slots, aclosing(model.stream(request)) as events:
                    async for event in events:
                        if isinstance(event, TextDelta):
                            await response.send(chunks.text(event.text))
                        else:
                            self._note(call, target, model, event)
                            await self._end_stateless(response.send, body, chunks, event)
            except ModelError as error:
                await response.send(orjson.dumps(error_body(model_problem(error))).decode())
                await response.send("[DONE]")
            except (ConnectionResetError, TimeoutError):
                return response
        return response

    async def _end_stateless(
        self, send: Callable[[str], Awaitable[None]], body: CompletionIn, chunks: Chunks, finished: Finished
    ) -> None:
        if finished.calls:
            await send(chunks.calls(finished.calls))
        await send(chunks.end(finish_of(finished.finish)))
        if body.stream_options and body.stream_options.include_usage:
            await send(chunks.usage(finished.usage))
        await send("[DONE]")

    def _note(self, call: Call, target: Target, model: ChatModel, finished: Finished) -> None:
        if finished.usage is None:
            return
        ledger = self._parts.ledger
        ledger.note(
            CallNote(
                id=self._parts.clock.new_id(),
                session="",
                key=STATELESS,
                user=call.caller.user,
                agent=target.agent,
                role="chat",
                model_name=model.name,
                model=finished.model,
                usage=finished.usage,
                cost=ledger.cost(model.name, finished.model, finished.usage),
                duration_s=0,
            )
        )


# --- pure -------------------------------------------------------------------------------------------------------------


def session_key(body: CompletionIn, headers: Mapping[str, str], agent: str) -> SessionKey | None:
    """The session a request names; None when it names none. Raises MalformedKey for a bad X-Sessiond-Key."""
    if explicit := headers.get("X-Sessiond-Key"):
        return parse_key(clean_text(explicit))
    metadata = body.metadata or {}
    named = [headers.get(header) for header in NAME_HEADERS[:2]]
    named += [metadata.get("session_id"), *(headers.get(header) for header in NAME_HEADERS[2:])]
    named += [body.prompt_cache_key, body.user]
    chat = next((name for name in named if name), None)
    if chat is None:
        return None
    person = headers.get("X-OpenWebUI-User-Id") or body.user or chat
    thread = None if person == chat else chat
    return parse_key(str(SessionKey("direct", agent, CHANNEL, safe_id(person), safe_id(thread) if thread else None)))


def safe_id(raw: str) -> str:
    """A client's name as an id of a key: what ids may not hold makes it a hash, so two chats never become one."""
    text = unicodedata.normalize("NFC", clean_text(raw))
    try:
        if len(text.encode()) <= 128 and clean_id("name", text) == raw:
            return text
    except MalformedKey:
        pass
    return f"sha256-{hashlib.sha256(raw.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


def image_urls(body: CompletionIn) -> list[str]:
    """The addresses of all images of a request, which has been checked."""
    contents = [m.content for m in body.messages if isinstance(m.content, list)]
    return [part["image_url"]["url"] for content in contents for part in content if part.get("type") == "image_url"]


def is_side_call(body: CompletionIn) -> bool:
    """Titles, tags and follow-ups that frontends ask for beside the conversation; they must not become part of it."""
    last = body.messages[-1]
    return last.role == "user" and isinstance(last.content, str) and SIDE_CALL.search(last.content[:400]) is not None


def client_tools(body: CompletionIn) -> tuple[ToolSpec, ...]:
    if body.tool_choice == "none":
        return ()
    return tuple(
        ToolSpec(name=t.function.name, description=t.function.description, parameters=t.function.parameters)
        for t in body.tools or ()
    )


def params(body: CompletionIn) -> dict[str, Any]:
    return {name: value for name in PASSED if (value := getattr(body, name)) is not None}


def _call(raw: dict[str, Any], place: str) -> ToolCall:
    match raw:
        case {"id": str(call_id), "function": {"name": str(name), "arguments": str(arguments)}}:
            return ToolCall(id=clean_text(call_id), name=clean_text(name), arguments=clean_text(arguments))
        case _:
            detail = "a tool call needs id, function.name and function.arguments"
            raise Problem(400, "Invalid request", detail, [(place, detail)])


def _fingerprint(body: CompletionIn) -> str:
    return hashlib.sha256(body.model_dump_json(exclude={"stream", "stream_options"}).encode()).hexdigest()


def shown_calls(result: TurnResult, client_tools: frozenset[str]) -> tuple[ToolCall, ...]:
    """Only calls to the client's own tools leave the daemon."""
    return tuple(call for call in result.calls if call.name in client_tools) if result.finish == "client_tools" else ()


def finish_of(finish: str | None) -> str:
    return FINISH.get(finish or "stop", "tool_calls" if finish == "tool_calls" else "stop")


@dataclass(frozen=True, slots=True)
class Chunks:
    """The objects of one answer, whole or in pieces."""

    id: str
    model: str
    created: int

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return orjson.dumps({**self._head("chat.completion.chunk"), "choices": [choice]}).decode()

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{self.id}", "object": kind, "created": self.created, "model": self.model}

    def role(self) -> str:
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, piece: str) -> str:
        return self._chunk({"content": piece})

    def calls(self, calls: tuple[ToolCall, ...]) -> str:
        return self._chunk({"tool_calls": [{"index": n, **_call_json(call)} for n, call in enumerate(calls)]})

    def end(self, finish: str) -> str:
        return self._chunk({}, finish)

    def usage(self, usage: Usage | None) -> str:
        head: dict[str, Any] = {**self._head("chat.completion.chunk"), "choices": [], "usage": usage_json(usage)}
        return orjson.dumps(head).decode()

    def whole(self, text: str, calls: tuple[ToolCall, ...], finish: str, usage: Usage | None) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "")}
        if calls:
            message["tool_calls"] = [_call_json(call) for call in calls]
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage_json(usage)}


def _call_json(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def usage_json(usage: Usage | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.input_total,
        "completion_tokens": usage.output,
        "total_tokens": usage.input_total + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _turn_problem(result: TurnResult) -> Problem:
    status = TURN_STATUS.get(result.error_code or "", 500)
    later = retry_after(result.retry_after_s)
    return Problem(status, "The turn failed", result.error or "", headers=later, extra={"code": result.error_code})


def error_body(problem: Problem) -> dict[str, Any]:
    """An error as OpenAI's clients read it."""
    kind, code = ERROR_KINDS.get(problem.status, ("invalid_request_error", None))
    if problem.status >= 500:
        kind = "server_error"
    place = problem.errors[0][0] if problem.errors else None
    code = problem.extra.get("code") or code
    return {"error": {"message": problem.detail, "type": kind, "param": place, "code": code}}


def error_answer(problem: Problem) -> web.Response:
    """What this surface does not honour is a bad request in the words of its clients."""
    return web.Response(
        status=400 if problem.status == 422 else problem.status,
        body=orjson.dumps(error_body(problem)),
        content_type="application/json",
        headers=dict(problem.headers),
    )
