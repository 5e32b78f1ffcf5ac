"""Reads a project of Engram through its published API, which has no cursor: in slices, each at most one answer long."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gateway.masking import masked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MOST = 100
"""Memories in one answer."""
MOST_WORDS = 3000
TRIES = 6
TIMEOUT_S = 60.0
LONGEST_WAIT_S = 60.0
PASSING = (429, 502, 503, 504)
WORD = re.compile(r"\w+")


class Refused(Exception):
    """A server that refuses; the message is what it says."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class JsonApi:
    """Requests and answers in JSON, on one connection; what passes by itself is tried again."""

    def __init__(self, url: str, token: str | None, sleep: Callable[[float], None] = time.sleep) -> None:
        self.url = url.rstrip("/")
        self._token = token
        self._sleep = sleep
        self._connection: http.client.HTTPConnection | None = None

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Raises Refused, and OSError when nobody answers."""
        for attempt in range(TRIES):
            last = attempt + 1 == TRIES
            try:
                status, content, wait_s = self._once(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if last:
                    raise OSError(f"{masked(self.url)} does not answer ({error or type(error).__name__})") from error
                self._sleep(min(0.2 * 2**attempt, LONGEST_WAIT_S))
                continue
            if status < 400:
                return json.loads(content) if content else None
            if last or status not in PASSING:
                raise Refused(status, _told(status, content))
            self._sleep(min(wait_s or 2**attempt, LONGEST_WAIT_S))
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, bytes, float]:
        parts = urlsplit(self.url)
        if self._connection is None:
            kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            self._connection = kind(parts.hostname or "127.0.0.1", parts.port, timeout=TIMEOUT_S)
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        self._connection.request(method, parts.path + path, None if body is None else json.dumps(body), headers)
        answer = self._connection.getresponse()
        after = answer.headers.get("Retry-After", "")
        return answer.status, answer.read(), float(after) if after.isdigit() else 0.0


def _told(status: int, content: bytes) -> str:
    try:
        fields = json.loads(content)
        return str(fields.get("detail") or fields.get("message") or f"it answered {status}")
    except (ValueError, AttributeError):
        return f"it answered {status}"


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a project: one topic, of one user (None: of all, or of nobody), in one scope."""

    group: str
    topic: str
    user: str | None
    scoped_by: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return json.dumps([self.group, self.topic, self.user, dict(self.properties)], ensure_ascii=False)

    @property
    def scope(self) -> dict[str, Any]:
        """As the API asks for it."""
        scope: dict[str, Any] = {"group": self.group, "topics": [self.topic]}
        if self.user is not None:
            scope["user_id"] = self.user
        if self.properties:
            scope["properties"] = dict(self.properties)
        return scope


class EngramSource:
    """Raises Refused and OSError."""

    def __init__(self, api: JsonApi) -> None:
        self._api = api

    def groups(self) -> list[dict[str, Any]]:
        return self._api.call("GET", "/v1/groups")["groups"] or []

    def read(self, part: Slice, most_words: int = MOST_WORDS) -> tuple[list[dict[str, Any]], bool]:
        """The memories of a slice, and whether these are surely all of them.

        What is longer than one answer is fetched without a limit, where the server allows that; else narrowed by
        the values of its properties, then searched by every word that was seen in it.
        """
        first = self._list(part)
        found = {memory["id"]: memory for memory in first}
        if len(first) < MOST:
            return list(found.values()), True
        unlimited = self._search(part, first[0]["content"][:100] or "x", "fetch", None)
        found |= {memory["id"]: memory for memory in unlimited}
        if len(unlimited) > MOST:
            return list(found.values()), True
        for narrower in _narrower(part, first):
            found |= {memory["id"]: memory for memory in self.read(narrower, most_words)[0]}
        whole = self._by_words(part, found, most_words)
        return list(found.values()), whole

    def _by_words(self, part: Slice, found: dict[str, dict[str, Any]], most: int) -> bool:
        """Adds what shares a word with what was found; whether every word was asked for, and answered in full."""
        waiting = deque(_words(found.values()))
        asked = set(waiting)
        whole = True
        while waiting and most > 0:
            most -= 1
            hits = self._search(part, waiting.popleft(), "bm25", MOST)
            whole = whole and len(hits) < MOST
            fresh = [memory for memory in hits if memory["id"] not in found]
            found |= {memory["id"]: memory for memory in fresh}
            new = [word for word in _words(fresh) if word not in asked]
            waiting.extend(new)
            asked |= set(new)
        return whole and not waiting

    def _list(self, part: Slice) -> list[dict[str, Any]]:
        return self._api.call("POST", "/v1/memories/list", {**part.scope, "limit": MOST})["memories"] or []

    def _search(self, part: Slice, query: str, kind: str, limit: int | None) -> list[dict[str, Any]]:
        retrieval = {"retrieval_type": kind, **({} if limit is None else {"limit": limit})}
        body = {**part.scope, "query": query, "retrieval_config": retrieval}
        try:
            return self._api.call("POST", "/v1/memories/search", body)["memories"] or []
        except Refused as refusal:
            if refusal.status == 401:
                raise
            return []


def slices_of(groups: Iterable[Mapping[str, Any]]) -> list[tuple[Slice, bool]]:
    """What there is to read: every topic of every group, and whether it belongs to users, who are still to be named."""
    out: list[tuple[Slice, bool]] = []
    for group in groups:
        for topic in group["topics"] or ():
            scoping = topic["scoping"]
            part = Slice(group["name"], topic["topic_name"], None, tuple(scoping.get("scope_properties") or ()))
            out.append((part, bool(scoping["user_scoped"])))
    return out


def _narrower(part: Slice, seen: Iterable[Mapping[str, Any]]) -> list[Slice]:
    """The same slice for each value of its next property that was seen."""
    fixed = dict(part.properties)
    name = next((one for one in part.scoped_by if one not in fixed), None)
    if name is None:
        return []
    values: dict[str, None] = {}
    for one in seen:
        properties: dict[str, str] = one.get("properties") or {}
        if name in properties:
            values[properties[name]] = None
    return [replace(part, properties=(*part.properties, (name, value))) for value in values]


def _words(memories: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(word for memory in memories for word in WORD.findall(memory["content"].casefold())))
