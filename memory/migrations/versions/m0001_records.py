"""The first tables: memories with their history, topics, projects, and the full text."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "memories",
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
            comment="row of the full text",
        ),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("pool", sa.String(length=300), nullable=False),
        sa.Column("topic", sa.String(length=64), nullable=True),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("text_hash", sa.String(length=64), nullable=False),
        sa.Column("importance", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column(
            "place",
            sa.String(length=64),
            nullable=True,
            comment="the one place of a bounded topic; one active memory holds it",
        ),
        sa.Column("current", sa.String(length=64), nullable=True, comment="superseded rows: the memory this was once"),
        sa.Column("supersedes", sa.String(length=64), nullable=True),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("source", sa.JSON(), nullable=False),
        sa.Column("author", sa.String(length=512), nullable=False),
        sa.Column(
            "valid_from", sa.BigInteger(), nullable=False, comment="milliseconds since 1970, UTC, like all times"
        ),
        sa.Column("valid_to", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("trashed_at", sa.BigInteger(), nullable=True),
        sa.Column("last_recalled_at", sa.BigInteger(), nullable=True),
        sa.Column("recall_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("checked_at", sa.BigInteger(), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("memories_current", "memories", ["current"], unique=False)
    op.create_index(
        "memories_place",
        "memories",
        ["place"],
        unique=True,
        sqlite_where=sa.text("state = 'active' AND place IS NOT NULL"),
        postgresql_where=sa.text("state = 'active' AND place IS NOT NULL"),
    )
    op.create_index("memories_pool", "memories", ["pool", "state", "created_at"], unique=False)
    op.create_index("memories_text", "memories", ["pool", "text_hash"], unique=False)
    op.create_index("memories_topic", "memories", ["topic"], unique=False)
    op.create_table(
        "memory_audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("operation", sa.String(length=64), nullable=False),
        sa.Column("memory", sa.String(length=64), nullable=False),
        sa.Column("row", sa.String(length=64), nullable=False, comment="the memory, or a former version of it"),
        sa.Column("pool", sa.String(length=300), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.Column("origin", sa.String(length=16), nullable=False),
        sa.Column("author", sa.String(length=512), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("before", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("after", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("undone_by", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("memory_audit_memory", "memory_audit", ["memory"], unique=False)
    op.create_index("memory_audit_operation", "memory_audit", ["operation"], unique=False)
    op.create_index("memory_audit_pool", "memory_audit", ["pool", "origin", "at"], unique=False)
    op.create_index("memory_audit_row", "memory_audit", ["row"], unique=False)
    op.create_table(
        "memory_changes",
        sa.Column("id", sa.String(length=64), nullable=False, comment="of a memory; stays when that is gone for good"),
        sa.Column("pool", sa.String(length=300), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("memory_changes_number", "memory_changes", ["number"], unique=True)
    op.create_table(
        "memory_members",
        sa.Column("pool", sa.String(length=300), nullable=False, comment="project:<id>"),
        sa.Column("user", sa.String(length=256), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pool", "user"),
    )
    op.create_index("memory_members_user", "memory_members", ["user"], unique=False)
    op.create_table(
        "memory_pools",
        sa.Column(
            "pool",
            sa.String(length=300),
            nullable=False,
            comment="has its default topics, also when they were deleted since",
        ),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pool"),
    )
    op.create_table(
        "memory_projects",
        sa.Column("id", sa.String(length=256), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "memory_state",
        sa.Column(
            "name",
            sa.String(length=32),
            nullable=False,
            comment="`change`: last number given; `scrub`: 1 while a purge is due",
        ),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "memory_tombstones",
        sa.Column("pool", sa.String(length=300), nullable=False),
        sa.Column("text_hash", sa.String(length=64), nullable=False),
        sa.Column("topic", sa.String(length=64), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pool", "text_hash"),
    )
    op.create_table(
        "memory_topics",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=300), nullable=False, comment="a pool, or `instance`"),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("name_folded", sa.String(length=240), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("leave_out", sa.Text(), nullable=True),
        sa.Column("bounded", sa.Boolean(), nullable=False),
        sa.Column("scope_properties", sa.JSON(), nullable=False),
        sa.Column("always_on", sa.Boolean(), nullable=False),
        sa.Column("project", sa.String(length=256), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("owner", "name_folded"),
    )
    if op.get_bind().dialect.name == "sqlite":
        # one term is one token: whatever is no white space belongs to it
        op.execute(
            "CREATE VIRTUAL TABLE memory_text USING fts5(pool, words, "
            "tokenize=\"unicode61 remove_diacritics 0 categories 'L* M* N* P* S* Co'\")"
        )
