"""The steps that make and change memory's tables, for Alembic."""
