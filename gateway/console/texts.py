"""The texts of the console, one file for a language."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def load_texts(language: str = "en") -> dict[str, dict[str, str]]:
    """Texts by page and name. Raises FileNotFoundError for a language nobody has written."""
    source = files("gateway.console").joinpath("texts", f"{language}.toml")
    raw: dict[str, Any] = tomllib.loads(source.read_text("utf-8"))
    return raw
