"""What the index knows of one session, without opening its transcript."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from sessions.entries import EPOCH, EndReason, JsonObject, format_time, parse_time
from sessions.policy import LONGEST_MINUTES, QueueMode, ResetOverride

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
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
    """One session in the index. `active_at` is the last message from a person, `resumed_at` when it was last taken up
    again; `size` and `last_seq` tell how much of the current generation's transcript the numbers cover. `cost` is an
    exact decimal text, None while unknown. `context_tokens` is what the last call's prompt and reply came to, None when
    the next prompt is not made of them any more; `call` is what is kept of that call (gateway/calls.py)."""

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
    resumed_at: datetime | None = None
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
    call: list[Any] | None = None
    pinned: bool = False
    ended: EndReason | None = None
    previous: str | None = None
    settings: SessionSettings = field(default_factory=SessionSettings)
    extra: JsonObject = field(default_factory=dict[str, Any])


_FIRST = ("session", "active_at", "state", "key")
"""Written first, always, and in this order: the index reads them without decoding the rest."""

_FIELDS = {f.name: f for f in dataclasses.fields(SessionRecord) if f.name not in {"settings", "extra", *_FIRST}}
_TIMES = frozenset({"created_at", "resumed_at"})
_SESSION = re.compile(r"[0-9A-Za-z_-]{1,64}")


def record_to_json(record: SessionRecord) -> JsonObject:
    """The record's object; all but its first four fields are left out at their default."""
    out: JsonObject = {
        "session": record.session,
        "active_at": format_time(record.active_at),
        "state": record.state,
        "key": record.key,
    }
    for name, known in _FIELDS.items():
        value = getattr(record, name)
        if value != known.default:
            out[name] = format_time(value) if name in _TIMES else value
    settings = _settings_to_json(record.settings)
    if settings:
        out["settings"] = settings
    return {**out, **record.extra}


def record_from_json(raw: Mapping[str, Any]) -> SessionRecord:
    """Fields of a newer version are kept in `extra`. Raises ValueError, which says what is wrong."""
    given: JsonObject = {}
    extra: JsonObject = {}
    name = "settings"
    try:
        settings = _settings_from_json(raw.get("settings") or {})
        for name, value in raw.items():
            read = _READERS.get(name)
            if read is not None:
                given[name] = read(value)
            elif name != "settings":
                extra[name] = value
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"{name} of a session record cannot be {raw.get(name)!r:.60}") from error
    try:
        return SessionRecord(**given, settings=settings, extra=extra)
    except TypeError as error:
        raise ValueError(f"not a session record: {error}") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _optional_time(value: Any) -> datetime | None:
    return None if value is None else parse_time(value)


def _optional_text(value: Any) -> str | None:
    return None if value is None else _text(value)


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError
    return value


def _optional_count(value: Any) -> int | None:
    return None if value is None else _count(value)


def _session(value: Any) -> str:
    if not _SESSION.fullmatch(value):
        raise ValueError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _optional_object(value: Any) -> JsonObject | None:
    if value is not None and not isinstance(value, dict):
        raise TypeError
    return cast("JsonObject | None", value)


def _optional_list(value: Any) -> list[Any] | None:
    if value is not None and not isinstance(value, list):
        raise TypeError
    return cast("list[Any] | None", value)


def _word(known: frozenset[str]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if value not in known:
            raise ValueError
        return value

    return read


_READERS: dict[str, Callable[[Any], Any]] = {
    "session": _session,
    "key": _text,
    "agent": _text,
    "type": _word(frozenset({"main", "direct", "group", "channel", "sub", "cron", "hook"})),
    "state": _word(frozenset({"active", "former", "archived"})),
    "created_at": parse_time,
    "active_at": parse_time,
    "resumed_at": _optional_time,
    "pinned": _flag,
    "compaction": _optional_object,
    "call": _optional_list,
    **dict.fromkeys(("channel", "owner", "title", "cost", "ended", "previous"), _optional_text),
    **dict.fromkeys(("context_tokens", "window"), _optional_count),
    **dict.fromkeys(
        "generation entries messages last_seq size open_turns input_tokens output_tokens cache_read cache_write "
        "compactions".split(),
        _count,
    ),
}


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
    reset: JsonObject | None = raw.get("reset")
    if reset is not None and isinstance(reset.get("idle_minutes"), int):
        reset = {**reset, "idle_minutes": min(reset["idle_minutes"], LONGEST_MINUTES)}  # older versions took any number
    return SessionSettings(
        model=raw.get("model"),
        queue_mode=cast("QueueMode | None", raw.get("queue_mode")),
        reset=None if reset is None else ResetOverride.model_validate(reset),
        notes=bool(raw.get("notes", True)),
    )
