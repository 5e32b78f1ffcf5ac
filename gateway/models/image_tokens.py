"""How many tokens a file of a message costs, by its provider's rule: an estimate, made before the call."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessions.entries import Attachment

OPENAI_BASE, OPENAI_TILE, OPENAI_SIDE = 85, 170, 512
ANTHROPIC_EDGE, ANTHROPIC_PIXELS, ANTHROPIC_MOST = 1568, 750, 1600
IN_WORDS = 40  # a file a model does not take is named in one line


def attachment_tokens(provider: str | None, attachment: Attachment) -> int:
    """Anthropic's rule for its models, OpenAI's for all others; an image of unknown size counts as a large one."""
    if not attachment.media_type.startswith("image/"):
        return IN_WORDS
    if provider == "anthropic":
        return anthropic_tokens(attachment.width, attachment.height)
    return openai_tokens(attachment.width, attachment.height)


def openai_tokens(width: int | None, height: int | None) -> int:
    """Tiles of 512 pixels, after fitting it into 2048 x 2048 and its short side into 768 (OpenAI, "Images and vision",
    high detail)."""
    if not width or not height:
        width = height = 1024
    scale = min(1.0, 2048 / max(width, height))
    scale = min(scale, 768 / min(width, height))
    tiles = math.ceil(max(1.0, width * scale) / OPENAI_SIDE) * math.ceil(max(1.0, height * scale) / OPENAI_SIDE)
    return OPENAI_BASE + OPENAI_TILE * tiles


def anthropic_tokens(width: int | None, height: int | None) -> int:
    """Width times height over 750, after fitting its long side into 1568, and about 1,600 at most (Anthropic,
    "Vision")."""
    if not width or not height:
        return ANTHROPIC_MOST
    scale = min(1.0, ANTHROPIC_EDGE / max(width, height))
    return min(ANTHROPIC_MOST, math.ceil(width * scale * height * scale / ANTHROPIC_PIXELS))
