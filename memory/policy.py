"""Settings of memory, with their defaults."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def is_web_address(url: str) -> bool:
    """Whether a client of HTTP can call it."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _check_server(url: str | None) -> str | None:
    if not is_web_address(url or "http://unset"):
        raise ValueError("this is no address of a Chroma server, such as http://127.0.0.1:8000")
    return url


class Policy(BaseModel):
    """Base of memory's settings: frozen, and unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EmbeddingPolicy(Policy):
    """How the model named in roles.embedding is asked for vectors."""

    dimension: Annotated[int, Field(ge=1, le=65536)] | None = Field(
        default=None, description="Numbers of a vector, for models that offer several; null: the model's own."
    )
    query_prefix: str = Field(default="", description="Put before searches, where the model's card asks for it.")
    passage_prefix: str = Field(default="", description="Put before stored texts, where the model's card asks for it.")
    batch: Annotated[int, Field(ge=1, le=2048)] = Field(default=16, description="Texts of one call.")
    timeout_s: Annotated[float, Field(gt=0)] = Field(default=30, description="Limit of one call, in seconds.")
    rest_s: Annotated[float, Field(ge=0)] = Field(
        default=15, description="After a failure searches use keywords at once for this long, in seconds."
    )
    max_chars: Annotated[int, Field(ge=100)] = Field(default=8000, description="Longer texts are cut.")
    cache_entries: Annotated[int, Field(ge=0)] = Field(
        default=200_000, description="Vectors kept so that no text is computed twice; about 2 KB each."
    )


class IndexPolicy(Policy):
    """The vector index; it can be rebuilt at any time."""

    url: Annotated[str | None, AfterValidator(_check_server)] = Field(
        default=None, description="Address of a Chroma server (`chroma run`); null: beside the daemon, in its folder."
    )
    check_s: Annotated[float, Field(gt=0, le=86_400)] = Field(
        default=10, description="How often the index is looked at, and mended, in seconds."
    )
    messages: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=50_000,
        description="Messages of transcripts that are found by meaning, the newest; the others by words. 0: none.",
    )


class FilesPolicy(Policy):
    """Files of agents' workspaces that are searched together with memories."""

    chunk_tokens: Annotated[int, Field(ge=50, le=8000)] = Field(default=400, description="Tokens of one piece.")
    chunk_overlap: Annotated[int, Field(ge=0, le=4000)] = Field(
        default=80, description="Tokens a piece shares with the one before it."
    )
    compare_s: Annotated[float, Field(gt=0, le=86_400)] = Field(
        default=30, description="How often the folders are compared with the index, beside the watcher, in seconds."
    )
    prefix_chars: Annotated[int, Field(ge=0)] = Field(
        default=20_000, description="Characters of MEMORY.md in the prompt; the rest is left out, and reported."
    )
    max_bytes: Annotated[int, Field(ge=1)] = Field(
        default=5_000_000, description="Larger files are not indexed, and reported."
    )


class SearchPolicy(Policy):
    """How results are ordered."""

    relevance: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.15, description="Results below this share of the best possible score are left out; exact hits never."
    )
    vectors_wait_s: Annotated[float, Field(gt=0)] = Field(
        default=4,
        description="Seconds a search waits for vectors; then keywords have to do. Less than recall.wait_s, so that a "
        "reply is shown at least those.",
    )
    importance_weight: Annotated[float, Field(ge=0, le=1)] = Field(default=0.10, description="Weight of importance.")
    vitality_weight: Annotated[float, Field(ge=0, le=1)] = Field(default=0.05, description="Weight of vitality.")
    recency_weight: Annotated[float, Field(ge=0, le=1)] = Field(default=0.05, description="Weight of being new.")
    neighbour_weight: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.3, description="Share of its best neighbour's score that a turn of a conversation adds to its own."
    )


class MidTurnPolicy(Policy):
    """Searches while a turn runs."""

    searches: Annotated[int, Field(ge=0, le=50)] = Field(
        default=6, description="Searches of one turn, from tool arguments, results and errors; 0: none."
    )
    batch: Annotated[int, Field(ge=0, le=20)] = Field(default=3, description="Memories of one such search; 0: none.")


class RecallPolicy(Policy):
    """Which memories a model is shown (spec memory.md, "Recall"). Persons may change most of it for themselves."""

    on_message: bool = Field(default=True, description="Search at the start of a turn.")
    during_turn: bool = Field(default=True, description="Search again while a turn runs.")
    limit: Annotated[int, Field(ge=0, le=100)] = Field(default=10, description="Memories of one turn's start.")
    max_bytes: Annotated[int, Field(ge=0, le=200_000)] = Field(default=20_000, description="Bytes of their text.")
    wait_s: Annotated[float, Field(ge=0, le=30)] = Field(
        default=5, description="How long a reply waits for them, in seconds; what comes later goes to the next call."
    )
    mid_turn: MidTurnPolicy = Field(default_factory=MidTurnPolicy, description="Searches while a turn runs.")


HALF_LIVES_DAYS = (1.0, 3.0, 7.0, 14.0, 21.0, 30.0, 45.0, 60.0, 90.0, 180.0)


def _check_half_lives(days: tuple[float, ...]) -> tuple[float, ...]:
    if len(days) != len(HALF_LIVES_DAYS):
        raise ValueError("there are ten half-lives, for importance 1 to 10")
    if any(not 0.1 <= value <= 365 for value in days):
        raise ValueError("a half-life has 0.1 to 365 days")
    return days


class RetentionPolicy(Policy):
    """When unused memories go to the trash (spec memory.md, "Vitality and retention")."""

    enabled: bool = Field(default=True, description="false: nothing goes to the trash by itself.")
    grace_days: Annotated[float, Field(ge=0, le=365)] = Field(
        default=14, description="Younger memories stay, whatever their vitality."
    )
    threshold: Annotated[float, Field(ge=1, le=90)] = Field(
        default=10, description="Memories whose vitality (0 to 100) is under this go to the trash."
    )
    cap: Annotated[int, Field(ge=1, le=200)] = Field(
        default=5, description="Most memories of one person that go in any 24 hours."
    )
    half_lives_days: Annotated[tuple[float, ...], AfterValidator(_check_half_lives)] = Field(
        default=HALF_LIVES_DAYS, description="Days in which vitality falls by half, for importance 1 to 10."
    )
    daily_at: Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")] = Field(
        default="04:00", description="Local time of the daily sweep, in the zone of sessions.reset."
    )


class TrashPolicy(Policy):
    """Memories that were deleted, and can be brought back."""

    days: Annotated[float, Field(gt=0, le=3660)] | None = Field(
        default=None, description="Days after which they are deleted for good; null: never by itself."
    )


class LearnPolicy(Policy):
    """What is learnt from conversations, by the model of roles.helper; without one nothing is."""

    after_reply: bool = Field(
        default=False, description="After every reply, in the background. Persons may change it for themselves."
    )
    max_changes: Annotated[int, Field(ge=0, le=6)] = Field(
        default=2, description="Most changes of memory for one exchange; 0: nothing is learnt."
    )
    at_end: bool = Field(default=True, description="When a session ends, from what was not learnt from yet.")
    before_compaction: bool = Field(default=True, description="From the messages that are about to be summarised.")
    batch: str | None = Field(
        default="30 3 * * *",
        description="When the day's sessions are learnt from, for persons without after_reply: a cron expression; "
        "null: never.",
    )
    batch_messages: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=10, description="New messages a session must have for that."
    )
    parallel: Annotated[int, Field(ge=1, le=16)] = Field(default=2, description="Pieces learnt from at the same time.")
    timeout_s: Annotated[float, Field(gt=0)] = Field(default=120, description="Limit of one call, in seconds.")

    @property
    def reach(self) -> int:
        """Who is learnt from by itself: 0 nobody, 1 those who have it after replies, 2 everybody."""
        if self.max_changes == 0:
            return 0
        return 2 if self.at_end or self.before_compaction or self.batch is not None else int(self.after_reply)


class ConsolidationPolicy(Policy):
    """Tidying what is remembered of a person, by the model of roles.consolidation."""

    enabled: bool = Field(default=False, description="By itself, for everybody. Persons may change it for themselves.")
    hours_since: Annotated[float, Field(ge=0, le=87_840)] = Field(
        default=24, description="Hours since the last run, before it runs again by itself."
    )
    conversations_since: Annotated[int, Field(ge=0)] = Field(
        default=5, description="Conversations of the person since the last run, before it runs again by itself."
    )


class RecordsPolicy(Policy):
    """What is kept of a memory, and for how long after it was deleted."""

    allow_secrets: bool = Field(
        default=False, description="true: keys, tokens, passwords and card numbers are stored as they are written."
    )
    max_characters: Annotated[int, Field(ge=100, le=100_000)] = Field(
        default=8000, description="Longest text of one memory."
    )
    similar: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.6, description="Share of words two memories have in common to be reported as similar."
    )


class MemoryPolicy(RecordsPolicy):
    """Memories: facts that outlive sessions."""

    trash: TrashPolicy = Field(default_factory=TrashPolicy, description="What was deleted.")
    retention: RetentionPolicy = Field(default_factory=RetentionPolicy, description="What is forgotten by itself.")
    search: SearchPolicy = Field(default_factory=SearchPolicy, description="How results are ordered.")
    learn: LearnPolicy = Field(default_factory=LearnPolicy, description="What is learnt from conversations.")
    consolidation: ConsolidationPolicy = Field(
        default_factory=ConsolidationPolicy, description="Tidying what is remembered."
    )
    recall: RecallPolicy = Field(default_factory=RecallPolicy, description="What a model is shown unasked.")
    embedding: EmbeddingPolicy = Field(
        default_factory=EmbeddingPolicy, description="How the model of roles.embedding is asked for vectors."
    )
    index: IndexPolicy = Field(default_factory=IndexPolicy, description="The vector index.")
    files: FilesPolicy = Field(default_factory=FilesPolicy, description="Files of agents' workspaces.")
