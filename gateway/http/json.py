"""JSON at the edge: whatever arrives becomes clean values or a clear refusal, never a failure inside."""

from __future__ import annotations

import json
import math
import re
from codecs import BOM_UTF8
from typing import Any, cast

import orjson

MAX_DEPTH = 64
MIN_INTEGER = -(2**63)
MAX_INTEGER = 2**63 - 1
EXACT = 2**53
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class BadJson(ValueError):
    """A body that cannot be taken; the message says what is wrong."""


def parse_json(payload: bytes) -> Any:
    """The value of a JSON text.

    Lone surrogates become U+FFFD, and 3.0 the integer 3, which it is to JSON schemas. Refused with BadJson: NaN and
    infinities (also as 1e999), integers beyond 64 bits, duplicate names, names with NUL, nesting deeper than MAX_DEPTH,
    bytes that are not UTF-8.
    """
    try:
        text = payload.removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise BadJson(f"The body is not UTF-8 (byte {error.start}).") from error
    try:
        value = _DECODER.decode(text)
    except RecursionError as error:
        raise _too_deep() from error
    except json.JSONDecodeError as error:
        raise BadJson(f"The body is not JSON: {error}.") from error
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(value)
    return clean(value) if _SURROGATE_ESCAPE.search(text) else value


def _check_depth(value: Any) -> None:
    level = _containers([value])
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _containers(outer)]
        if not level:
            return
    raise _too_deep()


def _containers(outer: Any) -> list[Any]:
    inside = cast("dict[str, Any]", outer).values() if isinstance(outer, dict) else cast("list[Any]", outer)
    return [inner for inner in inside if isinstance(inner, list | dict)]


def _too_deep() -> BadJson:
    return BadJson(f"The body is nested deeper than {MAX_DEPTH} levels.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _twice([name for name, _ in pairs])
    for name in fields:
        if "\0" in name:
            raise BadJson(f"The name {shown(name)} holds the character U+0000.")
    return fields


def _twice(names: list[str]) -> BadJson:
    seen: set[str] = set()
    repeated = next(name for name in names if name in seen or seen.add(name))
    return BadJson(f"The name {shown(repeated)} stands twice in one object.")


def _constant(name: str) -> Any:
    raise BadJson(f"{name} is not a JSON number.")


def _integer(digits: str) -> int:
    value = int(digits) if len(digits) <= 20 else None
    if value is None or not MIN_INTEGER <= value <= MAX_INTEGER:
        raise BadJson(f"The number {shown(digits)} does not fit into 64 bits.")
    return value


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise BadJson(f"The number {shown(digits)} is too large.")
    return int(value) if value.is_integer() and abs(value) <= EXACT else value


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_float)


def shown(text: str) -> str:
    """A text as an error message may quote it: short, on one line, and with nothing that cannot be written."""
    return ascii(text if len(text) <= 60 else f"{text[:60]}...")


def clean_text(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD, so that it can be stored as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean(value: Any) -> Any:
    """The value with every text cleaned. Raises BadJson where that would make two names of an object equal."""
    match value:
        case str():
            return clean_text(value)
        case list():
            return [clean(item) for item in cast("list[Any]", value)]
        case dict():
            pairs = [(clean_text(name), clean(item)) for name, item in cast("dict[str, Any]", value).items()]
            return _object(pairs)
        case _:
            return value


def dump(value: Any) -> bytes:
    """The JSON text of an answer."""
    return orjson.dumps(value)
