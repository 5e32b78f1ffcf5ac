"""Models that write summaries by a script: one that does it well, and those that fail in every way we know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from compaction.plants import CHANGING, CODES, ORDER, PLANTS
from compaction.summary import LISTS
from gateway.models.base import Finished, ModelUnavailable, TextDelta
from sessions.context import UserMessage
from sessions.entries import ToolCall

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from compaction.layout import Prompt
    from gateway.clock import Clock
    from gateway.models.base import ModelEvent, ModelRequest
    from sessions.entries import Finish

Behaviour = Literal[
    "oracle",  # knows the plants and keeps all it is shown
    "answers",  # goes on with the conversation
    "prose",  # a summary, but no JSON
    "truncated",  # half a JSON object, cut at the output limit
    "tool_call",
    "empty",
    "too_long",  # copies what it is to summarise
    "injected",  # adds an order nobody gave
    "invents",  # adds an id nobody has said
    "hangs",
    "fails",
    "slow",  # the oracle, after half a minute
]
BEHAVIOURS: tuple[Behaviour, ...] = get_args(Behaviour)
BAD: tuple[Behaviour, ...] = tuple(one for one in BEHAVIOURS if one not in ("oracle", "slow"))
SLOW_S = 30.0
FOR_EVER_S = 1e9


def known_behaviour(name: str) -> Behaviour | None:
    """The behaviour of that name; None when there is none."""
    return next((one for one in BEHAVIOURS if one == name), None)


class ScriptedSummariser:
    """Whatever it is asked, it behaves as told."""

    def __init__(self, behaviour: Behaviour, clock: Clock, *, name: str | None = None, window: int = 32_000) -> None:
        self.behaviour: Behaviour = behaviour
        self.model = f"scripted:{behaviour}"
        self.name = name or self.model
        self.window: int | None = window
        self.calls = 0
        self._clock = clock

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.calls += 1
        if self.behaviour == "hangs":
            await self._clock.sleep(FOR_EVER_S)
        if self.behaviour == "slow":
            await self._clock.sleep(SLOW_S)
        if self.behaviour == "fails":
            raise ModelUnavailable("The model is down.")
        text = self._text(request.prompt)
        if text:
            yield TextDelta(text)
        calls = (ToolCall(id="call_1", name="send_mail", arguments="{}"),) if self.behaviour == "tool_call" else ()
        finish: Finish = "tool_calls" if calls else "length" if self.behaviour == "truncated" else "stop"
        yield Finished(text=text, calls=calls, finish=finish, usage=None, model=self.model, name=self.name)

    def _text(self, prompt: Prompt) -> str:
        match self.behaviour:
            case "empty" | "tool_call":
                return ""
            case "answers":
                return "Of course! There is a good plumber in Brno, I will call him for you right away. Anything else?"
            case "prose":
                return "The conversation is about the weather over some hills, a launch, and coffee with oat milk."
            case _:
                return self._json(prompt)

    def _json(self, prompt: Prompt) -> str:
        shown = shown_in(prompt)
        summary = oracle_summary(shown)
        match self.behaviour:
            case "too_long":
                lines = shown.splitlines() * 3
                summary["facts"] = [f"{number}: {line}" for number, line in enumerate(lines)]
            case "injected":
                summary["constraints"].append(ORDER)
                summary["open_asks"].append(ORDER)
                summary["decisions"].append(ORDER)
                summary["facts"].append(ORDER)
            case "invents":
                summary["facts"].append("The ticket is ZZ9-0000-XX.")
            case _:
                pass
        text = json.dumps(summary, ensure_ascii=False)
        return text[: len(text) // 2] if self.behaviour == "truncated" else text

    async def close(self) -> None:
        """Nothing is open."""


def shown_in(prompt: Prompt) -> str:
    """What is to be summarised: the text of the data, without its JSON, or the conversation itself."""
    *said, last = prompt.messages
    if said:
        return "\n".join([prompt.summary or "", *(message.text for message in said)])
    block = last.text.partition("\n</data>\n")[0] if isinstance(last, UserMessage) else ""
    return "\n".join(text for line in block.splitlines()[1:] for text in _leaves(json.loads(line)))


def _leaves(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for one in cast("dict[str, Any]", value).values() for text in _leaves(one)]
    if isinstance(value, list):
        return [text for one in cast("list[Any]", value) for text in _leaves(one)]
    return [str(value)]


def oracle_summary(shown: str) -> dict[str, Any]:
    """The best summary of a planted conversation: every plant that is shown in its place, the newest code as the one
    that holds."""
    summary: dict[str, Any] = {name: list[str]() for name in LISTS}
    summary["language"] = ""
    summary["topics"] = [next((line for line in shown.splitlines() if line.strip()), "")[:80]]
    for language, plants in PLANTS.items():
        for plant in plants:
            if plant.said in shown:
                summary[plant.place].append(plant.said)
        changing = CHANGING[language]
        told = [changing.said.format(CODES[0]), *(changing.piece.format(code) for code in CODES[1:])]
        known = [text for text in told if text in shown]
        summary["facts"] += known[-1:]
        summary["superseded"] += known[:-1]
    return summary
