"""JSON at the edge: whatever arrives becomes clean values or a clear refusal, never a failure inside."""

from __future__ import annotations

import json
from typing import Any, cast

import orjson

MAX_DEPTH = 64
MAX_INTEGER = 2**63 - 1


class BadJson(ValueError):
    """A body that cannot be taken; the message says what is wrong."""


def parse_json(payload: bytes) -> Any:
    """The value of a JSON text.

    Lone surrogates become U+FFFD. Refused with BadJson: NaN and infinities, integers beyond 64 bits, duplicate names,
    nesting deeper than MAX_DEPTH, bytes that are not UTF-8.
    """
    _check_depth(payload)
    try:
        text = payload.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadJson(f"The body is not UTF-8 (byte {error.start}).") from error
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadJson):
            raise
        raise BadJson(f"The body is not JSON: {error}.") from error
    return clean(value) if "\\u" in text else value


def _check_depth(payload: bytes) -> None:
    """Counts brackets outside strings; orjson and json would recurse."""
    if payload.count(b"[") + payload.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    in_string = escaped = False
    for byte in payload:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in (0x5B, 0x7B):
            depth += 1
            if depth > MAX_DEPTH:
                raise BadJson(f"The body is nested deeper than {MAX_DEPTH} levels.")
        elif byte in (0x5D, 0x7D):
            depth -= 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise BadJson(f"The name {twice!r} stands twice in one object.")
    return fields


def _constant(name: str) -> Any:
    raise BadJson(f"{name} is not a JSON number.")


def _integer(digits: str) -> int:
    if len(digits) > 20 or abs(int(digits)) > MAX_INTEGER:
        raise BadJson(f"The number {digits[:24]} does not fit into 64 bits.")
    return int(digits)


def clean_text(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD, so that it can be stored as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean(value: Any) -> Any:
    """The value with every text cleaned."""
    match value:
        case str():
            return clean_text(value)
        case list():
            return [clean(item) for item in cast("list[Any]", value)]
        case dict():
            return {clean_text(name): clean(item) for name, item in cast("dict[str, Any]", value).items()}
        case _:
            return value


def dump(value: Any) -> bytes:
    """The JSON text of an answer."""
    return orjson.dumps(value)
