"""What learning keeps: its runs, how far each session was learnt from, and each person's settings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "memory_runs",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("pool", sa.String(length=300), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("session", sa.String(length=64), nullable=True),
        sa.Column("first_seq", sa.Integer(), nullable=True),
        sa.Column("last_seq", sa.Integer(), nullable=True),
        sa.Column("model", sa.String(length=256), nullable=True),
        sa.Column("operation", sa.String(length=64), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.Column("notes", sa.JSON(), nullable=False, comment="why proposals were refused; never their text"),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("memory_runs_pool", "memory_runs", ["pool", "id"], unique=False)
    op.create_index("memory_runs_status", "memory_runs", ["status"], unique=False)
    op.create_table(
        "memory_watermarks",
        sa.Column("session", sa.String(length=64), nullable=False),
        sa.Column("pool", sa.String(length=300), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False, comment="learnt through"),
        sa.Column("messages", sa.Integer(), nullable=False, comment="of the session, when it was learnt from last"),
        sa.Column("failures", sa.Integer(), nullable=False, comment="runs that failed in a row, since"),
        sa.PrimaryKeyConstraint("session", "pool"),
    )
    op.create_table(
        "memory_settings",
        sa.Column("pool", sa.String(length=300), nullable=False),
        sa.Column("values", sa.JSON(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pool"),
    )
