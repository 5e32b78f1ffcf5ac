"""Which agents and projects there are: a name that was mistyped is told, and nothing goes where nobody looks."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from sessions.folders import agent_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from gateway.agents import AgentPolicy

MAIN = "main"
SHOWN = 20


def unknown_agent(agent: str, agents: Mapping[str, AgentPolicy], data_dir: Path) -> str | None:
    """Why there is no such agent. One that is not configured is there once somebody spoke with it, or gave it files."""
    known = dict.fromkeys([MAIN, *agents])
    folders = (data_dir / parent / agent_folder(agent) for parent in ("transcripts", "workspaces"))
    if agent in known or any(folder.is_dir() for folder in folders):
        return None
    return f"There is no agent {agent!r}: it is not configured, and nobody has spoken with it. {_there_are(known)}"


def unknown_project(project: str, known: Collection[str]) -> str | None:
    """Why there is no such project, among those somebody may use."""
    return None if project in known else f"There is no project {project!r} here. {_there_are(known)}"


def projects_on_disk(data_dir: Path, agents: Mapping[str, AgentPolicy]) -> set[str]:
    """Those agents are bound to, which a daemon makes when it starts, and those it has made. Blocking."""
    named = {agent.project for agent in agents.values() if agent.project is not None}
    database = data_dir / "state.db"
    if not database.is_file():
        return named
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return named | {str(row[0]) for row in connection.execute("SELECT id FROM memory_projects")}
    except sqlite3.Error:  # memory was never opened here
        return named


def _there_are(names: Iterable[str]) -> str:
    known = sorted(names)
    told = ", ".join(known[:SHOWN]) + (f" and {len(known) - SHOWN} more" if len(known) > SHOWN else "")
    return f"There are {told}." if known else "There are none yet."
