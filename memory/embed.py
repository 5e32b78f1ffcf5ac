"""Vectors of texts: what an embedding model promises, and the one that needs no network and no package."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

Purpose = Literal["query", "passage"]

_WORD = re.compile(r"\w+")


class EmbeddingFailed(Exception):
    """No vectors: the model is down, too slow, or gave something else. The message says what to check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Everything that makes vectors comparable; vectors of two fingerprints never meet in a search."""

    provider: str
    model: str
    dimension: int
    query_prefix: str = ""
    passage_prefix: str = ""
    normalised: bool = True

    @property
    def name(self) -> str:
        """16 hex digits, usable in file and collection names."""
        told = (self.provider, self.model, self.dimension, self.query_prefix, self.passage_prefix, self.normalised)
        return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


class Embedder(Protocol):
    """An embedding model. Vectors are rows of length 1, one for each text, in order."""

    async def prepare(self) -> Fingerprint:
        """Loads or asks the model; cheap when repeated. Raises EmbeddingFailed."""
        ...

    async def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Raises EmbeddingFailed."""
        ...

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Raises EmbeddingFailed."""
        ...

    async def close(self) -> None: ...


class HashEmbedder:
    """Texts that share words or their beginnings are near: no model, no network, the same everywhere."""

    def __init__(self, dimension: int = 256) -> None:
        self._fingerprint = Fingerprint(provider="offline", model="hash-2", dimension=dimension)

    async def prepare(self) -> Fingerprint:
        return self._fingerprint

    async def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts)

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts)

    async def close(self) -> None:
        return

    def _embed(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        found = np.zeros((len(texts), self._fingerprint.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            for feature in _features(text):
                number = int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=8).digest(), "big")
                found[row, number % self._fingerprint.dimension] += 1.0 if number >> 63 else -1.0
        return unit_rows(found)


def _features(text: str) -> list[str]:
    """Words without diacritics, and pairs of neighbouring characters of scripts that have no spaces."""
    folded = unicodedata.normalize("NFKD", text.encode("utf-8", "replace").decode()).casefold()
    plain = "".join(c for c in folded if unicodedata.category(c) != "Mn" or c > "\u0e00")
    found: list[str] = []
    for word in _WORD.findall(plain):
        if word.isascii():
            found += (word, word[:5])
        else:
            found += (word[at : at + 2] for at in range(max(1, len(word) - 1)))
    return found or ["\0"]


def unit_rows(vectors: Vectors) -> Vectors:
    """Rows of length 1; a row of zeros becomes the first axis, so that every text has a vector."""
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    empty = (lengths == 0)[:, 0]
    if empty.any():
        vectors = vectors.copy()
        vectors[empty, 0] = 1.0
        lengths[empty] = 1.0
    return (vectors / lengths).astype(np.float32)
