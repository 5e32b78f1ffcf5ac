"""Settings of sessions, queues and turns, with their defaults."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from sessions.keys import DirectScope, KeyType, MalformedKey, clean_id

LONGEST_DAYS = 3660
LONGEST_MINUTES = LONGEST_DAYS * 24 * 60
QueueMode = Literal["followup", "collect", "steer", "interrupt"]
_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


@cache
def _zones() -> set[str]:
    """Looks through some hundreds of files."""
    return available_timezones()


def _check_zone(name: str | None) -> str | None:
    if name is not None and name not in _zones():
        raise ValueError(f"{name!r} is no IANA time zone, such as Europe/Prague")
    return name


def _check_daily(text: str | None) -> str | None:
    if text is not None and not _CLOCK.fullmatch(text):
        raise ValueError(f'{text!r} is no time of day, such as "04:00" (in quotes)')
    return text


def _check_identities(identities: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The same in NFC, as keys are; nobody's id belongs to two persons."""
    checked = {
        _clean(name, name): tuple(_alias(name, alias) for alias in aliases) for name, aliases in identities.items()
    }
    person_of: dict[str, str] = {}
    for name, aliases in checked.items():
        for alias in aliases:
            if (other := person_of.setdefault(alias, name)) != name:
                raise ValueError(f"{alias!r} is listed for {other!r} and for {name!r}; an id belongs to one person")
    return checked


def _alias(name: str, alias: str) -> str:
    channel, colon, peer = alias.partition(":")
    if not colon:
        raise ValueError(f"{alias!r} of {name!r} is no channel and id, such as telegram:123")
    return f"{_clean(name, channel)}:{_clean(name, peer)}"


def _clean(name: str, raw: str) -> str:
    try:
        return clean_id(f"identity {name!r}", raw)
    except MalformedKey as error:
        raise ValueError(f"{raw!r} of {name!r} {error.why}") from error


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


Composed = Annotated[str, AfterValidator(_composed)]
"""An id in the form keys have: the same person, however the accents were written."""
ZoneName = Annotated[str | None, AfterValidator(_check_zone)]
DailyAt = Annotated[str | None, AfterValidator(_check_daily)]


class Policy(BaseModel):
    """Base of all settings: frozen, and unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ResetOverride(Policy):
    """Reset settings of one session type, channel or session; what is left out is inherited."""

    daily_at: DailyAt = Field(default=None, description="Local time of the daily reset; null switches it off.")
    idle_minutes: Annotated[int, Field(ge=1, le=LONGEST_MINUTES)] | None = Field(
        default=None, description="Minutes without a message from a person; null switches the idle reset off."
    )


class ResetPolicy(Policy):
    """When a session ends by itself (spec sessions.md, "Resets")."""

    daily_at: DailyAt = Field(default="04:00", description="Local time of the daily reset; null: off.")
    timezone: ZoneName = Field(default=None, description="IANA zone of daily_at; null: the machine's zone.")
    idle_minutes: Annotated[int, Field(ge=1, le=LONGEST_MINUTES)] | None = Field(
        default=None, description="Minutes without a message from a person after which a session ends; null: off."
    )
    quiet_minutes: Annotated[int, Field(ge=0, le=LONGEST_MINUTES)] = Field(
        default=30, description="A daily reset waits until nobody wrote for this many minutes."
    )
    by_type: dict[KeyType, ResetOverride] = Field(
        default_factory=dict,
        description="Other settings by session type (main, direct, group, channel, sub, cron, hook).",
    )
    by_channel: dict[str, ResetOverride] = Field(default_factory=dict, description="Other settings by channel.")

    def zone(self, machine_zone: ZoneInfo) -> ZoneInfo:
        return machine_zone if self.timezone is None else ZoneInfo(self.timezone)


class SessionsPolicy(Policy):
    """Where messages go and how they are kept."""

    direct_scope: DirectScope = Field(
        default="per_channel_peer",
        description="Which private chats share a session: main (all of an agent; only for a single owner), per_peer, "
        "per_channel_peer.",
    )
    identities: Annotated[dict[str, tuple[str, ...]], AfterValidator(_check_identities)] = Field(
        default_factory=dict, description="One person's ids across channels, as in `ana: [telegram:123, slack:U9]`."
    )
    durability: Literal["fsync", "flush"] = Field(
        default="fsync", description="fsync: on disk before it is acknowledged; flush: the system decides when."
    )
    cache_bytes: Annotated[int, Field(ge=0)] = Field(
        default=128 * 1024 * 1024,
        description="Memory for sessions in use, in bytes: about twice what their transcripts take on disk.",
    )
    max_attachments: Annotated[int, Field(ge=0)] = Field(default=10, description="Attachments of one message.")
    max_attachment_bytes: Annotated[int, Field(ge=1)] = Field(
        default=6 * 1024 * 1024, description="Size of one attachment, in bytes."
    )
    reset: ResetPolicy = Field(default_factory=ResetPolicy, description="When a session ends by itself.")


class CleanupPolicy(Policy):
    """What becomes of sessions that are not used any more (spec sessions.md, "Clean-up").

    What runs, pinned sessions and those of type main are never touched.
    """

    after_days: Annotated[int, Field(ge=1, le=LONGEST_DAYS)] | None = Field(
        default=30,
        description="Days without use after which a session is archived: packed, out of the list, still readable, "
        "searchable and restorable; null: never.",
    )
    delete_after_days: Annotated[int, Field(ge=1, le=LONGEST_DAYS)] | None = Field(
        default=None, description="Days without use after which an archive is deleted for good; null: never."
    )
    max_bytes: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="Bytes that transcripts and attachments may take; beyond, what is unused for longest is archived, "
        "then the oldest archives are deleted; null: no limit.",
    )
    daily_at: DailyAt = Field(
        default="03:30",
        description="Local time of the daily clean-up, in the zone of sessions.reset; null: only by hand.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> CleanupPolicy:
        if self.after_days is not None and (self.delete_after_days or self.after_days) < self.after_days:
            raise ValueError("delete_after_days must not be less than after_days: sessions are archived first")
        return self


class QueuePolicy(Policy):
    """What happens to a message that arrives while a turn runs (spec sessions.md, "Turns and queues")."""

    mode: QueueMode = Field(
        default="followup",
        description="followup: next turn, in order; collect: all waiting ones of one speaker become one turn; "
        "steer: shown at the next tool boundary; interrupt: the running turn is stopped.",
    )
    by_channel: dict[str, QueueMode] = Field(default_factory=dict, description="Other modes by channel.")
    cap: Annotated[int, Field(ge=1, le=1000)] = Field(default=20, description="Messages that may wait in one session.")
    debounce_ms: Annotated[int, Field(ge=0, le=60_000)] = Field(
        default=1000, description="collect: how long to wait for further messages, in milliseconds."
    )


class TurnPolicy(Policy):
    """Limits of one turn."""

    max_tool_rounds: Annotated[int, Field(ge=1, le=200)] = Field(
        default=20, description="Model calls with tool results in one turn; then the model must answer."
    )
    tools_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.1,
        description="Part of the model's window built-in tools may take; in a small one the first of them are offered. "
        "Those an agent names are always offered.",
    )
    tool_timeout_s: Annotated[float, Field(gt=0)] = Field(default=60, description="Limit of one built-in tool call.")
    max_attempts: Annotated[int, Field(ge=1, le=20)] = Field(
        default=3, description="How often a turn cut by a crash is generated before it is marked failed."
    )
    max_parallel: Annotated[int, Field(ge=1)] = Field(default=64, description="Model calls at the same time.")
    kept_turns: Annotated[int, Field(ge=0)] = Field(
        default=1000, description="Finished turns whose events can still be replayed."
    )
