"""The tokenizer: what finds what, in which language, and how long it takes."""

from __future__ import annotations

import re
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.text import MAX_TERM, STOP_WORDS, cut, cut_query

FOUND = [
    # English: forms of a word, case, punctuation
    ("The meetings were moved to Thursday.", "meeting"),
    ("She keeps running every morning", "runs"),
    ("Two parties signed the agreements", "party agreement"),
    ("Invoice INV-2024_0042 was paid", "inv 0042"),
    ("Melanie's brother's car", "Melanie brother"),
    ("It costs ½ of ﬁve ㎏", "five kg"),
    ("A zebra, one idea, a photo, the pizza and a potato", "zebras ideas photos pizzas potatoes"),
    ("Zebras, ideas, photos, pizzas and potatoes", "zebra idea photo pizza potato"),
    ("Dogs, bugs, mics, bags and eggs", "dog bug mic bag egg"),
    ("A dog, a bug, a mic, a bag, an egg", "dogs bugs mics bags eggs"),
    # Czech: cases, numbers, alternating consonants, a vowel that comes and goes
    ("Ve středu jedu do Prahy", "Praha"),
    ("Bydlím v Praze na Žižkově", "Praha Žižkov"),
    ("Přítelkyně má ráda koťata", "přítelkyni"),
    ("Zítra jdu k zubaři", "zubař"),
    ("Podepsali jsme smlouvu s firmami z Brna", "smlouva firma Brno"),
    ("Máma s matkou matek", "matka"),
    ("S otcem jsme koupili knihy", "otec koupit kniha"),
    ("Bolí mě ruce", "ruka"),
    ("Řekni to Olze", "olze Olga"),
    ("Kočka spí na gauči", "kočce koček kočkou"),
    ("Dárek pro Aničku a tetičku", "Aničce tetičce"),
    ("Babičce volám v neděli", "babička babičky"),
    ("Hraje v lize a píše o józe", "liga jóga"),
    ("Na dvoře štěkali psi", "dvora štěkal"),
    # Czech typed without diacritics, and the other way round
    ("Žluťoučký kůň úpěl ďábelské ódy", "zlutoucky kun dabelske"),
    ("prijedu vlakem v patek", "přijedu pátek"),
    # Thai without spaces
    ("ฉันแพ้ถั่วลิสงและอาหารทะเล", "ถั่วลิสง"),
    ("พรุ่งนี้มีประชุมตอนเก้าโมงเช้า", "ประชุม"),
    ("เลขห้องคือ ๔๐๒", "402"),
    # Chinese: two characters, one character, mixed with Latin
    ("我对花生过敏，请记住", "花生"),
    ("我家养了一只猫", "猫"),
    ("新手机是iPhone15，很好用", "iphone15 手机"),
    # others
    ("東京タワーに行きました", "タワー"),
    ("서울에서 만나요", "서울"),
    ("Ёжик в тумане", "ёжик"),
    # emoji: with and without colour, skin and joints
    ("Kdo snědl 🍒🍒?", "🍒"),
    ("I ❤️ Brno", "❤"),
    ("Ano 👍🏽", "👍 👍🏿"),
    ("Eva 👩‍💻", "👩 💻"),
    ("1️⃣ první", "1"),
    ("Jedu do 🇨🇿🇩🇪", "🇩🇪"),
    ("Łódź, Straße, İstanbul, Ærø", "lodz strasse istanbul aero"),
]
NOT_FOUND = [
    ("The cat sat on the mat", "dog"),
    ("Bydlím v Brně", "Praha"),
    ("ฉันแพ้ถั่วลิสง", "โรงแรม"),
    ("我对花生过敏", "医院"),
    ("I ❤️ Brno", "⭐️"),
    ("🇨🇿", "🇩🇪"),
]
WORDS = st.text(st.characters(categories=["L", "N", "Zs"], max_codepoint=0xFFFF), max_size=60)


@pytest.mark.parametrize(("text", "query"), FOUND)
def test_every_word_of_the_query_is_found(text: str, query: str) -> None:
    for word in query.split():
        assert set(cut_query(word)) & set(cut(text)), (word, cut_query(word), cut(text))


@pytest.mark.parametrize(("text", "query"), NOT_FOUND)
def test_other_words_are_not(text: str, query: str) -> None:
    assert not set(cut_query(query)) & set(cut(text))


def test_words_of_every_sentence_count_only_when_there_are_no_others() -> None:
    assert cut_query("What did she say about the boat?") == cut_query("say boat")
    assert cut_query("kde je smlouva?") == cut_query("smlouva")
    assert cut_query("who is it") == ["who", "is", "it"]
    assert cut_query("?!… — ├──") == []
    assert cut_query("Where is the boat? 🙂") == cut_query("boat")
    assert cut_query("🍒?") == cut_query("what is 🍒")


def test_stop_words_are_folded_words() -> None:
    assert all(re.fullmatch(r"[a-z]+", word) for word in STOP_WORDS)


@given(WORDS)
def test_case_and_unicode_form_make_no_difference(text: str) -> None:
    for form in ("NFC", "NFD", "NFKC"):
        assert cut(unicodedata.normalize(form, text)) == cut(text)


@given(st.text("abcdeřžůťóńŁüßéABCĎŠ ", max_size=60))
def test_upper_case_and_missing_diacritics_make_no_difference(text: str) -> None:
    bare = "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))
    assert cut(text.upper()) == cut(text) == cut(bare)


@given(st.text(max_size=200))
def test_terms_fit_a_full_text_query(text: str) -> None:
    for term in cut(text):
        assert 0 < len(term) <= MAX_TERM
        assert not re.search(r"[\x00-\x2f\x3a-\x60\x7b-\x7f\s]", term)
    query = cut_query(text)
    assert len(set(query)) == len(query)
    assert set(query) <= set(cut(text))


@given(st.text(max_size=100), st.text(max_size=100))
def test_terms_of_a_text_are_those_of_its_parts(first: str, second: str) -> None:
    assert cut(f"{first} {second}") == cut(first) + cut(second)


@pytest.mark.parametrize(
    "hostile",
    [
        "a\u0301\u0323" * 10,
        "a" + "\u0301\u0323" * 10,
        "x" * 21,
        "ถั่" * 7,
        "猫" * 21,
        "\ufdfa" * 21,
        " \u200b" * 10,
        "é-" * 10,
    ],
)
def test_the_time_is_linear_whatever_somebody_writes(hostile: str) -> None:
    def best_s(text: str) -> float:
        times: list[float] = []
        for _ in range(3):
            started = time.process_time()
            cut(text)
            times.append(time.process_time() - started)
        return min(times)

    cut(hostile)
    assert best_s(hostile * 4000) < 40 * best_s(hostile * 400) + 0.01
