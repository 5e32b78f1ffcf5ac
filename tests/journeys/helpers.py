"""Helper models for journeys: they answer what a function says, and remember what they were asked."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from gateway.models.base import Finished, ModelUnavailable, TextDelta

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from gateway.models.base import ModelEvent, ModelRequest


class Helper:
    """A model under a name of the configuration. `says` gets the question as it was parsed; it raises or answers.

    While `holding` is set, calls wait.
    """

    window = None

    def __init__(self, says: Callable[[dict[str, Any]], str], name: str = "helper") -> None:
        self.name = self.model = name
        self.says = says
        self.asked: list[dict[str, Any]] = []
        self.going = asyncio.Event()
        self.going.set()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        question = json.loads(request.prompt.messages[0].text)
        self.asked.append(question)
        await self.going.wait()
        text = self.says(question)
        if text == "down":
            raise ModelUnavailable("The model is down.")
        yield TextDelta(text)
        yield Finished(text=text, calls=(), finish="stop", usage=None, model=self.model, name=self.name)

    async def close(self) -> None:
        """Nothing is open."""
