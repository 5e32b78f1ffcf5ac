"""Talks to a running daemon; only the standard library, so that a command starts at once."""

from __future__ import annotations

import http.client
import json
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from gateway.cli.output import FAILED, REFUSED, UNREACHABLE, fail

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_URL = "http://127.0.0.1:8420"
TIMEOUT_S = 3600


class Daemon:
    """The daemon at `url`; a token is taken from SESSIOND_TOKEN when none is given."""

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        self.url = (url or os.environ.get("SESSIOND_URL") or DEFAULT_URL).rstrip("/")
        self._token = token or os.environ.get("SESSIOND_TOKEN")

    def call(
        self, method: str, path: str, body: Any = None, *, query: dict[str, Any] | None = None, raw: bytes | None = None
    ) -> Any:
        """The JSON of an answer; ends the command with the problem's words when it is an error."""
        content = self._open(method, path, body, query, raw=raw).read()
        return json.loads(content) if content else None

    def text(self, method: str, path: str, *, query: dict[str, Any] | None = None) -> bytes:
        return self._open(method, path, None, query).read()

    def events(
        self, method: str, path: str, body: Any = None, *, after: str | None = None
    ) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """(id, name, fields) of each event of a stream."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
        response = self._open(method, path, body, None, headers)
        event_id, name = "", "message"
        for raw in response:
            line = raw.decode().rstrip("\r\n")
            field, _, value = line.partition(": ")
            if field == "id":
                event_id = value
            elif field == "event":
                name = value
            elif field == "data":
                yield event_id, name, json.loads(value)

    def reachable(self) -> bool:
        """Whether a daemon answers."""
        try:
            connection, prefix = self._connection(2)
            connection.request("GET", f"{prefix}/healthz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False

    def _connection(self, timeout_s: float) -> tuple[http.client.HTTPConnection, str]:
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname or "127.0.0.1", parts.port, timeout=timeout_s), parts.path

    def _open(
        self,
        method: str,
        path: str,
        body: Any,
        query: dict[str, Any] | None,
        headers: dict[str, str] | None = None,
        *,
        raw: bytes | None = None,
    ) -> http.client.HTTPResponse:
        connection, prefix = self._connection(TIMEOUT_S)
        sent = {"Content-Type": "application/json", **(headers or {})}
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = f"{prefix}{path}" + (f"?{urlencode(given)}" if given else "")
        payload = raw if raw is not None else None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, target, payload, sent)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            fail(f"No daemon answers at {self.url} ({error}). Start one with: sessiond serve", UNREACHABLE)
        if response.status >= 400:
            _refused(response)
        return response


def _refused(response: http.client.HTTPResponse) -> None:
    content = response.read()
    try:
        problem = json.loads(content)
        message = f"{problem['title']}: {problem['detail']}"
    except (ValueError, KeyError, TypeError):
        message = f"The daemon answered {response.status}."
    fail(message, FAILED if response.status >= 500 else REFUSED)


def key_path(key: str, rest: str = "") -> str:
    """The path of a session."""
    return f"/v1/sessions/{quote(key, safe=':')}{rest}"
