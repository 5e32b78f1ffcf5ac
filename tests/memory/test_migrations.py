"""The steps of Alembic make the tables that the code knows, also of a store of the first version."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, create_engine

from gateway.database import open_database
from memory.database import MIGRATIONS, Records
from memory.tables import VERSION, VERSION_TABLE, metadata

if TYPE_CHECKING:
    from pathlib import Path


def _ours(_item: Any, _name: str | None, kind: str, reflected: bool, known: Any) -> bool:
    """Tables of the full text are made beside the metadata."""
    return not (kind == "table" and reflected and known is None)


def test_a_store_of_the_first_version_is_brought_up_to_what_the_code_knows(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'state.db'}")
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        written = "operation, memory, row, pool, at, action, origin, author, why"
        values = "'o', 'm', 'm', 'user:ana', 1, 'added', 'person', 'ana', ''"
        connection.exec_driver_sql(f"INSERT INTO memory_audit ({written}) VALUES ({values})")
        command.upgrade(config, "head")
        assert connection.exec_driver_sql("SELECT memory, job FROM memory_audit").all() == [("m", None)]
        context = MigrationContext.configure(connection, opts={"include_object": _ours})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_the_version_the_code_knows_is_that_of_the_newest_step() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_current_head() == VERSION


async def test_what_is_up_to_date_is_opened_without_alembic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await open_database(tmp_path / "state.db", MetaData())
    records = Records(engine)
    await records.migrate()
    monkeypatch.setitem(sys.modules, "alembic", None)
    await records.migrate()
    async with records.writing() as connection:
        await connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '0003'")
    with pytest.raises(ImportError):
        await records.migrate()
    await engine.dispose()
