"""The tables of memory, in SQLAlchemy Core; `memory/migrations` makes and changes them."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.types import JSON

metadata = MetaData()

VERSION_TABLE = "memory_version"
VERSION = "0004"
"""Of the newest step in `memory/migrations`; what stands in the table of versions."""

Id = String(64)
PoolName = String(300)
Number = BigInteger().with_variant(Integer, "sqlite")  # what SQLite counts by itself
Millis = BigInteger

memories = Table(
    "memories",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=True, comment="row of the full text"),
    Column("id", Id, nullable=False, unique=True),
    Column("pool", PoolName, nullable=False),
    Column("topic", Id),
    Column("kind", String(16), nullable=False),
    Column("text", Text, nullable=False),
    Column("text_hash", String(64), nullable=False),
    Column("importance", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("place", Id, comment="the one place of a bounded topic; one active memory holds it"),
    Column("current", Id, comment="superseded rows: the memory this was once"),
    Column("supersedes", Id),
    Column("properties", JSON, nullable=False),
    Column("source", JSON, nullable=False),
    Column("author", String(512), nullable=False),
    Column("valid_from", Millis, nullable=False, comment="milliseconds since 1970, UTC, like all times"),
    Column("valid_to", Millis),
    Column("created_at", Millis, nullable=False),
    Column("updated_at", Millis, nullable=False),
    Column("trashed_at", Millis),
    Column("last_recalled_at", Millis),
    Column("recall_count", Integer, nullable=False, server_default="0"),
    Column("checked_at", Millis),
    Column("revision", Integer, nullable=False),
    Index("memories_pool", "pool", "state", "created_at"),
    Index("memories_text", "pool", "text_hash"),
    Index("memories_topic", "topic"),
    Index("memories_current", "current"),
    Index(
        "memories_place",
        "place",
        unique=True,
        sqlite_where=text("state = 'active' AND place IS NOT NULL"),
        postgresql_where=text("state = 'active' AND place IS NOT NULL"),
    ),
)

topics = Table(
    "memory_topics",
    metadata,
    Column("id", Id, primary_key=True),
    Column("owner", PoolName, nullable=False, comment="a pool, or `instance`"),
    Column("name", String(80), nullable=False),
    Column("name_folded", String(240), nullable=False),
    Column("description", Text, nullable=False),
    Column("leave_out", Text),
    Column("bounded", Boolean, nullable=False),
    Column("scope_properties", JSON, nullable=False),
    Column("always_on", Boolean, nullable=False),
    Column("project", String(256)),
    Column("created_at", Millis, nullable=False),
    Column("updated_at", Millis, nullable=False),
    UniqueConstraint("owner", "name_folded"),
)

pools = Table(
    "memory_pools",
    metadata,
    Column("pool", PoolName, primary_key=True, comment="has its default topics, also when they were deleted since"),
    Column("created_at", Millis, nullable=False),
)

projects = Table(
    "memory_projects",
    metadata,
    Column("id", String(256), primary_key=True),
    Column("name", String(256), nullable=False),
    Column("created_at", Millis, nullable=False),
)

members = Table(
    "memory_members",
    metadata,
    Column("pool", PoolName, primary_key=True, comment="project:<id>"),
    Column("user", String(256), primary_key=True),
    Column("since", Millis, nullable=False),
    Index("memory_members_user", "user"),
)

audit = Table(
    "memory_audit",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("operation", Id, nullable=False),
    Column("memory", Id, nullable=False),
    Column("row", Id, nullable=False, comment="the memory, or a former version of it"),
    Column("pool", PoolName, nullable=False),
    Column("at", Millis, nullable=False),
    Column("action", String(16), nullable=False),
    Column("origin", String(16), nullable=False),
    Column("author", String(512), nullable=False),
    Column("why", Text, nullable=False),
    Column("before", JSON(none_as_null=True)),
    Column("after", JSON(none_as_null=True)),
    Column("undone_by", Id),
    Column("job", Id, comment="the job that did it"),
    Index("memory_audit_memory", "memory"),
    Index("memory_audit_row", "row"),
    Index("memory_audit_operation", "operation"),
    Index("memory_audit_pool", "pool", "origin", "at"),
    Index("memory_audit_job", "job"),
    Index("memory_audit_undone", "undone_by", sqlite_where=text("undone_by IS NOT NULL")),
)

tombstones = Table(
    "memory_tombstones",
    metadata,
    Column("pool", PoolName, primary_key=True),
    Column("text_hash", String(64), primary_key=True),
    Column("topic", Id),
    Column("at", Millis, nullable=False),
)

changes = Table(
    "memory_changes",
    metadata,
    Column("id", Id, primary_key=True, comment="of a memory; stays when that is gone for good"),
    Column("pool", PoolName, nullable=False),
    Column("number", BigInteger, nullable=False),
    Index("memory_changes_number", "number", unique=True),
)

state = Table(
    "memory_state",
    metadata,
    Column(
        "name",
        String(32),
        primary_key=True,
        comment="`change`: last number given; `scrub`: its value at the last purge, 0 once the files are wiped; "
        "`forget:`: at a purge whose vectors may still be kept; "
        "`words`: how texts are cut",
    ),
    Column("value", BigInteger, nullable=False),
)

jobs = Table(
    "memory_jobs",
    metadata,
    Column("id", Id, primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("pool", PoolName, nullable=False, comment="a pool, or `instance`"),
    Column("state", String(16), nullable=False),
    Column("automatic", Boolean, nullable=False),
    Column("asked", JSON, nullable=False),
    Column("place", JSON, nullable=False, comment="where it goes on after a kill"),
    Column("started_at", Millis, nullable=False),
    Column("ended_at", Millis),
    Column("undone_at", Millis),
    Column("model", String(256)),
    Column("done", Integer, nullable=False),
    Column("total", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("counts", JSON, nullable=False),
    Column("problem", Text),
    Index("memory_jobs_pool", "pool", "kind", "state"),
)

settings = Table(
    "memory_settings",
    metadata,
    Column("pool", PoolName, primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("value", JSON(none_as_null=True)),
)

topic_audit = Table(
    "memory_topic_audit",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("owner", PoolName, nullable=False),
    Column("topic", Id, nullable=False),
    Column("at", Millis, nullable=False),
    Column("origin", String(16), nullable=False),
    Column("author", String(512), nullable=False),
    Column("job", Id),
    Column("before", JSON(none_as_null=True)),
    Column("after", JSON(none_as_null=True)),
    Column("undone_at", Millis),
    Index("memory_topic_audit_job", "job"),
)

learn_marks = Table(
    "memory_learn_marks",
    metadata,
    Column("session", String(64), primary_key=True),
    Column("pool", PoolName, primary_key=True),
    Column("through_seq", Integer, nullable=False, comment="the last entry that was learnt from"),
    Column("failures", Integer, nullable=False, comment="unreadable answers about what comes next"),
)

learn_runs = Table(
    "memory_learn_runs",
    metadata,
    Column("id", Id, primary_key=True, comment="also the operation, in the history"),
    Column("pool", PoolName, nullable=False),
    Column("trigger", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("session", String(64)),
    Column("first_seq", Integer),
    Column("last_seq", Integer),
    Column("started_at", Millis, nullable=False),
    Column("ended_at", Millis, nullable=False),
    Column("model", String(256)),
    Column("created", JSON, nullable=False),
    Column("updated", JSON, nullable=False),
    Column("deleted", JSON, nullable=False),
    Column("refused", JSON, nullable=False, comment="reasons, never texts"),
    Column("redacted", Integer, nullable=False),
    Column("problem", Text),
    Column("calls", Integer, nullable=False),
    Column("input_tokens", Integer, nullable=False),
    Column("output_tokens", Integer, nullable=False),
    Index("memory_learn_runs_pool", "pool", "id"),
)
