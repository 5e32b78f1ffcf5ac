"""A stand-in of a language model: speaks OpenAI Chat Completions and Anthropic Messages, with every fault on demand."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import orjson
from aiohttp import web

from tests.bench.prefix_cache import PrefixCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

HISTORY = 1000
_CALL = re.compile(r"(?:[^:\n]{1,64}: )?call:(?P<name>\S*) ?(?P<arguments>.*)", re.DOTALL)
"""As a user says it; in groups their name stands before it."""
BAD_ARGUMENTS = '{"timezone": "Europe/Pra'
TOO_LONG = "This model's maximum context length is {} tokens. However, your messages resulted in {} tokens."
OVERFLOW_TEXT = TOO_LONG.format(4000, 5120)
STATUSES = {
    "400": "Invalid value for 'messages'.",
    "401": "Incorrect API key provided.",
    "404": "The model does not exist.",
    "429": "Rate limit reached.",
    "500": "The server had an error.",
    "503": "Overloaded.",
    "overflow": OVERFLOW_TEXT,
}
HTML = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
FAULTS = (
    *STATUSES,
    *("slow", "hang", "hang_middle", "disconnect", "html", "html_502", "malformed", "malformed_body"),
    *("cut", "cut_clean", "cut_utf8", "empty_choices", "empty", "error_in_stream", "error_late"),
    *("no_usage", "broken_args", "long", "json_reply", "no_done", "no_stream_options", "no_images", "no_tool_choice"),
    *("length", "filter"),
    *("one_byte", "crlf", "comments", "usage_everywhere", "object_args", "nulls"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast the model is. With `token_ms` 0 all pieces of a reply are one write.

    `tokens`: length of a reply; None: it echoes what it was told.
    """

    first_token_ms: float = 0
    token_ms: float = 0
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def last_text(self) -> str:
        return next(_texts_of(self.body["messages"][-1]), "")


@dataclass(slots=True, kw_only=True)
class Answer:
    """What the model will say, before it is put into a dialect."""

    pieces: list[str] = field(default_factory=list[str])
    call: tuple[str, str] | None = None
    finish: str = "stop"
    prompt_tokens: int = 0
    cached_tokens: int = 0
    model: str = "stand-in"
    usage: bool = True
    fault: str = ""

    @property
    def output_tokens(self) -> int:
        return len(self.pieces) + (10 if self.call else 0)


class StandIn:
    """A running stand-in on a port of 127.0.0.1.

    A fault is asked for by `script`, by the header `x-standin`, by a model named `fault:NAME`, or by a user's text
    `fault:NAME`; `call:TOOL {json}` as the user's text makes it call that tool when it is offered, and `calls:` with
    lines of `TOOL {json}` makes it call one after the other.
    """

    def __init__(
        self,
        pace: Pace | None = None,
        *,
        slow_s: float = 0.5,
        cache: PrefixCache | None = None,
        window: int | None = None,
    ) -> None:
        """Without `cache` half of every prompt is said to be cached. `window`: a longer prompt is refused."""
        self._cache = cache
        self._window = window
        self._pace = pace or Pace()
        self._slow_s = slow_s
        self._scripted: deque[str] = deque()
        self._runner: web.AppRunner | None = None
        self.requests: deque[Recorded] = deque(maxlen=HISTORY)
        self.says: Callable[[dict[str, Any]], str] | None = None
        """What it answers to a body, where nothing else was asked for."""
        self.port = 0

    @property
    def base_url(self) -> str:
        """For OpenAI clients."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def anthropic_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def script(self, *faults: str) -> None:
        """Faults of the next requests, in order; "" is a healthy one. Comes before all other ways to ask."""
        self._scripted.extend(faults)

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=256 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._openai)
        app.router.add_post("/v1/messages", self._anthropic)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/requests", self._requests)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _models(self, _: web.Request) -> web.Response:
        return _json({"object": "list", "data": [{"id": "stand-in", "object": "model"}]})

    async def _requests(self, _: web.Request) -> web.Response:
        return _json([{"path": r.path, "headers": r.headers, "body": r.body} for r in self.requests])

    async def _openai(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, OpenAIDialect())

    async def _anthropic(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, AnthropicDialect())

    async def _serve(self, request: web.Request, dialect: Dialect) -> web.StreamResponse:
        raw = await request.read()
        body = orjson.loads(raw)
        self.requests.append(
            Recorded(
                path=request.path, headers={str(name): value for name, value in request.headers.items()}, body=body
            )
        )
        texts = list(_newest_texts(body["messages"]))
        fault = self._fault(request, body, texts)
        answer = self._answer(body, texts, fault, len(raw) // 4)
        if self._window is not None and answer.prompt_tokens > self._window:
            return _json(dialect.error(TOO_LONG.format(self._window, answer.prompt_tokens), 400), 400)
        answer.cached_tokens = answer.prompt_tokens // 2
        if self._cache is not None:
            cached, size = self._cache.read(body)
            answer.cached_tokens = answer.prompt_tokens * cached // max(1, size)
        early = await self._early(request, body, fault, dialect)
        if early is not None:
            return early
        if self._pace.first_token_ms:
            await asyncio.sleep(self._pace.first_token_ms / 1000)
        if not body.get("stream") or fault == "json_reply":
            return _json(dialect.whole(answer))
        asked = dialect.always_usage or "include_usage" in (body.get("stream_options") or ())
        answer.usage = asked and fault != "no_usage"
        return await self._stream(request, dialect.frames(answer), fault)

    def _fault(self, request: web.Request, body: dict[str, Any], texts: Sequence[str]) -> str:
        if self._scripted:
            return self._scripted.popleft()
        asked = (request.headers.get("x-standin", ""), body.get("model", ""), *texts)
        return next((text[6:].split()[0] for text in asked if text.startswith("fault:")), "")

    def _answer(self, body: dict[str, Any], texts: Sequence[str], fault: str, prompt_tokens: int) -> Answer:
        answer = Answer(prompt_tokens=prompt_tokens, model=body.get("model") or "stand-in", fault=fault)
        if fault in ("length", "filter"):
            answer.finish = fault
        may_call = body.get("tool_choice") not in ("none", {"type": "none"})
        offered = {_tool_name(tool) for tool in body.get("tools") or ()} if may_call else set[str]()
        asked = [*(call for text in texts if (call := _asked_call(text))), *_next_call(body["messages"])]
        answer.call = next((call for call in asked if call[0] in offered), None)
        if fault in ("broken_args", "object_args") and offered:
            answer.call = (min(offered), BAD_ARGUMENTS if fault == "broken_args" else '{"timezone":"UTC"}')
        if answer.call is not None:
            answer.finish = "tool_calls"
        elif fault == "long":
            answer.pieces = ["word "] * 200_000
        elif fault in ("cut_utf8", "one_byte"):
            answer.pieces = ["Příliš ", "žluťoučký ", "kůň ", "สวัสดี ", "你好 ", "🙂"]
        elif fault == "" and self.says is not None:
            answer.pieces = [self.says(body)]
        elif fault != "empty":
            words = f"echo: {texts[-1] if texts else ''}".split(" ")
            answer.pieces = ["word "] * self._pace.tokens if self._pace.tokens else [f"{word} " for word in words]
            answer.pieces[-1] = answer.pieces[-1].rstrip()
        return answer

    async def _early(
        self, request: web.Request, body: dict[str, Any], fault: str, dialect: Dialect
    ) -> web.StreamResponse | None:
        """Faults in place of a stream."""
        if fault in STATUSES:
            status = 400 if fault == "overflow" else int(fault)
            headers = {"Retry-After": "7"} if status in (429, 503) else None
            return _json(dialect.error(STATUSES[fault], status), status, headers)
        match fault:
            case "slow":
                await asyncio.sleep(self._slow_s)
            case "hang":
                await asyncio.sleep(3600)
            case "disconnect":
                _close(request)
                return web.Response()
            case "html":
                return web.Response(text=HTML, content_type="text/html")
            case "html_502":
                return web.Response(text=HTML, content_type="text/html", status=502)
            case "malformed_body":
                return web.Response(text='{"choices": [{"mess', content_type="application/json")
            case "no_stream_options" if "stream_options" in body:
                return _json(dialect.error("Unknown field: stream_options", 400), 400)
            case "no_tool_choice" if "tool_choice" in body:
                return _json(dialect.error("tool_choice is not supported.", 400), 400)
            case "no_images" if b'"image_url"' in orjson.dumps(body):
                return _json(dialect.error("image_url is only supported by certain models.", 400), 400)
            case _:
                pass
        return None

    async def _stream(self, request: web.Request, frames: list[bytes], fault: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            for write in _bent(frames, fault, together=not self._pace.token_ms):
                if self._pace.token_ms:
                    await asyncio.sleep(self._pace.token_ms / 1000)
                await response.write(write)
            if fault == "hang_middle":
                await asyncio.sleep(3600)
            if fault in ("cut", "cut_utf8"):
                _close(request)
            await response.write_eof()
        return response


def _bent(frames: list[bytes], fault: str, *, together: bool) -> Iterable[bytes]:
    """The writes of a stream, bent by the fault."""
    middle = max(1, len(frames) // 2)
    match fault:
        case "hang_middle" | "cut" | "cut_clean":
            return frames[:middle]
        case "cut_utf8":
            whole = b"".join(frames)
            return [whole[: whole.index("สวัสดี".encode()) + 4]]
        case "malformed":
            return [*frames[:middle], b'data: {"choices": [{"del\n\n']
        case "one_byte":
            return (frame[n : n + 1] for frame in frames for n in range(len(frame)))
        case "crlf":
            return [frame.replace(b"\n", b"\r\n") for frame in frames]
        case "comments":
            return [part for frame in frames for part in (b": keep-alive\n\n", frame, b"retry: 1000\n\n")]
        case _:
            return [b"".join(frames)] if together else frames


class Dialect:
    """How one API words an answer."""

    always_usage = False

    def frames(self, answer: Answer) -> list[bytes]:
        raise NotImplementedError

    def whole(self, answer: Answer) -> dict[str, Any]:
        raise NotImplementedError

    def error(self, text: str, status: int) -> dict[str, Any]:
        raise NotImplementedError


class OpenAIDialect(Dialect):
    def frames(self, answer: Answer) -> list[bytes]:
        return [*(_frame(chunk) for chunk in self._chunks(answer)), *self._end(answer)]

    def _chunks(self, answer: Answer) -> Iterator[dict[str, Any]]:
        extra: dict[str, Any] = {"usage": self._usage(answer)} if answer.fault == "usage_everywhere" else {}
        if answer.fault == "error_in_stream":
            yield self.error("The model crashed.", 500)
            return
        if answer.fault == "empty_choices":
            yield self._chunk(answer, [])
            return
        yield self._chunk(answer, [_choice({"role": "assistant", "content": ""})])
        for piece in answer.pieces:
            yield self._chunk(answer, [_choice({"content": piece})]) | extra
            if answer.fault == "error_late":
                yield self.error("The model crashed.", 500)
        if answer.call is not None:
            yield from (self._chunk(answer, [_choice({"tool_calls": [part]})]) for part in self._call(answer))
        if answer.fault == "nulls":
            nothing = {"content": None, "tool_calls": None, "role": None}
            yield {"choices": [_choice(nothing)], "usage": None, "error": None, "model": None}
        finish = {"filter": "content_filter"}.get(answer.finish, answer.finish)
        yield self._chunk(answer, [_choice({}, finish)]) | extra

    def _end(self, answer: Answer) -> Iterator[bytes]:
        if answer.usage:
            yield _frame(self._chunk(answer, []) | {"usage": self._usage(answer)})
        if answer.fault != "no_done":
            yield b"data: [DONE]\n\n"

    def _call(self, answer: Answer) -> Iterator[dict[str, Any]]:
        name, arguments = answer.call or ("", "")
        if answer.fault == "object_args":
            function: dict[str, Any] = {"name": name, "arguments": orjson.loads(arguments)}
            yield {"index": 0, "id": "call_1", "type": "function", "function": function}
            return
        yield {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}
        for start in range(0, len(arguments), 8):
            yield {"index": 0, "function": {"arguments": arguments[start : start + 8]}}

    def _chunk(self, answer: Answer, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": answer.model,
            "choices": choices,
        }

    def _usage(self, answer: Answer) -> dict[str, Any]:
        total = answer.prompt_tokens + answer.output_tokens
        return {
            "prompt_tokens": answer.prompt_tokens,
            "completion_tokens": answer.output_tokens,
            "total_tokens": total,
            "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": 1},
        }

    def whole(self, answer: Answer) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(answer.pieces) or None}
        if answer.call is not None:
            function = {"name": answer.call[0], "arguments": answer.call[1]}
            message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "finish_reason": answer.finish}
        whole = self._chunk(answer, [choice]) | {"object": "chat.completion", "usage": self._usage(answer)}
        return {name: value for name, value in whole.items() if name != "usage" or answer.usage}

    def error(self, text: str, status: int) -> dict[str, Any]:
        return {"error": {"message": text, "type": "error", "param": None, "code": status}}


class AnthropicDialect(Dialect):
    always_usage = True

    def frames(self, answer: Answer) -> list[bytes]:
        return [_frame(event, event["type"]) for event in self._events(answer)]

    def _events(self, answer: Answer) -> Iterator[dict[str, Any]]:
        if answer.fault == "error_in_stream":
            yield self.error("Overloaded", 529)
            return
        yield {"type": "message_start", "message": self._message(answer)}
        if answer.fault == "nulls":
            yield {"type": "ping"}
            yield {"type": "content_block_delta", "index": 0, "delta": None}
            yield {"type": "something_new", "value": None}
        if answer.pieces and answer.fault != "empty_choices":
            yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
            for piece in answer.pieces:
                delta = {"type": "text_delta", "text": piece}
                yield {"type": "content_block_delta", "index": 0, "delta": delta}
                if answer.fault == "error_late":
                    yield self.error("Overloaded", 529)
            yield {"type": "content_block_stop", "index": 0}
        if answer.call is not None:
            yield from self._call(*answer.call)
        yield {"type": "message_delta", "delta": {"stop_reason": self._finish(answer)}} | self._usage(answer)
        if answer.fault != "no_done":
            yield {"type": "message_stop"}

    def _call(self, name: str, arguments: str) -> Iterator[dict[str, Any]]:
        block: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
        yield {"type": "content_block_start", "index": 1, "content_block": block}
        for start in range(0, len(arguments), 8):
            delta = {"type": "input_json_delta", "partial_json": arguments[start : start + 8]}
            yield {"type": "content_block_delta", "index": 1, "delta": delta}
        yield {"type": "content_block_stop", "index": 1}

    def _usage(self, answer: Answer) -> dict[str, Any]:
        return {"usage": {"output_tokens": answer.output_tokens}} if answer.usage else {}

    def _finish(self, answer: Answer) -> str:
        names = {"stop": "end_turn", "length": "max_tokens", "filter": "refusal", "tool_calls": "tool_use"}
        return names[answer.finish]

    def _message(self, answer: Answer) -> dict[str, Any]:
        cached = answer.cached_tokens
        usage = {"input_tokens": answer.prompt_tokens - cached, "cache_read_input_tokens": cached, "output_tokens": 1}
        message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": answer.model}
        message |= {"content": [], "stop_reason": None}
        return message | {"usage": usage} if answer.usage else message

    def whole(self, answer: Answer) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if answer.pieces:
            content.append({"type": "text", "text": "".join(answer.pieces)})
        if answer.call is not None:
            name, arguments = answer.call
            content.append({"type": "tool_use", "id": "toolu_1", "name": name, "input": orjson.loads(arguments)})
        message = self._message(answer)
        message |= {"content": content, "stop_reason": self._finish(answer)}
        message["usage"] |= {"output_tokens": answer.output_tokens}
        return message

    def error(self, text: str, status: int) -> dict[str, Any]:
        kinds = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}
        kinds |= {429: "rate_limit_error", 529: "overloaded_error"}
        return {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": text}}


def _newest_texts(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Texts of the user's messages after the last reply, or the tool results that have come since."""
    newest: list[dict[str, Any]] = []
    for message in reversed(messages):
        if message["role"] == "assistant":
            break
        newest.append(message)
    for message in reversed(newest):
        yield from _texts_of(message)


def _texts_of(message: dict[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        yield content
        return
    for part in content or ():
        text = part.get("text") or part.get("content")
        if isinstance(text, str):
            yield text


def _asked_call(text: str) -> tuple[str, str] | None:
    found = _CALL.match(text)
    return None if found is None else (found["name"], found["arguments"] or "{}")


def _next_call(messages: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """The call that is due of those a user's text lists: one for each reply since."""
    replies = 0
    for message in reversed(messages):
        text = next(_texts_of(message), "")
        if message["role"] == "user" and text.startswith("calls:"):
            rows = text.splitlines()[1:]
            for row in rows[replies : replies + 1]:
                name, _, arguments = row.partition(" ")
                yield name, arguments or "{}"
            return
        replies += message["role"] == "assistant"


def _tool_name(tool: dict[str, Any]) -> str:
    return (tool.get("function") or tool)["name"]


def _choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish}


def _frame(event: dict[str, Any], name: str | None = None) -> bytes:
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + orjson.dumps(event) + b"\n\n"


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, headers=headers, content_type="application/json")


def _close(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()


async def serve(port: int, pace: Pace, *, cache: bool = False) -> None:
    """Until it is cancelled."""
    stand_in = StandIn(pace, cache=PrefixCache() if cache else None)
    await stand_in.start(port)
    print(stand_in.base_url, flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await stand_in.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: a free one, printed")
    parser.add_argument("--first-token-ms", type=float, default=0)
    parser.add_argument("--token-ms", type=float, default=0, help="0: the whole reply at once")
    parser.add_argument("--tokens", type=int, default=None, help="length of a reply; echoes when left out")
    parser.add_argument("--cache", action="store_true", help="report as cached what it was sent before")
    options = parser.parse_args()
    pace = Pace(first_token_ms=options.first_token_ms, token_ms=options.token_ms, tokens=options.tokens)
    import uvloop

    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(options.port, pace, cache=options.cache))


if __name__ == "__main__":
    main()
