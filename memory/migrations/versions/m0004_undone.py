"""What an undo has taken back is found without reading the whole history."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "memory_audit_undone",
        "memory_audit",
        ["undone_by"],
        unique=False,
        sqlite_where=sa.text("undone_by IS NOT NULL"),
    )
