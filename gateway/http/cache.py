"""The cache explainer: what a session's model calls had in common, and why a provider's cache broke."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from gateway.http.routes import Route, json_answer
from gateway.http.sessions import opened
from sessions.entries import format_time

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.calls import LastCall
    from gateway.http.routes import Call
    from gateway.parts import Parts


class SectionView(BaseModel):
    """One section of the last prompt. `sha` is a short hash of ours; `tokens` are by our own count."""

    name: str
    bytes: int
    tokens: int
    sha: str


class CallView(BaseModel):
    """One model call beside the one before it; `cause` null: the cache held, or the provider does not say.

    `section` and `byte`: where the prompts first differ; `byte` is null when the earlier text is not in memory.
    """

    at: str
    model: str
    generation: int
    prompt_tokens: int
    shared_tokens: int
    cached_tokens: int
    written_tokens: int
    reported: bool
    cause: str | None
    section: str | None
    byte: int | None


class CacheView(BaseModel):
    """The newest calls last, up to 10 since the session was loaded; `sections` are those of the newest."""

    session: str
    sections: list[SectionView]
    last: CallView | None
    recent: list[CallView]
    causes: dict[str, int]


def call_view(call: LastCall) -> dict[str, Any]:
    return {
        "at": format_time(call.at),
        "model": call.model,
        "generation": call.generation,
        "prompt_tokens": call.input_tokens,
        "shared_tokens": call.shared_tokens,
        "cached_tokens": call.cached,
        "written_tokens": call.written,
        "reported": call.reported,
        "cause": call.cause,
        "section": call.section,
        "byte": call.byte,
    }


def sections_view(call: LastCall) -> list[dict[str, Any]]:
    outline = call.outline
    named = {
        "tools": outline.tools,
        "system": outline.system,
        "summary": outline.summary,
        "history": outline.history,
    }
    return [
        {"name": name, "bytes": mark.size_bytes, "tokens": mark.tokens, "sha": f"{mark.digest:016x}"}
        for name, mark in named.items()
    ]


def routes(parts: Parts) -> list[Route]:
    async def show(call: Call) -> web.Response:
        session = await opened(parts, call)
        recent = parts.calls.recent(session)
        return json_answer(
            {
                "session": session.id,
                "sections": sections_view(recent[-1]) if recent else [],
                "last": call_view(recent[-1]) if recent else None,
                "recent": [call_view(one) for one in recent],
                "causes": dict(Counter(one.cause for one in recent if one.cause is not None)),
            }
        )

    return [
        Route(
            method="GET",
            path="/v1/sessions/{key}/cache",
            endpoint=show,
            summary="What was read from the provider's cache, and why not more",
            tag="sessions",
            answers={200: CacheView},
        )
    ]
