"""Counts tokens with tiktoken, without a network: the ranks come from the bpe-openai wheel."""

from __future__ import annotations

import gzip
import hashlib
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tiktoken
from tiktoken_ext import openai_public

ENCODING = "cl100k_base"
RANKS_URL = "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"
CHUNK = 20_000


class TokenCounter:
    """Counts by one encoding; other models' tokenizers differ by a factor that is learnt elsewhere."""

    def __init__(self, encoding: tiktoken.Encoding) -> None:
        self._encoding = encoding

    def count(self, text: str) -> int:
        """Tokens of a text. Long texts are cut into chunks: tiktoken is quadratic in a run without a break."""
        if len(text) <= CHUNK:
            return self._count(text)
        return sum(self._count(text[start : start + CHUNK]) for start in range(0, len(text), CHUNK))

    def _count(self, text: str) -> int:
        return len(self._encoding.encode(text, disallowed_special=()))


def load(cache_dir: Path) -> TokenCounter:
    """Builds the encoding from the wheel's ranks, by way of tiktoken's own cache folder and hash check.

    Takes a fifth of a second and 26 MB. Raises OSError when `cache_dir` cannot be written.
    """
    cached = cache_dir / hashlib.sha1(RANKS_URL.encode(), usedforsecurity=False).hexdigest()
    ranks = gzip.decompress(_wheel_file(f"{ENCODING}.tiktoken.gz").read_bytes())
    if not cached.exists() or cached.read_bytes() != ranks:  # tiktoken would fetch a damaged file anew
        cache_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = cached.with_suffix(".tmp")
        temporary.touch(mode=0o600)
        temporary.write_bytes(ranks)
        temporary.replace(cached)
    os.environ["TIKTOKEN_CACHE_DIR"] = str(cache_dir)
    return TokenCounter(encoding())


@cache
def encoding() -> tiktoken.Encoding:
    """One a process, whatever data directories it serves: it is always the same. From `TIKTOKEN_CACHE_DIR`."""
    parts: dict[str, Any] = openai_public.cl100k_base()
    made = tiktoken.Encoding(**parts)
    parts["mergeable_ranks"].clear()  # 16 MB that only decoding of single tokens would need
    return made


def _wheel_file(name: str) -> Path:
    """A file of the bpe-openai wheel. The package itself is not imported: that alone takes 69 MB."""
    spec = find_spec("bpe_openai")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("The package bpe-openai is not installed; install sessiond again.")
    return Path(spec.origin).parent / "data" / name
