"""Server-sent events out of bytes, wherever the bytes are cut."""

from __future__ import annotations

MAX_EVENT_BYTES = 16 * 1024 * 1024


class EventTooLong(Exception):
    """One event was longer than MAX_EVENT_BYTES."""


class EventParser:
    """Takes chunks, gives (event name, data). What is no event is kept: a whole reply may come instead of events."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._part_bytes = 0
        self._name = ""
        self._lines: list[bytes] = []
        self._foreign: list[bytes] = []
        self._seen = False

    def feed(self, chunk: bytes) -> list[tuple[str, bytes]]:
        """The events that are complete now. Raises EventTooLong."""
        self._parts.append(chunk)
        if b"\n" not in chunk:
            self._part_bytes += len(chunk)
            if self._part_bytes > MAX_EVENT_BYTES:
                raise EventTooLong
            return []
        *lines, rest = b"".join(self._parts).split(b"\n")
        self._parts = [rest]
        self._part_bytes = len(rest)
        events: list[tuple[str, bytes]] = []
        for line in lines:
            self._take(line.removesuffix(b"\r"), events)
        return events

    def _take(self, line: bytes, events: list[tuple[str, bytes]]) -> None:
        if line.startswith(b"data:"):
            self._lines.append(line[5:].removeprefix(b" "))
        elif not line:
            if self._lines:
                events.append((self._name, b"\n".join(self._lines)))
                self._seen = True
            self._name = ""
            self._lines = []
        elif line.startswith(b"event:"):
            self._name = line[6:].strip().decode("utf-8", "replace")
        elif not self._seen and not line.startswith((b":", b"id:", b"retry:")):
            self._foreign.append(line)

    def end(self) -> list[tuple[str, bytes]]:
        """At the end of the stream: a last event without its blank line."""
        return [(self._name, b"\n".join(self._lines))] if self._lines else []

    def foreign(self) -> bytes:
        """What came instead of events; empty when there were any."""
        return b"" if self._seen or self._lines else b"\n".join([*self._foreign, b"".join(self._parts)]).strip()
