"""Prompts as Anthropic Messages requests, with cache breakpoints (spec compaction.md, "Prompt layout and cache")."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import orjson

from gateway.models.openai_wire import in_words
from sessions.context import AssistantMessage, ToolMessage, UserMessage
from sessions.files import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from compaction.layout import Prompt
    from sessions.context import Message
    from sessions.entries import Attachment

IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


def render(prompt: Prompt, *, model: str, load_blob: Callable[[str], bytes], cache_ttl: str = "5m") -> dict[str, Any]:
    """`model`, `system`, `tools` and `messages` of a request; roles alternate.

    Breakpoints: behind the system text (and so the tools), the summary, and the newest message; the trailing block
    comes after the last one.
    """
    mark = {"type": "ephemeral"} if cache_ttl == "5m" else {"type": "ephemeral", "ttl": cache_ttl}
    turns: list[dict[str, Any]] = []
    if prompt.summary is not None:
        _add(turns, "user", [{"type": "text", "text": prompt.summary, "cache_control": mark}])
    for message in prompt.messages:
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        _add(turns, role, _blocks(message, load_blob))
    if turns and turns[-1]["content"]:
        turns[-1]["content"][-1] = {**turns[-1]["content"][-1], "cache_control": mark}
    if prompt.trailing is not None:
        _add(turns, "user", [{"type": "text", "text": prompt.trailing}])
    request: dict[str, Any] = {"model": model, "messages": turns}
    if prompt.system:
        request["system"] = [{"type": "text", "text": prompt.system, "cache_control": mark}]
    if prompt.tools:
        request["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
            for tool in prompt.tools
        ]
    return request


def _add(turns: list[dict[str, Any]], role: str, blocks: list[dict[str, Any]]) -> None:
    if not blocks:
        return
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"].extend(blocks)
    else:
        turns.append({"role": role, "content": blocks})


def _blocks(message: Message, load_blob: Callable[[str], bytes]) -> list[dict[str, Any]]:
    match message:
        case UserMessage():
            blocks = [_attachment(attachment, load_blob) for attachment in message.attachments]
            return [*blocks, *_text(message.text)]
        case AssistantMessage():
            uses = [
                {"type": "tool_use", "id": call.id, "name": call.name, "input": _arguments(call.arguments)}
                for call in message.calls
            ]
            return [*_text(message.text.rstrip()), *uses]
        case ToolMessage():
            result = {"type": "tool_result", "tool_use_id": message.call_id, "content": message.text or "(empty)"}
            return [{**result, "is_error": True} if message.is_error else result]


def _text(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _attachment(attachment: Attachment, load_blob: Callable[[str], bytes]) -> dict[str, Any]:
    if attachment.media_type in IMAGES:
        try:
            content = base64.b64encode(load_blob(attachment.sha256)).decode()
        except StorageError:
            return {"type": "text", "text": in_words(attachment)}
        source = {"type": "base64", "media_type": attachment.media_type, "data": content}
        return {"type": "image", "source": source}
    return {"type": "text", "text": in_words(attachment)}


def _arguments(raw: str) -> dict[str, Any]:
    """Arguments as an object; broken ones are shown as they came, since the provider takes objects only."""
    try:
        value = orjson.loads(raw or "{}")
    except orjson.JSONDecodeError:
        return {"unreadable": raw}
    return value if isinstance(value, dict) else {"value": value}
