"""Talks to a running daemon; only the standard library, so that a command starts at once."""

from __future__ import annotations

import http.client
import json
import os
from typing import IO, TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, urlencode, urlsplit

from gateway.cli.output import FAILED, REFUSED, UNREACHABLE, fail
from gateway.masking import masked

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_URL = "http://127.0.0.1:8420"
TIMEOUT_S = 3600
PIECE = 1024 * 1024


class Daemon:
    """The daemon at `url`, else at SESSIOND_URL. The token comes from SESSIOND_TOKEN only: arguments can be read by
    everybody on the machine.
    """

    def __init__(self, url: str | None = None) -> None:
        self.url = (url or os.environ.get("SESSIOND_URL") or DEFAULT_URL).rstrip("/")
        self.shown = masked(self.url)
        self._token = os.environ.get("SESSIOND_TOKEN")

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: dict[str, Any] | None = None,
        raw: bytes | IO[bytes] | None = None,
        media_type: str = "application/json",
    ) -> Any:
        """The JSON of an answer; ends the command with the problem's words when it is an error. `raw`: a body that is
        sent as it is, piece by piece where it is a file."""
        content = self._read(method, path, body, query, raw=raw, media_type=media_type)
        return json.loads(content) if content else None

    def text(self, method: str, path: str, *, query: dict[str, Any] | None = None) -> bytes:
        return self._read(method, path, None, query)

    def download(self, path: str, into: IO[bytes], *, query: dict[str, Any] | None = None) -> int:
        """Writes an answer of any length to a file; says how many bytes. Raises OSError when that cannot be written."""
        try:
            response = self._request("GET", path, None, query)
        except (OSError, http.client.HTTPException) as error:
            self.unreachable(error)
        size = 0
        while piece := self._piece(response):
            into.write(piece)
            size += len(piece)
        return size

    def _piece(self, response: http.client.HTTPResponse) -> bytes:
        try:
            piece = response.read(PIECE)
            if not piece and response.length:
                raise http.client.IncompleteRead(piece, response.length)
        except (OSError, http.client.HTTPException) as error:
            fail(f"The answer broke off ({error!r}); nothing is complete. Try again.", UNREACHABLE)
        return piece

    def events(
        self, method: str, path: str, body: Any = None, *, after: str | None = None
    ) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """(id, name, fields) of each event of a stream. Raises OSError when the daemon is away or the stream breaks."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
        try:
            yield from _events_of(self._request(method, path, body, None, headers))
        except http.client.HTTPException as error:
            raise ConnectionError(f"the stream broke: {error!r}") from error

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

    def unreachable(self, error: Exception) -> NoReturn:
        """Ends the command: nobody answers."""
        fail(f"No daemon answers at {self.shown} ({error}). Start one with: sessiond serve", UNREACHABLE)

    def _read(
        self,
        method: str,
        path: str,
        body: Any,
        query: dict[str, Any] | None,
        *,
        raw: bytes | IO[bytes] | None = None,
        media_type: str = "application/json",
    ) -> bytes:
        try:
            return self._request(method, path, body, query, {"Content-Type": media_type}, raw=raw).read()
        except (OSError, http.client.HTTPException) as error:
            self.unreachable(error)

    def _request(
        self,
        method: str,
        path: str,
        body: Any,
        query: dict[str, Any] | None,
        headers: dict[str, str] | None = None,
        *,
        raw: bytes | IO[bytes] | None = None,
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
        except (BrokenPipeError, ConnectionResetError):
            if raw is None:
                raise
            # a long body is refused before its end: the answer says why
        response = connection.getresponse()
        if response.status >= 400:
            _refused(response)
        return response


def _events_of(response: http.client.HTTPResponse) -> Iterator[tuple[str, str, dict[str, Any]]]:
    event_id, name = "", "message"
    for raw in response:
        field, _, value = raw.decode().rstrip("\r\n").partition(": ")
        if field == "id":
            event_id = value
        elif field == "event":
            name = value
        elif field == "data":
            yield event_id, name, json.loads(value)


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
