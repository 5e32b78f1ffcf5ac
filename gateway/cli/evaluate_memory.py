"""The command eval memory: what learning makes of sample conversations, with good and bad helper models."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.evaluate import driven, model_pool, quiet
from gateway.cli.output import FAILED, USAGE, fail, show_json, show_table
from gateway.cli.server import ConfigFile

if TYPE_CHECKING:
    from gateway.memory_evaluation import Learnt


def register(app: typer.Typer) -> None:
    """It stands among the commands that measure."""
    app.command("memory")(memory)


def memory(
    model: Annotated[
        list[str] | None,
        typer.Option(help="Who learns: good, a bad one (bad: all of them), or a configured model."),
    ] = None,
    language: Annotated[str | None, typer.Option(help="en, cs, th or zh; all when left out.")] = None,
    config: ConfigFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """What is in the store after sample conversations, rule by rule, with any helper model.

    Without --model: the good one and all bad ones. Ends with 1 when a rule was broken.
    """
    from gateway.memory_evaluation import RULES
    from gateway.models.scripted_helpers import BAD_LEARNING, LEARNING
    from memory.samples import SAMPLES

    if language is not None and language not in SAMPLES:
        fail(f"There is no language {language!r}. Known: {', '.join(SAMPLES)}.", USAGE)
    names = [one for name in model or list(LEARNING) for one in (BAD_LEARNING if name == "bad" else [name])]
    languages = [language] if language else list(SAMPLES)
    quiet(logging.CRITICAL)  # that bad helpers fail is what the table tells
    found = [one for name in dict.fromkeys(names) for one in _learnt(name, languages, config)]
    if as_json:
        show_json({"rules": RULES, "results": [one.to_json() for one in found]})
    else:
        _show(found)
    raise typer.Exit(FAILED if any(one.broken for one in found) else 0)


def _learnt(name: str, languages: list[str], config: Path | None) -> list[Learnt]:
    from gateway.clock import ManualClock
    from gateway.memory_evaluation import evaluate
    from gateway.models.scripted_helpers import ScriptedHelper, known_learning
    from memory.samples import SAMPLES

    behaviour = known_learning(name)
    if behaviour is None:
        return asyncio.run(_with_configured(name, languages, config))

    async def scripted(clock: ManualClock) -> list[Learnt]:
        with tempfile.TemporaryDirectory() as folder:
            helpers = {language: ScriptedHelper(behaviour, SAMPLES[language], clock) for language in languages}
            return [
                await evaluate(helper, language, clock=clock, folder=Path(folder))
                for language, helper in helpers.items()
            ]

    clock = ManualClock(datetime.now(UTC))
    return asyncio.run(driven(clock, scripted(clock)))


async def _with_configured(name: str, languages: list[str], config: Path | None) -> list[Learnt]:
    from gateway.clock import SystemClock
    from gateway.memory_evaluation import evaluate
    from gateway.models.base import UnknownModel
    from gateway.models.scripted_helpers import LEARNING

    with tempfile.TemporaryDirectory() as folder:
        pool = model_pool(config, Path(folder))
        try:
            helper = pool.by_name(name)
            return [
                await evaluate(helper, language, clock=SystemClock(), folder=Path(folder)) for language in languages
            ]
        except UnknownModel as error:
            fail(f"{error} Or one of: {', '.join(LEARNING)}, bad.", USAGE)
        finally:
            await pool.close()


def _show(found: list[Learnt]) -> None:
    from gateway.memory_evaluation import RULES

    rows = [
        [
            one.helper,
            one.language,
            f"{one.kept}/{one.wanted}",
            str(one.stale),
            f"{one.failed}/{one.runs}",
            *(str(getattr(one, rule)) for rule in RULES),
        ]
        for one in found
    ]
    show_table(rows, ["HELPER", "LANGUAGE", "KEPT", "STALE", "FAILED", *(rule.upper() for rule in RULES)])
    typer.echo("\nMust be 0 with any model:")
    for rule, meaning in RULES.items():
        typer.echo(f"  {rule}: {meaning}")
