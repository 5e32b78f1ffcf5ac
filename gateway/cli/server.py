"""Commands around the daemon itself: serve, setup, check, doctor, config-example."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.output import FAILED, USAGE, fail

if TYPE_CHECKING:
    from gateway.config import Config

ConfigFile = Annotated[Path | None, typer.Option("--config", help="YAML file; also SESSIOND_CONFIG.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Where everything is kept.")]

COLLECT = (10_000, 20, 50)
"""When Python looks for garbage in cycles. Nearly all that lives here lives long (sessions, modules); at the usual 700
it looked at all of it every few turns, a tenth of the processor's time."""


def register(app: typer.Typer) -> None:
    app.command()(serve)
    app.command()(check)
    app.command()(setup)
    app.command()(doctor)
    app.command("config-example", hidden=True)(config_example)


def read_config(path: Path | None) -> Config:
    """Ends the command with all problems when the configuration cannot be used."""
    from gateway.config import BadConfig, load

    named = os.environ.get("SESSIOND_CONFIG")
    try:
        return load(path or (Path(named) if named else None), os.environ)
    except BadConfig as error:
        fail("The configuration cannot be used:\n" + "\n".join(f"- {p}" for p in error.problems), USAGE)


def serve(
    config: ConfigFile = None,
    data_dir: DataDir = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0: any free one.")] = None,
) -> None:
    """Run the daemon until it is told to stop (SIGTERM, Ctrl-C)."""
    import gc

    gc.set_threshold(*COLLECT)  # before the imports, a sixth of whose time went into looking for garbage

    import asyncio

    import uvloop

    from gateway.daemon import CannotListen
    from gateway.daemon import serve as run
    from gateway.http.auth import MissingSecret, UnsafeBinding, check_binding
    from gateway.jobs.hooks import MissingHookSecret
    from gateway.logs import configure_logging
    from sessions.files import AlreadyRunning, StorageError

    settings = read_config(config)
    overrides = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    server = settings.server.model_copy(update=overrides)
    settings = settings.model_copy(update={"server": server})
    configure_logging(settings.logging, terminal=sys.stderr.isatty())
    folder = data_dir or settings.data_dir
    try:
        check_binding(server.host, settings.auth)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = runner.run(run(settings, folder))
    except (AlreadyRunning, UnsafeBinding, MissingSecret, MissingHookSecret) as error:
        fail(str(error), USAGE)
    except StorageError as error:
        fail(f"{folder} cannot be used: {error}", FAILED)
    except CannotListen as error:
        fail(f"Cannot listen on {server.host}:{server.port}: {error.strerror}. Choose another --port.", FAILED)
    raise typer.Exit(code)


def check(config: ConfigFile = None) -> None:
    """Check a configuration and show what is effective; secrets stay hidden."""
    from gateway.config import dump_yaml, shown

    settings = read_config(config)
    typer.echo(dump_yaml(shown(settings, exclude_defaults=True)).strip())
    typer.echo("The configuration is fine.", err=True)


def config_example() -> None:
    """Print an example configuration with every setting, its default and what it means."""
    from gateway.config_example import render_example

    typer.echo(render_example(), nl=False)


def setup(
    config: Annotated[Path, typer.Option("--config", help="File to write.")] = Path("sessiond.yaml"),
    provider: Annotated[str | None, typer.Option(help="openai, anthropic or offline.")] = None,
    model: Annotated[str | None, typer.Option(help="The provider's name of the model.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Address of an OpenAI-compatible server.")] = None,
    key_env: Annotated[str | None, typer.Option(help="Environment variable that holds the API key.")] = None,
    embedding: Annotated[str | None, typer.Option(help="Model for vectors at the same address.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    try_it: Annotated[bool, typer.Option("--try/--no-try", help="Ask the model one question.")] = True,
) -> None:
    """Write a configuration, from questions or from flags, and try the model."""
    from gateway.cli import setup_model

    setup_model.run(
        setup_model.Answers(provider, model, base_url, key_env, embedding), config, force=force, try_it=try_it
    )


def doctor(
    config: ConfigFile = None,
    data_dir: DataDir = None,
    url: Annotated[str | None, typer.Option(help="Address of the daemon.")] = None,
) -> None:
    """Say what is ready, and what to do about the rest."""
    from gateway.cli import diagnosis

    settings = read_config(config)
    findings = diagnosis.examine(settings, data_dir or settings.data_dir, url)
    for finding in findings:
        mark = {"ok": "ok    ", "note": "note  ", "bad": "PROBLEM"}[finding.level]
        typer.echo(f"{mark:<8}{finding.part}: {finding.text}")
    raise typer.Exit(FAILED if any(finding.level == "bad" for finding in findings) else 0)
