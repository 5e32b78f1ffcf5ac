"""Tokens of files, against the examples in the providers' documentation."""

from __future__ import annotations

import pytest

from gateway.models.image_tokens import anthropic_tokens, attachment_tokens, openai_tokens
from sessions.entries import Attachment


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(1024, 1024, 765), (2048, 4096, 1105), (512, 512, 255), (1, 1, 255), (100_000, 1, 765), (None, None, 765)],
)
def test_openai_counts_tiles(width: int | None, height: int | None, tokens: int) -> None:
    assert openai_tokens(width, height) == tokens


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(200, 200, 54), (1000, 1000, 1334), (1092, 1092, 1590), (8000, 8000, 1600), (1, 1, 1), (None, 5, 1600)],
)
def test_anthropic_counts_pixels(width: int | None, height: int | None, tokens: int) -> None:
    assert anthropic_tokens(width, height) == tokens


def test_a_file_that_is_no_image_costs_a_line() -> None:
    letter = Attachment(sha256="0" * 64, media_type="application/pdf", size_bytes=10**6)
    assert attachment_tokens("anthropic", letter) == attachment_tokens("openai", letter) < 100
