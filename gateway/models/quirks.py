"""What servers that are not quite OpenAI refuse, and how they are asked instead."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

_SYSTEM = ("system role not supported", "system role is not supported", "only user and assistant roles")
_NO_IMAGES = ("image_url", "image input", "support image", "multimodal", "vision", "content must be a string")
_ALTERNATE = ("roles must alternate", "must alternate between user", "alternating user", "consecutive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """How requests to one server are worded."""

    usage: bool = True
    limit: str = "max_tokens"
    schema: bool = True
    tool_choice: bool = True
    cache_key: bool = False
    breakpoints: bool = False
    plain_roles: bool = False
    images: bool = True

    def learn(self, status: int, text: str, *, images: bool = False) -> Quirks | None:
        """How to ask again after this refusal; None when it is about something else, or we have asked so already.

        `images`: whether there were any in the request.
        """
        if status not in (400, 404, 415, 422, 500, 501):
            return None
        lowered = text.lower()
        learnt = self
        if self.usage and ("stream_options" in lowered or "include_usage" in lowered):
            learnt = replace(learnt, usage=False)
        if self.limit == "max_tokens" and "max_completion_tokens" in lowered and "instead" in lowered:
            learnt = replace(learnt, limit="max_completion_tokens")
        elif self.limit == "max_completion_tokens" and _is_unknown_field(lowered, "max_completion_tokens"):
            learnt = replace(learnt, limit="max_tokens")
        if self.schema and ("response_format" in lowered or "json_schema" in lowered):
            learnt = replace(learnt, schema=False)
        if self.tool_choice and "tool_choice" in lowered:
            learnt = replace(learnt, tool_choice=False)
        if self.cache_key and "prompt_cache_key" in lowered:
            learnt = replace(learnt, cache_key=False)
        if self.breakpoints and ("prompt_cache_breakpoint" in lowered or "prompt_cache_options" in lowered):
            learnt = replace(learnt, breakpoints=False)
        if self.images and images and any(phrase in lowered for phrase in _NO_IMAGES):
            learnt = replace(learnt, images=False)
        if not self.plain_roles and any(phrase in lowered for phrase in (*_SYSTEM, *_ALTERNATE)):
            learnt = replace(learnt, plain_roles=True)
        return None if learnt == self else learnt


def _is_unknown_field(lowered: str, name: str) -> bool:
    return (
        name in lowered
        and "instead" not in lowered
        and any(w in lowered for w in ("unknown", "unrecognized", "extra", "unsupported", "not perm"))
    )


def plain_roles(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For chat templates that know no system role and want user and assistant by turns: texts are joined."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        role = "user" if message["role"] == "system" else message["role"]
        last = joined[-1] if joined else None
        texts = last is not None and isinstance(last.get("content"), str) and isinstance(message.get("content"), str)
        if last is not None and texts and last["role"] == role and role != "tool" and "tool_calls" not in last:
            joined[-1] = {**last, "content": f"{last['content']}\n\n{message['content']}"}
            if "tool_calls" in message:
                joined[-1]["tool_calls"] = message["tool_calls"]
        else:
            joined.append({**message, "role": role})
    return joined
