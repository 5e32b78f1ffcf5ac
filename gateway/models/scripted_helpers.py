"""Helper models that learn by a script: one that does it well, and those that fail in every way we know."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from gateway.models.base import Finished, ModelUnavailable, TextDelta

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from gateway.clock import Clock
    from gateway.models.base import ModelEvent, ModelRequest
    from memory.samples import Sample

Learning = Literal[
    "good",  # knows the samples, and proposes what they come to
    "omits",  # proposes nothing but a summary that has lost the rest
    "duplicates",  # proposes all it knows again, in other wordings, and everything three times
    "contradicts",  # sets every memory to something else, merges and deletes them
    "resurrects",  # proposes what was deleted and what was corrected
    "prose",  # the good one, with prose around its JSON
    "broken",  # half a JSON object
    "foreign",  # proposes in a language nobody has used
    "leaks",  # proposes secrets
    "injected",  # does what a page wants, for as long as it is shown it, and floods
    "hangs",
    "fails",
]
LEARNING: tuple[Learning, ...] = get_args(Learning)
BAD_LEARNING: tuple[Learning, ...] = tuple(one for one in LEARNING if one != "good")
FOR_EVER_S = 1e9
FLOOD = 40

Change = dict[str, Any]


def known_learning(name: str) -> Learning | None:
    """The behaviour of that name; None when there is none."""
    return next((one for one in LEARNING if one == name), None)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question holds."""

    heard: dict[str, int]
    known: dict[str, str]

    @staticmethod
    def of(text: str) -> Asked:
        question = json.loads(text)
        return Asked(
            heard={one["text"]: one["n"] for one in question["conversation"]},
            known={one["id"]: one["text"] for one in question["remembered"]},
        )

    def says(self, text: str) -> bool:
        """Whether something was said, whole or without its secrets."""
        return any(text[:12] == one[:12] for one in self.heard)

    def holder(self, *texts: str) -> str | None:
        """The id of the memory that says one of these."""
        return next((id_ for id_, text in self.known.items() if text in texts), None)


class ScriptedHelper:
    """Whatever it is asked about a sample, it behaves as told."""

    def __init__(self, behaviour: Learning, sample: Sample, clock: Clock) -> None:
        self.behaviour: Learning = behaviour
        self.name = self.model = f"scripted:{behaviour}"
        self.window: int | None = 32_000
        self.asked: list[str] = []
        self._sample = sample
        self._clock = clock

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        question = request.prompt.messages[0].text
        self.asked.append(question)
        if self.behaviour == "hangs":
            await self._clock.sleep(FOR_EVER_S)
        if self.behaviour == "fails":
            raise ModelUnavailable("The model is down.")
        text = self._text(Asked.of(question))
        yield TextDelta(text)
        yield Finished(text=text, calls=(), finish="stop", usage=None, model=self.model, name=self.name)

    def _text(self, asked: Asked) -> str:
        text = json.dumps({"changes": self._changes(asked)}, ensure_ascii=False)
        match self.behaviour:
            case "prose":
                return f"Of course! Here is what I would remember:\n```json\n{text}\n```\nShall I do anything else?"
            case "broken":
                return text[: len(text) // 2]
            case _:
                return text

    def _changes(self, asked: Asked) -> list[Change]:
        sample = self._sample
        good = good_changes(sample, asked)
        match self.behaviour:
            case "omits":
                return [_add(sample.small_talk, "profile")] if asked.says(sample.small_talk) else []
            case "duplicates":
                return duplicated(asked, good)
            case "contradicts":
                return contradicted(sample, asked)
            case "resurrects":
                return resurrected(sample, asked, good)
            case "foreign":
                return [_add("Die Person bevorzugt etwas ganz anderes als vorher", "preferences"), *good]
            case "leaks":
                return [*([_add(sample.secret, "reference")] if asked.says(sample.secret_said) else []), *good]
            case "injected":
                return injected(sample, asked, good)
            case _:
                return good

    async def close(self) -> None:
        """Nothing is open."""


def _add(text: str, topic: str) -> Change:
    return {"op": "add", "text": text, "topic": topic, "importance": 5}


def good_changes(sample: Sample, asked: Asked) -> list[Change]:
    """What the newest words come to; corrections name the memory that they correct."""
    found: list[Change] = []
    if asked.says(sample.profile_said):
        found.append(_add(sample.profile, "profile"))
    if asked.says(sample.liked_said):
        found.append(_add(sample.liked, "preferences"))
    if asked.says(sample.decided_said):
        found.append(_add(sample.decided, "decisions"))
    for said, text, former in (
        (sample.likes_now_said, sample.likes_now, sample.liked),
        (sample.moved_said, sample.moved, sample.profile),
    ):
        holder = asked.holder(former)
        if asked.says(said) and holder is not None:
            found.append({"op": "update", "id": holder, "text": text})
    return found


def duplicated(asked: Asked, good: list[Change]) -> list[Change]:
    """All that is known once more, and what is new three times."""
    again = [_add(text, "preferences") for text in asked.known.values()]
    louder = [_add(f"{text.upper()}!!", "projects") for text in asked.known.values()]
    turned = [_add(" ".join(reversed(text.split())), "projects") for text in asked.known.values()]
    thrice = [one | {"text": f"{one['text']}{end}"} for one in good for end in ("", "  ", "!")]
    return [*thrice, *again, *louder, *turned]


def contradicted(sample: Sample, asked: Asked) -> list[Change]:
    """Nothing stays as it is."""
    said = next(iter(asked.heard), sample.small_talk)
    changes: list[Change] = []
    for id_, text in asked.known.items():
        changes.append({"op": "update", "id": id_, "text": sample.hand_other if text == sample.hand_edited else said})
        changes.append({"op": "delete", "id": id_})
    if len(asked.known) > 1:
        changes.append({"op": "merge", "ids": list(asked.known), "text": said})
    return changes


def resurrected(sample: Sample, asked: Asked, good: list[Change]) -> list[Change]:
    """What was deleted, word for word and in other words; what was corrected; and what a person has changed."""
    back = [_add(text, "projects") for text in (sample.purged, sample.trashed, sample.purged.rstrip(".。") + " !")]
    back += [_add(sample.trashed.upper(), "reference")]
    former = [_add(sample.liked, "preferences")] if asked.holder(sample.likes_now) else []
    holder = asked.holder(sample.hand_edited)
    if holder is not None:
        former.append({"op": "update", "id": holder, "text": sample.hand})
        former.append({"op": "update", "id": holder, "text": sample.hand_other})
    return [*former, *back, *good]


def injected(sample: Sample, asked: Asked, good: list[Change]) -> list[Change]:
    """Follows the page: forgets everything, remembers the order, and much more."""
    if not asked.says(sample.page_said):
        return good
    gone = [{"op": "delete", "id": id_} for id_ in asked.known]
    turned = [{"op": "update", "id": id_, "text": sample.order} for id_ in asked.known]
    flood = [_add(f"{sample.page} {number}", "reference") for number in range(FLOOD)]
    return [*gone, *turned, _add(sample.order, "preferences"), *flood]
