"""Addresses as they are shown: without the passwords and keys that stand in them. Pure."""

from __future__ import annotations

import re
from typing import Any, cast

HIDDEN = "***"
KEY_LENGTH = 20
"""A part of a path that is so long, and no plain word, may be a key: those of Slack, Discord and Telegram are."""

_SIGN = "://"
_USER = re.compile(r"(://)[^\s/?#]*@")
_REST = re.compile(r"://([^\s\"'<>]+)")
_QUERY = re.compile(r"[?#].*")
_VALUE = re.compile(r"([?&;#])([^?&;#=]*=)?[^?&;#]+")
_PATH = re.compile(r"(?<=[^/:])/[^\s?#\"'<>]+")
_KINDS = tuple(re.compile(kind) for kind in ("[a-z]", "[A-Z]", "[0-9]"))


def masked(text: str) -> str:
    """A text; in every address inside it the user and password, and the values of the query, are stars."""
    if _SIGN not in text:
        return text
    return _REST.sub(lambda m: _SIGN + _QUERY.sub(_hidden_values, m[1]), _USER.sub(rf"\1{HIDDEN}@", text))


def masked_target(text: str) -> str:
    """Where something is delivered: parts of the path that look like keys are stars, too."""
    return _PATH.sub(lambda m: "/".join(_part(part) for part in m[0].split("/")), masked(text))


def masked_within(value: object) -> Any:
    """Every text in lists and dictionaries."""
    match value:
        case str():
            return masked(value)
        case dict():
            return {name: masked_within(one) for name, one in cast("dict[str, object]", value).items()}
        case list() | tuple():
            return [masked_within(one) for one in cast("list[object]", value)]
        case _:
            return value


def _hidden_values(query: re.Match[str]) -> str:
    return _VALUE.sub(lambda one: f"{one[1]}{one[2] or ''}{HIDDEN}", query[0])


def _part(part: str) -> str:
    looks_random = len(part) >= KEY_LENGTH and sum(kind.search(part) is not None for kind in _KINDS) > 1
    return HIDDEN if looks_random else part
