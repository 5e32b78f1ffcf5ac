"""What the errors of providers mean: an outage, a bad request, or a prompt that is too long."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, cast

import orjson

from gateway.models.base import ContextOverflow, ModelRejected, ModelUnavailable
from gateway.models.overflow import read_overflow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.models.base import ModelError

OUTAGE = frozenset({402, 408, 409, 425, 429})
SHOWN = 300
_TITLE = re.compile(r"<title[^>]*>([^<]*)", re.IGNORECASE)
_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}


def error_of_status(name: str, status: int, text: str, headers: Mapping[str, str]) -> ModelError:
    """The ModelError of an HTTP answer. `name` is the model's name in the configuration."""
    shown = message_in(text)
    overflow = read_overflow(status, text)
    if overflow is not None:
        return ContextOverflow(
            f"The conversation is too long for {name}: {shown}", tokens=overflow.tokens, window=overflow.window
        )
    if status in OUTAGE or status >= 500:
        reason = "is rate limited" if status == 429 else f"answered {status}"
        return ModelUnavailable(f"{name} {reason}: {shown}", retry_after_s=retry_after(headers))
    if status in (401, 403):
        return ModelRejected(f"{name} refused the key ({status}): {shown} Check api_key or api_key_env.")
    if status == 404:
        return ModelRejected(f"{name}: not found (404): {shown} Check model and base_url.")
    return ModelRejected(f"{name} refused the request ({status}): {shown}")


def error_of_object(name: str, error: Any) -> ModelError:
    """The ModelError of an error object that came in place of a reply, or in the middle of one."""
    fields: dict[str, Any] = cast("dict[str, Any]", error) if isinstance(error, dict) else {"message": str(error)}
    codes = [fields.get(key) for key in ("code", "status", "status_code")]
    status = next((int(c) for c in codes if isinstance(c, int | str) and re.fullmatch(r"[45]\d\d", str(c))), None)
    if status is None:
        status = _STATUS_OF_TYPE.get(str(fields.get("type") or fields.get("code")), 500)
    return error_of_status(name, status, orjson.dumps({"error": fields}, default=str).decode(), {})


def message_in(text: str) -> str:
    """The sentence for people in an error's body, whatever form it has, on one line."""
    return " ".join(_message(text).split())[:SHOWN] or "no reason given."


def _message(text: str) -> str:
    try:
        found: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        title = _TITLE.search(text)
        return f"an HTML page, {title[1].strip()!r}" if title else text
    for _ in range(4):
        if isinstance(found, list) and found:
            found = cast("list[Any]", found)[0]
        if isinstance(found, dict):
            fields = cast("dict[str, Any]", found)
            found = next((fields[key] for key in ("error", "message", "detail", "msg") if fields.get(key)), text)
    return found if isinstance(found, str) else text


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait: `retry-after-ms`, or `Retry-After` in seconds or as a date, counted from the answer's own."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        return max(0.0, float(headers.get("retry-after", "")))
    except ValueError:
        return _until(headers.get("retry-after", ""), headers.get("date", ""))


def _until(then: str, now: str) -> float | None:
    try:
        return max(0.0, (parsedate_to_datetime(then) - parsedate_to_datetime(now)).total_seconds())
    except (ValueError, TypeError):
        return None
