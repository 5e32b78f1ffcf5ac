"""A provider's prompt cache, as the stand-in keeps it: by what was really sent, block by block."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import orjson

MARKS = ("cache_control", "prompt_cache_breakpoint")


class PrefixCache:
    """Remembers every prefix it has seen, at the ends of its blocks; it forgets nothing until `clear`."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def clear(self) -> None:
        self._known.clear()

    def read(self, body: dict[str, Any]) -> tuple[int, int]:
        """(bytes of the prompt that were known, bytes of the whole prompt); from now on all of it is known."""
        digest, size, cached = b"", 0, 0
        for block in blocks_of(body):
            size += len(block)
            digest = blake2b(digest + block, digest_size=16).digest()
            if digest in self._known:
                cached = size
            self._known.add(digest)
        return cached, size


def blocks_of(body: dict[str, Any]) -> list[bytes]:
    """Tools, system text and messages in the order a provider reads them, without what only marks places."""
    system = body.get("system") or []
    parts: list[Any] = [*body.get("tools", ()), *([system] if isinstance(system, str) else system)]
    for message in body["messages"]:
        content = message.get("content")
        if isinstance(content, list):
            parts += [{"role": message["role"], **part} for part in content]
            rest = {name: value for name, value in message.items() if name != "content"}
            parts += [rest] if len(rest) > 1 else []
        else:
            parts.append(message)
    return [orjson.dumps(_plain(part)) for part in parts]


def _plain(part: Any) -> Any:
    return {k: v for k, v in part.items() if k not in MARKS} if isinstance(part, dict) else part
