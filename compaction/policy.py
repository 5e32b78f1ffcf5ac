"""Settings of compaction, with their defaults."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from compaction.layout import CacheLayout
from sessions.policy import Policy

Share = Annotated[float, Field(gt=0, lt=1)]


class CompactionPolicy(Policy):
    """When a conversation is summarised, and what stays word for word (spec compaction.md)."""

    enabled: bool = Field(default=True, description="false: only /compact and the hard limit summarise.")
    threshold: Share = Field(default=0.80, description="Share of the window at which a summary is made.")
    every_messages: Annotated[int, Field(ge=2)] | None = Field(
        default=None, description="Also after this many messages; null: never by count."
    )
    min_messages: Annotated[int, Field(ge=1)] = Field(
        default=8, description="Never sooner than this many messages after the last summary."
    )
    hard_limit: Share = Field(default=0.95, description="Share of the window above which no prompt is sent.")
    overlap_messages: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=10, description="Newest summarised messages that stay word for word as well."
    )
    overlap_share: Share = Field(default=0.15, description="Most of the window these may take.")
    pinned_share: Share = Field(default=0.10, description="Most of the window pinned messages may take.")
    summary_share: Share = Field(default=0.10, description="Most of the window a summary may take.")
    target: Share = Field(
        default=0.50, description="Share of the threshold's tokens that a prompt should have at most after a summary."
    )
    chunk_tokens: Annotated[int, Field(ge=200)] = Field(
        default=24_000, description="Most of a conversation a model is given at once to summarise, in tokens."
    )
    max_chunks: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=32, description="Most pieces of one summary that a model is asked for; what is older is taken by rules."
    )
    assumed_window: Annotated[int, Field(ge=256)] = Field(
        default=32_000, description="Window in tokens while the model's is not known."
    )
    wait_s: Annotated[float, Field(ge=0)] = Field(
        default=20, description="How long a reply at the hard limit waits for a summary that is being made, in seconds."
    )
    timeout_s: Annotated[float, Field(gt=0)] = Field(
        default=600, description="Limit of one call for a summary, in seconds; then it has failed."
    )
    cache_layout: CacheLayout = Field(
        default="memories_last",
        description="Where recalled memories and the time stand: behind the newest message, or in the system text, as "
        "is usual; memories_first breaks the cache with every call and is here to compare.",
    )
