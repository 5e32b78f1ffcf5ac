"""Prompts as Anthropic Messages requests, with cache breakpoints (spec compaction.md, "Prompt layout and cache")."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

from gateway.models.call_ids import with_unique_ids
from gateway.models.openai_wire import as_object, in_words
from sessions.context import AssistantMessage, ToolMessage, UserMessage
from sessions.files import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from compaction.layout import Prompt
    from sessions.context import Message
    from sessions.entries import Attachment

IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
OPENING = "(The conversation begins with a message of the assistant.)"
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")


def render(prompt: Prompt, *, model: str, load_blob: Callable[[str], bytes], cache_ttl: str = "5m") -> dict[str, Any]:
    """`model`, `system`, `tools` and `messages` of a request; roles alternate and begin with the user's.

    Breakpoints, at most four: behind the system text (and so the tools; without one behind those), the summary, the
    newest user message, and the newest tool result where one came after it. The trailing block stands behind the last
    of them.
    """
    mark = {"type": "ephemeral"} if cache_ttl == "5m" else {"type": "ephemeral", "ttl": cache_ttl}
    turns: list[dict[str, Any]] = []
    if _is_text(prompt.summary):
        _add(turns, "user", [{"type": "text", "text": prompt.summary, "cache_control": mark}])
    messages = with_unique_ids(prompt.messages, lambda id_: _NOT_IN_IDS.sub("_", id_) or "call")
    newest = max((n for n, message in enumerate(messages) if isinstance(message, UserMessage)), default=-1)
    for position, message in enumerate(messages):
        blocks = _blocks(message, load_blob)
        if blocks and position in (newest, len(messages) - 1):
            blocks[-1]["cache_control"] = mark
        _add(turns, "assistant" if isinstance(message, AssistantMessage) else "user", blocks)
    if _is_text(prompt.trailing):
        _add(turns, "user", [{"type": "text", "text": prompt.trailing}])
    request: dict[str, Any] = {"model": model, "messages": turns}
    if _is_text(prompt.system):
        request["system"] = [{"type": "text", "text": prompt.system, "cache_control": mark}]
    if prompt.tools:
        request["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
            for tool in prompt.tools
        ]
        if "system" not in request:
            request["tools"][-1]["cache_control"] = mark
    return request


def _add(turns: list[dict[str, Any]], role: str, blocks: list[dict[str, Any]]) -> None:
    if not blocks:
        return
    if not turns and role == "assistant":
        turns.append({"role": "user", "content": [{"type": "text", "text": OPENING}]})
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"].extend(blocks)
    else:
        turns.append({"role": role, "content": blocks})


def _is_text(text: str | None) -> bool:
    """Anthropic refuses blocks that are empty or blank."""
    return text is not None and bool(text.strip())


def _blocks(message: Message, load_blob: Callable[[str], bytes]) -> list[dict[str, Any]]:
    match message:
        case UserMessage():
            blocks = [_attachment(attachment, load_blob) for attachment in message.attachments]
            return [*blocks, *_text(message.text)]
        case AssistantMessage():
            uses = [
                {"type": "tool_use", "id": call.id, "name": call.name, "input": as_object(call.arguments)}
                for call in message.calls
            ]
            return [*_text(message.text.rstrip()), *uses]
        case ToolMessage():
            result = {"type": "tool_result", "tool_use_id": message.call_id, "content": message.text or "(empty)"}
            return [{**result, "is_error": True} if message.is_error else result]


def _text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if _is_text(text) else []


def _attachment(attachment: Attachment, load_blob: Callable[[str], bytes]) -> dict[str, Any]:
    if attachment.media_type in IMAGES:
        try:
            content = base64.b64encode(load_blob(attachment.sha256)).decode()
        except StorageError:
            return {"type": "text", "text": in_words(attachment)}
        source = {"type": "base64", "media_type": attachment.media_type, "data": content}
        return {"type": "image", "source": source}
    return {"type": "text", "text": in_words(attachment)}
