"""The questions of `sessiond setup`, the file it writes, and the try of the model."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from gateway.cli.output import FAILED, USAGE, fail
from gateway.config import dump_yaml

DEFAULTS = {"openai": "gpt-5-mini", "anthropic": "claude-sonnet-4-5", "offline": "offline"}


@dataclass(frozen=True, slots=True)
class Answers:
    """What was given by flags; None is asked for on a terminal, else takes its default."""

    provider: str | None
    model: str | None
    base_url: str | None
    key_env: str | None
    embedding: str | None


def run(given: Answers, path: Path, *, force: bool, try_it: bool) -> None:
    """Writes the configuration, 0600, and asks the model one question."""
    if path.exists() and not force:
        _may_replace(path)
    answers = given if given.provider is not None else ask(given)
    if answers.provider not in DEFAULTS:
        fail(f"There is no provider {answers.provider!r}. Known: {', '.join(DEFAULTS)}.", USAGE)
    settings = settings_of(answers)
    content = f"# Written by sessiond setup; config.example.yaml shows every setting.\n{dump_yaml(settings)}"
    _write(path, content)
    typer.echo(f"Wrote {path}.")
    if try_it:
        typer.echo(asyncio.run(try_model(path)))
    typer.echo(f"Start the daemon with: sessiond serve --config {path}")


def _may_replace(path: Path) -> None:
    """Asks on a terminal; elsewhere the command ends."""
    if not sys.stdin.isatty():
        fail(f"{path} exists already. Use --force to write over it, or --config for another file.", USAGE)
    typer.confirm(f"{path} exists already. Write over it?", abort=True)


def _write(path: Path, content: str) -> None:
    """Only its owner may read it, also where an older file was open to others; the old one stays until it is whole."""
    beside = path.with_name(f"{path.name}.new")
    try:
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
        beside.replace(path)
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}.", FAILED)


def ask(given: Answers) -> Answers:
    """Asks for what no flag has answered."""
    provider = typer.prompt("Provider (openai, anthropic, offline)", default="offline")
    if provider == "offline":
        return Answers("offline", None, None, None, None)
    base_url = given.base_url
    if provider == "openai" and base_url is None:
        base_url = typer.prompt("Address, for another server than OpenAI's", default="", show_default=False) or None
    model = given.model or typer.prompt("Model", default=DEFAULTS.get(provider, ""))
    key_env = given.key_env or typer.prompt("Variable with the API key", default=f"{provider.upper()}_API_KEY")
    embedding = given.embedding or typer.prompt("Embedding model", default="", show_default=False) or None
    return Answers(provider, model, base_url, key_env, embedding)


def settings_of(answers: Answers) -> dict[str, Any]:
    """The configuration the answers mean."""
    provider = answers.provider or "offline"
    chat: dict[str, Any] = {"provider": provider, "model": answers.model or DEFAULTS[provider]}
    if answers.base_url:
        chat["base_url"] = answers.base_url
    if answers.key_env:
        chat["api_key_env"] = answers.key_env
    models, roles = {"chat": chat}, {"chat": "chat"}
    if answers.embedding:
        models["embedding"] = {**chat, "model": answers.embedding}
        roles["embedding"] = "embedding"
    return {"models": models, "roles": roles}


async def try_model(path: Path) -> str:
    """One short question to the chat model; ends the command when there is no answer."""
    from compaction.layout import build_prompt
    from gateway.clock import SystemClock
    from gateway.config import load
    from gateway.models.base import ModelError, ModelRequest, complete
    from gateway.models.pool import ModelPool
    from sessions.context import UserMessage

    config = load(path, os.environ)
    pool = ModelPool(
        policies=config.models,
        roles=config.roles,
        agents=config.agents,
        environ=os.environ,
        monotonic=SystemClock().monotonic,
        count=lambda text: len(text) // 4 + 1,
        load_blob=lambda _: b"",
    )
    prompt = build_prompt(system="Answer in one short sentence.", messages=[UserMessage(text="Are you there?")])
    try:
        reply = await complete(pool.choose("main", None), ModelRequest(prompt=prompt, max_output=200))
    except ModelError as error:
        fail(f"The file is written, but the model does not answer: {error}", FAILED)
    finally:
        await pool.close()
    return f"The model answers: {' '.join(reply.text.split())[:200]}"
