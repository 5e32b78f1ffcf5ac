"""`python -m tests.bench.compaction_soak`: a long conversation in a small window, by the provider's own count.

The exit code is 1 when compactions come too often or not at all, when a prompt is above the hard limit, or when disk or
memory grow faster than what was said.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson
import structlog

from tests.bench.standin import StandIn
from tests.journeys.daemon import KEY, config, model_settings, running

WINDOW = 4000
HARD_LIMIT = 0.95
WORDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """At one moment: bytes of text said and of transcripts, and of memory."""

    said: int
    disk: int
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakFigures:
    """`said_tokens` and `largest_prompt` are by the provider's own count."""

    turns: int
    answered: int
    compactions: int
    least_expected: int
    most_expected: int
    said_tokens: int
    largest_prompt: int
    hard_limit: int
    half: Measured
    end: Measured

    def broken(self) -> list[str]:
        """What does not hold, in words."""
        growth = self.end.said / self.half.said
        checks = {
            "a turn was not answered": self.answered < self.turns,
            "compactions are missing": self.compactions < self.least_expected,
            "compactions come too often": self.compactions > self.most_expected,
            "a prompt was above the hard limit": self.largest_prompt > self.hard_limit,
            "the disk fills faster than what is said": self.end.disk / self.half.disk > 1.15 * growth,
            "memory grows faster than what is said": self.end.memory - self.half.memory
            > 40_000_000 + 20 * self.end.said,
        }
        return [words for words, true in checks.items() if true]


async def run(turns: int, folder: Path) -> SoakFigures:
    """One conversation of that many turns, over HTTP."""
    said = largest = answered = 0
    half: Measured | None = None
    async with StandIn() as standin:
        settings = model_settings(standin.base_url, window=WINDOW, max_output=500)
        settings["roles"]["summary"] = "offline"
        async with running(folder, config(**settings)) as client:
            for number in range(turns):
                text = f"Message {number} about hive {number % 7}. " + " ".join(f"w{number}x{n}" for n in range(WORDS))
                answer = await client.say(text)
                answered += answer["state"] == "done"
                said += len(text) + len(answer["text"])
                largest = max(largest, *(len(orjson.dumps(request.body)) // 4 for request in standin.requests))
                standin.requests.clear()
                if number == turns // 2:
                    half = _measured(folder, said)
            compactions = (await client.get(f"/v1/sessions/{KEY}"))["compactions"]
            end = _measured(folder, said)
    assert half is not None
    tokens = said // 4
    return SoakFigures(
        turns=turns,
        answered=answered,
        compactions=compactions,
        least_expected=int(tokens / (HARD_LIMIT * WINDOW)) - 1,
        most_expected=int(tokens / (0.3 * WINDOW)) + 1,  # from at most half the threshold to the threshold
        said_tokens=tokens,
        largest_prompt=largest,
        hard_limit=int(HARD_LIMIT * WINDOW),
        half=half,
        end=end,
    )


def _measured(folder: Path, said: int) -> Measured:
    disk = sum(path.stat().st_size for path in (folder / "transcripts").rglob("*") if path.is_file())
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    return Measured(said=said, disk=disk, memory=resident)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=500)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(run(options.turns, Path(folder)))
    print(json.dumps({**asdict(figures), "broken": figures.broken()}, indent=1))
    sys.exit(1 if figures.broken() else 0)


if __name__ == "__main__":
    main()
