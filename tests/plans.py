"""How SQLite goes about what it is asked."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def statements() -> Iterator[dict[str, Any]]:
    """Everything that is asked of any database meanwhile, with parameters it was asked with."""
    asked: dict[str, Any] = {}

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        asked.setdefault(statement, parameters[0] if many else parameters)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def read_whole(path: Path, asked: dict[str, Any], *tables: str) -> list[str]:
    """The statements for which SQLite reads one of these tables from end to end, each behind the step that does."""
    whole = re.compile(rf"SCAN ({'|'.join(tables)})\b")
    found: list[str] = []
    with closing(sqlite3.connect(path)) as file:
        for statement, parameters in asked.items():
            if statement.split()[0] in ("SELECT", "UPDATE", "DELETE"):
                plan = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
                found += [f"{step}: {statement}" for step in plan if whole.match(step)]
    return found
