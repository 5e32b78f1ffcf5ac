"""Messages that want nothing looked up ("ok", "good night"), told by an embedding model from those that do.

Such a message is about as near to one fact as to any other, so no distance says that nothing fits it; to small talk in
many languages it is nearer than what asks for something (figures: memory/README.md, "Small talk").
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory.embed import Embedder, Vectors

SMALL_TALK = (
    "ok", "okay, thanks", "hello", "hi there", "good morning", "good night", "bye, see you tomorrow", "yes", "no",
    "yes please", "no, thank you", "great", "sounds good", "got it", "go on", "continue",
    "díky", "ahoj", "dobré ráno", "ano, prosím", "ne", "dobře", "pokračuj",
    "danke", "hallo", "ja, bitte", "gracias", "merci, au revoir", "obrigado", "grazie mille", "спасибо", "привет",
    "ขอบคุณ", "สวัสดี", "ใช่", "谢谢", "你好", "ありがとう", "はい", "감사합니다",
)  # fmt: skip
WANTING = (
    "what is my name?", "where does my sister live?", "the cat", "Peter", "my car broke down again", "I am hungry",
    "how do I travel?", "plan a trip to Rome", "when is the report due?", "which database do we use?",
    "kočka", "kde bydlím?", "co mám ráda?", "wo wohne ich?", "¿cómo se llama mi perro?",
    "ฉันชื่ออะไร", "我住在哪里？", "猫はどこ？",
)  # fmt: skip
NEAREST = 5
SHARE = 0.2
"""Where the limit lies on the way from what wants something to usual small talk."""
TOLD_APART = 0.8
"""A model knows small talk when it puts this share of the samples above all that wants something."""


class SmallTalk:
    """Nothing is small talk until the model was asked about the samples."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._samples: Vectors | None = None
        self.limit = math.inf
        """A message whose mean cosine to its nearest samples is above it is small talk."""

    async def prepare(self) -> None:
        """Raises EmbeddingFailed; then try again."""
        samples = await self._embedder.embed_queries(SMALL_TALK)
        self.limit = _limit(samples, await self._embedder.embed_queries(WANTING))
        self._samples = samples

    async def is_it(self, text: str) -> bool:
        """Raises EmbeddingFailed."""
        if self._samples is None:
            return False
        return bool(_nearness(await self._embedder.embed_queries([text]), self._samples)[0] > self.limit)


def _nearness(vectors: Vectors, samples: Vectors, *, skip: int = 0) -> Vectors:
    """The mean cosine of each vector to its nearest samples. `skip`: how many of these are the text itself."""
    import numpy as np

    nearest = np.sort(vectors @ samples.T, axis=1)[:, ::-1]
    return nearest[:, skip : skip + NEAREST].mean(axis=1)


def _limit(samples: Vectors, wanting: Vectors) -> float:
    """Out of reach where the model does not know small talk, as one that compares spellings."""
    import numpy as np

    highest, usual = _nearness(wanting, samples).max(), _nearness(samples, samples, skip=1)
    if np.mean(usual > highest) < TOLD_APART:
        return math.inf
    return float(highest + SHARE * (np.median(usual) - highest))
