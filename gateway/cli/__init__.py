"""Command line: one module per command group."""

from __future__ import annotations

import typer

from gateway.cli import (
    chat,
    data,
    deliveries,
    documents,
    evaluate,
    evaluate_memory,
    hooks,
    imports,
    jobs,
    learning,
    mcp,
    memory_runs,
    memory_settings,
    memory_transfer,
    search,
    server,
    sessions,
    topics,
)
from gateway.cli import memory as memory_commands

app = typer.Typer(
    name="sessiond",
    help="Sessions between chat frontends and a language model. Start with: sessiond serve",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for group in (server, chat, search, data, mcp):
    group.register(app)
app.add_typer(imports.app, name="import")
app.add_typer(sessions.app, name="sessions")
app.add_typer(jobs.app, name="jobs")
app.add_typer(hooks.app, name="hooks")
app.add_typer(deliveries.app, name="deliveries")
app.add_typer(memory_commands.app, name="memory")
memory_commands.app.add_typer(memory_runs.app, name="jobs")
memory_commands.app.add_typer(topics.app, name="topics")
memory_transfer.register(memory_commands.app)
memory_commands.app.command("settings")(memory_settings.settings)
learning.register(memory_commands.app)
app.add_typer(memory_commands.projects, name="projects")
app.add_typer(documents.app, name="documents")
app.add_typer(evaluate.app, name="eval")
evaluate_memory.register(evaluate.app)


def main() -> None:
    """Runs a command and exits: 0 done, 1 failed, 2 used wrongly, 3 daemon not reachable, 4 refused."""
    app()
