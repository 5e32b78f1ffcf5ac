"""Commands that measure quality: eval compaction."""

from __future__ import annotations

import dataclasses
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.output import FAILED, USAGE, fail, show_json, show_table

app = typer.Typer(help="Measure quality.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Measure quality."""


@app.command()
def compaction(
    generations: Annotated[int, typer.Option(help="How many compactions.")] = 10,
    language: Annotated[str | None, typer.Option(help="en, cs, th or zh; all when left out.")] = None,
    window: Annotated[int, typer.Option(help="Window of the model, in tokens.")] = 4000,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """What the rules summary keeps of planted facts, after 1, 5, 10 ... compactions."""
    from compaction.evaluation import FACTS, evaluate_rules
    from compaction.policy import CompactionPolicy
    from gateway.models.tokens import load

    if language is not None and language not in FACTS:
        fail(f"There is no language {language!r}. Known: {', '.join(FACTS)}.", USAGE)
    with tempfile.TemporaryDirectory() as cache:
        count = load(Path(cache)).count
        found = [
            one
            for name in ([language] if language else FACTS)
            for one in evaluate_rules(name, generations, CompactionPolicy(), window, count, datetime.now(UTC))
        ]
    if as_json:
        show_json([dataclasses.asdict(one) for one in found])
    else:
        shown = [one for one in found if one.generation in (1, 5) or one.generation % 10 == 0]
        rows = [
            [
                one.language,
                str(one.generation),
                f"{sum(one.kept.values())} of {len(one.kept)}",
                str(one.invented),
                str(one.neither),
                f"{100 * one.tokens_share:.0f} %",
                ", ".join(name for name, kept in one.kept.items() if not kept),
            ]
            for one in shown
        ]
        show_table(rows, ["LANGUAGE", "GENERATION", "KEPT", "INVENTED", "NEITHER", "TOKENS", "NOT KEPT"])
    raise typer.Exit(FAILED if any(one.invented or one.neither for one in found) else 0)
