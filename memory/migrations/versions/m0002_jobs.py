"""Jobs, what people set for themselves, the history of topics; the history of memories says which job wrote."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("memory_audit", sa.Column("job", sa.String(length=64), nullable=True, comment="the job that did it"))
    op.create_index("memory_audit_job", "memory_audit", ["job"], unique=False)
    op.create_table(
        "memory_jobs",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("pool", sa.String(length=300), nullable=False, comment="a pool, or `instance`"),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("automatic", sa.Boolean(), nullable=False),
        sa.Column("asked", sa.JSON(), nullable=False),
        sa.Column("place", sa.JSON(), nullable=False, comment="where it goes on after a kill"),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("undone_at", sa.BigInteger(), nullable=True),
        sa.Column("model", sa.String(length=256), nullable=True),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("memory_jobs_pool", "memory_jobs", ["pool", "kind", "state"], unique=False)
    op.create_table(
        "memory_settings",
        sa.Column("pool", sa.String(length=300), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.JSON(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("pool", "name"),
    )
    op.create_table(
        "memory_topic_audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("owner", sa.String(length=300), nullable=False),
        sa.Column("topic", sa.String(length=64), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("origin", sa.String(length=16), nullable=False),
        sa.Column("author", sa.String(length=512), nullable=False),
        sa.Column("job", sa.String(length=64), nullable=True),
        sa.Column("before", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("after", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("undone_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("memory_topic_audit_job", "memory_topic_audit", ["job"], unique=False)
