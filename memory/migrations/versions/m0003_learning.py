"""How far people's memories have learnt from which sessions, and what came of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "memory_learn_marks",
        sa.Column("session", sa.String(length=64), nullable=False),
        sa.Column("pool", sa.String(length=300), nullable=False),
        sa.Column("through_seq", sa.Integer(), nullable=False, comment="the last entry that was learnt from"),
        sa.Column("failures", sa.Integer(), nullable=False, comment="unreadable answers about what comes next"),
        sa.PrimaryKeyConstraint("session", "pool"),
    )
    op.create_table(
        "memory_learn_runs",
        sa.Column("id", sa.String(length=64), nullable=False, comment="also the operation, in the history"),
        sa.Column("pool", sa.String(length=300), nullable=False),
        sa.Column("trigger", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("session", sa.String(length=64), nullable=True),
        sa.Column("first_seq", sa.Integer(), nullable=True),
        sa.Column("last_seq", sa.Integer(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("model", sa.String(length=256), nullable=True),
        sa.Column("created", sa.JSON(), nullable=False),
        sa.Column("updated", sa.JSON(), nullable=False),
        sa.Column("deleted", sa.JSON(), nullable=False),
        sa.Column("refused", sa.JSON(), nullable=False, comment="reasons, never texts"),
        sa.Column("redacted", sa.Integer(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("input_tokens", sa.Integer(), nullable=False),
        sa.Column("output_tokens", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("memory_learn_runs_pool", "memory_learn_runs", ["pool", "id"], unique=False)
