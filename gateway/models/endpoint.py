"""One address of a provider: a request goes out, objects come back as they arrive, within the time limits."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

import aiohttp
import httpx2
import orjson

from gateway.models.base import ModelBroken, ModelUnavailable
from gateway.models.discovery import signed_in
from gateway.models.sse import EventParser, EventTooLong

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping

    from gateway.models.policy import TimeoutPolicy

Broken = (httpx2.HTTPError, httpx2.StreamError, aiohttp.ClientError, OSError)
T = TypeVar("T")

WHOLE = "whole"
END = "end"
MAX_ERROR_BYTES = 64 * 1024
DRAIN_S = 0.1
_QUIET = frozenset({"ping"})


class Refused(Exception):
    """An answer with an HTTP status other than 2xx."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str]) -> None:
        super().__init__(f"{status} {text[:100]}")
        self.status = status
        self.text = text
        self.headers = headers


class Endpoint:
    """Address, headers and connections are those of an SDK's client.

    Requests go straight to the HTTP client under the SDK: its own request builder and typed streams cost more
    processor time than everything else in a turn (README, "Speed").
    """

    def __init__(
        self, name: str, http: httpx2.AsyncClient, url: str, headers: Mapping[str, Any], timeouts: TimeoutPolicy
    ) -> None:
        url, signed = signed_in(url)
        self._name = name
        self._http = http
        self._url = url
        self._timeouts = timeouts
        self._template = http.build_request("POST", url, headers=_ours(headers) | signed)
        del self._template.headers["content-length"]

    async def events(
        self, body: Mapping[str, Any], begun: Callable[[], bool]
    ) -> AsyncGenerator[list[tuple[str, dict[str, Any]]], None]:
        """Batches of (event name, object), as they arrive together.

        `WHOLE` names a reply that came in one piece, `END` an explicit end. `begun` tells whether anything of the reply
        has come: until then `first_token_s` counts, afterwards `between_tokens_s`; pings count as silence.
        Raises Refused, ModelUnavailable, ModelBroken.
        """
        wait = _Wait(self._name, self._timeouts, asyncio.get_running_loop().time())
        async with self._open(body, wait) as response:
            parser = EventParser()
            async with aclosing(response.aiter_bytes()) as chunks:
                async for chunk in self._chunks(chunks, wait):
                    batch, failure = self._decode(self._feed(parser, chunk))
                    if batch:
                        yield batch
                        wait.heard(begun=begun())
                    if failure is not None:
                        raise failure
                    if batch and batch[-1][0] == END:
                        await _drain(chunks)
                        return
            last, _ = self._decode(parser.end())
            if foreign := parser.foreign():
                last.append((WHOLE, self._object(foreign)))
            if last:
                yield last

    @asynccontextmanager
    async def _open(self, body: Mapping[str, Any], wait: _Wait) -> AsyncGenerator[httpx2.Response, None]:
        content = dump(body)
        response = await self._send(content, wait)
        try:
            if response.status_code // 100 != 2:
                raise Refused(response.status_code, await _error_text(response, wait), response.headers)
            yield response
        finally:
            with suppress(*Broken):
                await response.aclose()

    async def _send(self, content: bytes, wait: _Wait) -> httpx2.Response:
        """A connection the server closed while it was idle shows only now: then once more, on a new one."""
        try:
            try:
                return await wait.for_(self._once(content))
            except Broken as error:
                if not isinstance(_innermost(error), ConnectionResetError | aiohttp.ServerDisconnectedError):
                    raise
                return await wait.for_(self._once(content))
        except Broken as error:
            raise ModelUnavailable(f"{self._name} cannot be reached at {self._url}: {_reason(error)}.") from error

    async def _once(self, content: bytes) -> httpx2.Response:
        like = self._template
        request = httpx2.Request("POST", like.url, headers=like.headers, content=content, extensions=like.extensions)
        return await self._http.send(request, stream=True)

    async def _chunks(self, chunks: AsyncIterator[bytes], wait: _Wait) -> AsyncIterator[bytes]:
        while True:
            try:
                chunk = await wait.for_(anext(chunks, None))
            except Broken as error:
                raise ModelBroken(f"The stream of {self._name} broke: {_reason(error)}.") from error
            if chunk is None:
                return
            yield chunk

    def _feed(self, parser: EventParser, chunk: bytes) -> list[tuple[str, bytes]]:
        try:
            return parser.feed(chunk)
        except EventTooLong as error:
            raise ModelBroken(f"{self._name} sent a line without an end.") from error

    def _decode(self, events: list[tuple[str, bytes]]) -> tuple[list[tuple[str, dict[str, Any]]], ModelBroken | None]:
        """The objects, and the error of the first that is none: those before it count all the same."""
        told: list[tuple[str, bytes]] = []
        ended = False
        for name, payload in events:
            if payload.strip() == b"[DONE]":
                ended = True
                break
            if name not in _QUIET:
                told.append((name, payload))
        batch, failure = self._objects(told)
        if ended and failure is None:
            batch.append((END, {}))
        return batch, failure

    def _objects(self, told: list[tuple[str, bytes]]) -> tuple[list[tuple[str, dict[str, Any]]], ModelBroken | None]:
        """What arrives together is read together, which takes a third of the time; one by one when that fails."""
        try:
            values = cast("list[Any]", orjson.loads(b"[%b]" % b",".join([payload for _, payload in told])))
        except orjson.JSONDecodeError:
            values = []
        if len(values) == len(told) and all(isinstance(value, dict) for value in values):
            return [(name, value) for (name, _), value in zip(told, values, strict=True)], None
        batch: list[tuple[str, dict[str, Any]]] = []
        for name, payload in told:
            try:
                batch.append((name, self._object(payload)))
            except ModelBroken as error:
                return batch, error
        return batch, None

    def _object(self, payload: bytes) -> dict[str, Any]:
        """Raises ModelBroken with the beginning of what came instead."""
        try:
            value = _load(payload)
        except (ValueError, RecursionError) as error:
            shown = payload[:120].decode("utf-8", "replace")
            raise ModelBroken(f"{self._name} sent something that is not JSON: {shown!r}. Check base_url.") from error
        if not isinstance(value, dict):
            raise ModelBroken(f"{self._name} sent JSON that is not an object.")
        return cast("dict[str, Any]", value)


class _Wait:
    """How long to wait for the next thing. The limits hold for our waiting only, never for what others do meanwhile."""

    def __init__(self, name: str, timeouts: TimeoutPolicy, now: float) -> None:
        self._name = name
        self._timeouts = timeouts
        self._end = now + timeouts.total_s
        self._until = now + timeouts.first_token_s
        self._limit_s = timeouts.first_token_s

    def heard(self, *, begun: bool) -> None:
        """Something came; once the reply has begun the next piece gets its own time."""
        if begun:
            self._limit_s = self._timeouts.between_tokens_s
            self._until = asyncio.get_running_loop().time() + self._limit_s

    async def for_(self, awaitable: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout_at(min(self._until, self._end)):
                return await awaitable
        except TimeoutError as error:
            if self._until <= self._end:
                raise ModelUnavailable(f"{self._name} sent nothing for {self._limit_s:g} s.") from error
            raise ModelUnavailable(f"{self._name} took longer than {self._timeouts.total_s:g} s.") from error


def _ours(headers: Mapping[str, Any]) -> dict[str, str]:
    """What authenticates and describes the request. What the SDK tells about this machine is left out."""
    return {
        key: value
        for key, value in headers.items()
        if isinstance(value, str) and not key.lower().startswith("x-stainless")
    }


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Reads to the end of the answer, so that its connection can be used again."""
    with suppress(TimeoutError, *Broken):
        async with asyncio.timeout(DRAIN_S):
            async for _ in chunks:
                pass


async def _error_text(response: httpx2.Response, wait: _Wait) -> str:
    content = bytearray()
    with suppress(*Broken):
        async with aclosing(response.aiter_bytes()) as chunks:
            while len(content) < MAX_ERROR_BYTES and (chunk := await wait.for_(anext(chunks, b""))):
                content += chunk
    return content.decode("utf-8", "replace")


def dump(body: Mapping[str, Any]) -> bytes:
    """JSON; what orjson refuses (70-bit integers, lone surrogates) goes the slow way, surrogates replaced."""
    try:
        return orjson.dumps(body)
    except TypeError:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _load(payload: bytes) -> Any:
    """JSON, also with half a surrogate pair, which orjson refuses: the other half comes with the next piece."""
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        return json.loads(payload)


def _innermost(error: BaseException) -> BaseException:
    """ "Connection refused" is wrapped several times."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _reason(error: BaseException) -> str:
    inner = _innermost(error)
    return str(inner).rstrip(".") or type(inner).__name__
