"""What the index knows of one session, without opening its transcript."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from sessions.entries import EPOCH, EndReason, JsonObject, format_time, parse_time
from sessions.policy import QueueMode, ResetOverride

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sessions.keys import KeyType

SessionState = Literal["active", "former", "archived"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What a person has set for this chat; it outlives resets. None: as configured."""

    model: str | None = None
    queue_mode: QueueMode | None = None
    reset: ResetOverride | None = None
    notes: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """One session in the index. `active_at` is the last message from a person; `size` and `last_seq` tell how much of
    the current generation's transcript the numbers cover. `cost` is an exact decimal text, None while unknown."""

    session: str
    key: str
    agent: str
    type: KeyType
    channel: str | None = None
    owner: str | None = None
    state: SessionState = "active"
    generation: int = 1
    created_at: datetime = EPOCH
    active_at: datetime = EPOCH
    title: str | None = None
    entries: int = 0
    messages: int = 0
    last_seq: int = 0
    size: int = 0
    open_turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read: int = 0
    cache_write: int = 0
    context_tokens: int | None = None
    window: int | None = None
    cost: str | None = None
    compactions: int = 0
    compaction: JsonObject | None = None
    pinned: bool = False
    ended: EndReason | None = None
    previous: str | None = None
    settings: SessionSettings = field(default_factory=SessionSettings)
    extra: JsonObject = field(default_factory=dict[str, Any])


_FIELDS = {f.name: f for f in dataclasses.fields(SessionRecord) if f.name not in {"settings", "extra"}}
_TIMES = frozenset({"created_at", "active_at"})


def record_to_json(record: SessionRecord) -> JsonObject:
    """The record's object; what is at its default is left out."""
    out: JsonObject = {}
    for name, known in _FIELDS.items():
        value = getattr(record, name)
        if value != known.default:
            out[name] = format_time(value) if name in _TIMES else value
    settings = _settings_to_json(record.settings)
    if settings:
        out["settings"] = settings
    return {**out, **record.extra}


def record_from_json(raw: Mapping[str, Any]) -> SessionRecord:
    """Fields of a newer version are kept in `extra`. Raises ValueError."""
    try:
        given: JsonObject = {name: raw[name] for name in _FIELDS if name in raw}
        for name in _TIMES & given.keys():
            given[name] = parse_time(given[name])
        extra = {name: value for name, value in raw.items() if name not in _FIELDS and name != "settings"}
        settings = _settings_from_json(raw.get("settings") or {})
        return SessionRecord(**given, settings=settings, extra=extra)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a session record: {error}") from error


def _settings_to_json(settings: SessionSettings) -> JsonObject:
    out: JsonObject = {}
    if settings.model is not None:
        out["model"] = settings.model
    if settings.queue_mode is not None:
        out["queue_mode"] = settings.queue_mode
    if settings.reset is not None:
        out["reset"] = settings.reset.model_dump(exclude_unset=True)
    if not settings.notes:
        out["notes"] = False
    return out


def _settings_from_json(raw: Mapping[str, Any]) -> SessionSettings:
    reset = raw.get("reset")
    return SessionSettings(
        model=raw.get("model"),
        queue_mode=cast("QueueMode | None", raw.get("queue_mode")),
        reset=None if reset is None else ResetOverride.model_validate(reset),
        notes=bool(raw.get("notes", True)),
    )
