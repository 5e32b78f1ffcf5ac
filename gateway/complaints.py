"""What pydantic finds wrong with a value, in the words of whoever checked it."""

from __future__ import annotations

from typing import Any


def complaint(item: Any) -> str:
    """The words of one of the errors of a `ValidationError`; pydantic puts "Value error, " before those of ours."""
    return str(item["msg"]).removeprefix("Value error, ")
