"""What both SDK adapters share: reading event streams, and what an HTTP error means."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import orjson

from gateway.models.base import ContextOverflow, ModelBroken, ModelError, ModelRejected, ModelUnavailable
from gateway.models.overflow import read_overflow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from gateway.models.policy import TimeoutPolicy

OUTAGE = frozenset({402, 408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
MAX_LINE = 16 * 1024 * 1024


def error_of(name: str, status: int | None, text: str, headers: Mapping[str, str] | None = None) -> ModelError:
    """The ModelError an HTTP error means. `name` is the model's name in the configuration."""
    shown = " ".join(text.split())[:300]
    overflow = read_overflow(status, text)
    if overflow is not None:
        return ContextOverflow(
            f"The conversation is too long for {name}: {shown}", tokens=overflow.tokens, window=overflow.window
        )
    if status is None or status in OUTAGE or status >= 500:
        wait = _retry_after(headers or {})
        reason = "is rate limited" if status == 429 else f"answered {status}" if status else "reported an error"
        return ModelUnavailable(f"{name} {reason}: {shown}", retry_after_s=wait)
    if status in (401, 403):
        return ModelRejected(f"{name} refused the key ({status}): {shown} Check api_key or api_key_env.")
    if status == 404:
        return ModelRejected(f"{name}: not found ({status}): {shown} Check model and base_url.")
    return ModelRejected(f"{name} refused the request ({status}): {shown}")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        return max(0.0, float(headers.get("retry-after", "")))
    except ValueError:
        return None


@asynccontextmanager
async def model_errors(
    name: str, shown: list[str], total_s: float, unreachable: type[Exception]
) -> AsyncIterator[None]:
    """Turns whatever a call may raise into a ModelError that carries what was already shown."""
    try:
        async with asyncio.timeout(total_s):
            yield
    except ModelError as error:
        error.partial = "".join(shown)
        raise
    except TimeoutError as error:
        raise ModelUnavailable(f"{name} took longer than {total_s:g} s.", partial="".join(shown)) from error
    except unreachable as error:
        raise ModelUnavailable(f"{name} cannot be reached: {_cause(error)}", partial="".join(shown)) from error
    except Exception as error:
        if not isinstance(error, OSError) and not type(error).__module__.startswith(("httpx", "httpcore", "aiohttp")):
            raise
        raise ModelBroken(f"The stream of {name} broke ({_cause(error)}).", partial="".join(shown)) from error


def _cause(error: Exception) -> str:
    """The innermost reason: SDKs wrap "connection refused" several times."""
    inner: BaseException = error
    while inner.__cause__ is not None:
        inner = inner.__cause__
    return str(inner) or type(inner).__name__


async def read_events(
    chunks: AsyncIterator[bytes], name: str, timeouts: TimeoutPolicy
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """(event name, object) of each server-sent event; ends at `[DONE]` or with the stream.

    Raises ModelUnavailable when nothing comes in time, ModelBroken for a line that is not JSON.
    """
    buffer = b""
    event = ""
    limit = timeouts.first_token_s
    while True:
        try:
            async with asyncio.timeout(limit):
                chunk = await anext(chunks, None)
        except TimeoutError as error:
            raise ModelUnavailable(f"{name} sent nothing for {limit:g} s.") from error
        if chunk is None:
            return
        limit = timeouts.between_tokens_s
        buffer += chunk
        if b"\n" not in chunk:
            if len(buffer) > MAX_LINE:
                raise ModelBroken(f"{name} sent a line of more than {MAX_LINE} bytes.")
            continue
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            line = line.rstrip(b"\r")
            if line.startswith(b"event:"):
                event = line[6:].strip().decode("utf-8", "replace")
            elif line.startswith(b"data:"):
                payload = line[5:].strip()
                if payload == b"[DONE]":
                    yield "done", {}
                    return
                yield event, parse_object(payload, name)
                event = ""


def parse_object(payload: bytes, name: str) -> dict[str, Any]:
    """Raises ModelBroken, with the beginning of what came instead."""
    try:
        value = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        shown = payload[:120].decode("utf-8", "replace")
        raise ModelBroken(f"{name} sent something that is not JSON: {shown!r}") from error
    if not isinstance(value, dict):
        raise ModelBroken(f"{name} sent JSON that is not an object.")
    return cast("dict[str, Any]", value)


def number(value: Any) -> int:
    """A token count of a provider; anything that is none counts as 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def text_of(value: Any) -> str:
    """A text of a provider, free of lone surrogates; anything else is no text."""
    if not isinstance(value, str):
        return ""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _odd(value) else value


def _odd(value: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in value)
