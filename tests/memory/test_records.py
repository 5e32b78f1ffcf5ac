"""When two texts count as the same."""

from __future__ import annotations

import hashlib
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.records import normalised, text_hash

UNSEEN = ("\u00ad", "\u200b", "\u200c", "\u200d", "\u2060", "\ufeff")


@pytest.mark.parametrize("unseen", UNSEEN, ids=[f"{ord(one):04X}" for one in UNSEEN])
def test_what_nobody_sees_makes_no_other_text(unseen: str) -> None:
    text = "Ana bydlí v Praze."
    hidden = [f"Ana byd{unseen}lí v Praze.", f"{unseen}{text}", f"{text}{unseen}", f"Ana {unseen} bydlí v Praze.", text]
    assert {text_hash(one) for one in hidden} == {text_hash(text)}
    assert normalised(unseen) == ""


@given(st.text(max_size=80).filter(lambda text: not set(text) & set(UNSEEN)))
def test_other_texts_keep_the_hash_they_were_stored_with(text: str) -> None:
    before = " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(" .!。")
    assert text_hash(text) == hashlib.sha256(before.encode("utf-8", "replace")).hexdigest()


def test_texts_differ_by_what_is_seen() -> None:
    assert normalised("ฉันแพ้ถั่ว") != normalised("ฉันแพ้กุ้ง")
    assert normalised("Ana  Nováková!") == normalised("ana nováková") != normalised("ana novakova")
