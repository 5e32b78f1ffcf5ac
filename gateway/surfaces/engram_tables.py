"""The tables of Engram's clients; imported when they are needed, because of what they import."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, MetaData, String, Table, Text

metadata = MetaData()

runs_table = Table(
    "engram_runs",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("token", String(256), nullable=False),
    Column("group", String(64), nullable=False),
    Column("user_id", String(256)),
    Column("input_type", String(16), nullable=False),
    Column("status", String(16), nullable=False),
    Column("error", Text),
    Column("note", Text),
    Column("at", String(40), nullable=False),
    Column("ended_at", String(40)),
    Column("operations", Text, nullable=False, comment="ids of memories, as JSON; never what they say"),
    Column("work", Text, comment="what is still to be learnt from, as JSON; gone when the run has ended"),
    Index("engram_runs_open", "status"),
)

topics_table = Table(
    "engram_topics",
    metadata,
    Column("project", String(64), primary_key=True),
    Column("own_name", String(80), primary_key=True, comment="folded"),
    Column("name", String(80), nullable=False),
    Column("group", String(64), nullable=False),
    Column("description", Text, nullable=False),
    Column("bounded", Boolean, nullable=False),
    Column("user_scoped", Boolean, nullable=False),
    Column("scope_properties", Text, nullable=False, comment="JSON"),
)

imports_table = Table(
    "engram_imports",
    metadata,
    Column("project", String(64), primary_key=True),
    Column("slice", String(1024), primary_key=True, comment="a part of another service's project that is here already"),
)
