"""Prompts as OpenAI Chat Completions requests: the same prompt gives the same bytes."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, cast

import orjson

from gateway.models.call_ids import with_unique_ids
from sessions.context import AssistantMessage, ToolMessage, UserMessage
from sessions.files import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from compaction.layout import Prompt
    from sessions.context import Message
    from sessions.entries import Attachment


BREAKPOINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}


def render(
    prompt: Prompt, *, model: str, load_blob: Callable[[str], bytes], breakpoints: bool = False
) -> dict[str, Any]:
    """`model`, `messages` and `tools` of a request.

    The trailing block is a message of its own after the newest one, so that the bytes of the history do not change
    when it is gone in the next call. `breakpoints` marks the end of the system text, of the summary, and of every
    message that is not the model's: OpenAI looks for a known prefix at the marks of a request, the latest 80, and
    writes the latest four; so a mark must stay where it was.
    """
    messages: list[dict[str, Any]] = []
    if prompt.system:
        messages.append({"role": "system", "content": prompt.system})
    if prompt.summary:
        messages.append({"role": "user", "content": prompt.summary})
    messages.extend(_message(message, load_blob) for message in with_unique_ids(prompt.messages))
    if breakpoints:
        messages = [_marked(message) for message in messages]
    if prompt.trailing:
        messages.append({"role": "user", "content": prompt.trailing})
    request: dict[str, Any] = {"model": model, "messages": messages}
    if prompt.tools:
        request["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                },
            }
            for tool in prompt.tools
        ]
    return request


def _marked(message: dict[str, Any]) -> dict[str, Any]:
    """The message with a breakpoint at its end; the model's own cannot have one."""
    content = message["content"]
    if message["role"] == "assistant" or not content:
        return message
    parts: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**message, "content": [*parts[:-1], {**parts[-1], **BREAKPOINT}]}


def _message(message: Message, load_blob: Callable[[str], bytes]) -> dict[str, Any]:
    match message:
        case UserMessage():
            return {"role": "user", "content": _content(message, load_blob)}
        case AssistantMessage(calls=()):
            return {"role": "assistant", "content": message.text}
        case AssistantMessage():
            calls = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": _object_text(call.arguments)},
                }
                for call in message.calls
            ]
            return {"role": "assistant", "content": message.text or None, "tool_calls": calls}
        case ToolMessage():
            return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}


def _content(message: UserMessage, load_blob: Callable[[str], bytes]) -> str | list[dict[str, Any]]:
    """Text where there is nothing but text: many servers take no parts."""
    if not message.attachments:
        return message.text
    parts: list[dict[str, Any]] = [{"type": "text", "text": message.text}] if message.text else []
    for attachment in message.attachments:
        url = data_url(attachment, load_blob) if attachment.media_type.startswith("image/") else None
        if url is None:
            parts.append({"type": "text", "text": in_words(attachment)})
        else:
            parts.append({"type": "image_url", "image_url": {"url": url}})
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def data_url(attachment: Attachment, load_blob: Callable[[str], bytes]) -> str | None:
    """The file as a data URL; None when its bytes are gone."""
    try:
        content = load_blob(attachment.sha256)
    except StorageError:
        return None
    return f"data:{attachment.media_type};base64,{base64.b64encode(content).decode()}"


def has_files(prompt: Prompt) -> bool:
    """Whether rendering has to read files."""
    return any(isinstance(message, UserMessage) and message.attachments for message in prompt.messages)


def in_words(attachment: Attachment) -> str:
    """What a model that cannot take a file is told instead."""
    name = attachment.name or "a file"
    return f"[attached: {name}, {attachment.media_type}, {attachment.size_bytes} bytes; its content is not shown]"


def as_object(arguments: str) -> dict[str, Any]:
    """The arguments of a call; what is no object is shown as it came, since servers take objects only."""
    try:
        value: Any = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"unreadable": arguments}


def as_text(arguments: Any) -> str:
    """Arguments a server gave as an object, as the JSON text the API means."""
    return orjson.dumps(arguments).decode()


def _object_text(arguments: str) -> str:
    """The bytes the model wrote, unless they are no object: many servers parse them and refuse the whole prompt."""
    fields = as_object(arguments)
    return arguments if arguments and "unreadable" not in fields else json.dumps(fields, ensure_ascii=False)
