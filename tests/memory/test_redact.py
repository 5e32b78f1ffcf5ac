"""What the secret filter takes out, and what it leaves."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.redact import only_placeholders, redact
from memory.secret_names import NAME, NAMED, NAMES, UNSPACED, at_names
from memory.secret_shapes import luhn
from tests.memory import secret_sentences

SECRETS = {
    "my password is hunter2": ("hunter2", "password"),
    "Password: swordfish": ("swordfish", "password"),
    "password is swordfish.": ("swordfish", "password"),
    "heslo je Tajne123": ("Tajne123", "password"),
    "รหัสผ่านคือ abc123": ("abc123", "password"),
    "密码是hunter2": ("hunter2", "password"),
    "PIN is 1234": ("1234", "code"),
    "API key = 9f8e7d6c5b": ("9f8e7d6c5b", "key"),
    "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCY": ("wJalrXUtnFEMI", "key"),
    "use sk-abcdefghijklmnopqrstuv": ("sk-abc", "token"),
    "ghp_abcdefghijklmnopqrstuvwxyz0123": ("ghp_", "token"),
    "Authorization: Bearer abcdefghijklmnop1234": ("abcdefghijklmnop", "token"),
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlMTIz": ("eyJ", "token"),
    "postgres://ana:p4ss@db/shop": ("p4ss", "password"),
    "card 4111 1111 1111 1111": ("4111", "card number"),
    "5500-0055-5555-5559": ("5500", "card number"),
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----": ("MIIE", "private key"),
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn": ("b3Blbn", "private key"),
    "https://hooks.slack.com/services/T000/B000/XXXX": ("T000", "webhook address"),
    "it is Zx9Qw3Er7Ty1Ui5Op2As8Df4Gh6Jk0Lz": ("Zx9Qw3Er", "key"),
}
HARMLESS = (
    "The password is required.",
    "the token is expired",
    "The pin is in the drawer",
    "Secret Santa: Bob",
    "the budget is 5000 tokens: 4000 in, 1000 out",
    "tokens: 5000",
    "phone 4111 1111 1111 1112",
    "Commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "memory 01ARZ3NDEKTSV4RRFFQ69G5FAV of session 01M8QYWP11ENFKN51GSG7TQMEC",
    "Ana's key decision: we ship in May",
    "https://example.org/a/b?c=d@e",
)

SLOW = (
    "password a ",
    "heslo k wifi je ",
    "pw:",
    "PIN 1",
    "รหัสผ่าน",
    "password " + "a" * 36 + " is ",
    "password for x is " + "a1.-" * 200,
    "密码是",
    "passphrase: word ",
    "password: a b c ",
    "code 7741 x ",
    "7741 is the code ",
    "alarm code for the door is 77 ",
    "hunter2 is my ",
    "hunter2x is my password ",
    "backup codes: 1234-5678, ",
    "รหัส 77",
    "验证码4",
)
PIECES = (
    *("password", "heslo", "PIN", "pin", "CVV", "รหัสผ่าน", "API key", "token", "pw"),
    *(" ", " ", " ", " is ", " je ", ": ", "=", "คือ", " now ", " to ", " for wifi", " k ", " and ", "\n", ". ", ", "),
    *(
        "Kocour123",
        "Xk9-blue",
        "4821",
        "2024",
        "123",
        '"Abc123x"',
        "'",
        "9x",
        "SunFlower",
        "0a1b2c3d4e5f6071",
        "]",
        "[",
    ),
    *("code", "alarm code", "passphrase", "seed phrase", "backup codes", "รหัส", "验证码", "error ", " is my ", "door"),
    *("7741", "7741#", "12-34-56", "1234-5678", "correct horse battery staple", "word", "ask Ana", " the code"),
    *("4111 1111 1111 1111", "removed", "https://", "Zx9Qw3Er7Ty1Ui5Op2As8Df4Gh6Jk0Lz"),
)
FAR = {
    "heslo k wifi je Kocour123": "heslo k wifi je [password removed]",
    "Heslo od trezoru: Modra-Velryba-9": "Heslo od trezoru: [password removed]",
    "password for the router is Xk9-blue": "password for the router is [password removed]",
    "wifi password at home is Sunflower-77": "wifi password at home is [password removed]",
    "The password of the router: Sunflower77!": "The password of the router: [password removed]!",
    "PIN to my phone is 4821": "PIN to my phone is [code removed]",
    "pin k telefonu je 4821": "pin k telefonu je [code removed]",
    "รหัสผ่าน wifi คือ Somchai99": "รหัสผ่าน wifi คือ [password removed]",
    "My API key for OpenWeather is 0a1b2c3d4e5f60718293a4b5c6d7e8f9": "My API key for OpenWeather is [key removed]",
    "heslo na Netflix mám Kocour123": "heslo na Netflix mám [password removed]",
    "login ana / heslo Tajne-123": "login ana / heslo [password removed]",
    "pw: hunter2": "pw: [password removed]",
    "CVV 123 expiry 12/27": "CVV [code removed] expiry 12/27",
    "the password is now Xk9-blue.": "the password is now [password removed].",
    "The password for the iPad is SunFlower.": "The password for the iPad is [password removed].",
    "password to Netflix is Abc123x": "password to Netflix is [password removed]",
    "My PIN code for the bank is 4821.": "My PIN code for the bank is [code removed].",
    "PIN 4821": "PIN [code removed]",
    "Passwort für das WLAN ist Blume-2718": "Passwort für das WLAN ist [password removed]",
    "รหัสผ่านไวไฟคือ Somchai99": "รหัสผ่านไวไฟคือ [password removed]",
    "heslo k účtu: S3cr!t": "heslo k účtu: [password removed]",
    "the access token for staging is 9f8e7d6c5bqq": "the access token for staging is [token removed]",
    "the password for the safe is 739154": "the password for the safe is [password removed]",
    "password (router): Xk9-blue": "password (router): [password removed]",
    "heslo k wifi je Kocour123 a pin k SIM je 4821": "heslo k wifi je [password removed] a pin k SIM je [code removed]",
    "CVV of my Visa is 123": "CVV of my Visa is [code removed]",
    "password for example.com is Xk9-blue": "password for example.com is [password removed]",
    "password for the router is abc123 for guests": "password for the router is [password removed] for guests",
    'the password for Ana\'s laptop is "Xk9-blue"': "the password for Ana's laptop is [password removed]",
}
"""Secrets with words between them and their name, or with no link at all."""
ORDINARY = (
    "the password policy for the router is strict",
    "heslo kampaně je svoboda",
    "the token is refreshed",
    "The PIN for meetings changed in 2024",
    "password reset takes 15 minutes",
    "The PIN for the meeting is 2024",
    "The pin on the map is 1500 m away",
    "The pin k poradě je v 14:00",
    "The password manager at home is 1Password",
    "Our password manager is 1Password",
    "The password for the router is case-sensitive",
    "The password for the wiki is 12 characters long",
    "The password policy for admins is 12-character minimum",
    "My password to Netflix expires in May",
    "Password hashing for users is SHA-256",
    "The password for Netflix: ana@example.com has it",
    "The password for the wifi is WPA2 encrypted",
    "I forgot the password and my flight is OK1234",
    "The token budget for the agent is 128k",
    "The secret of good pizza is 00-flour-2",
    "The token for the laundry is 5 euros",
    "The password for the safe is in box B12",
    "Heslo k wifi visí na ledničce",
    "Heslo pro letošní ples je Maškarní",
    "heslo na wifi mám na ledničce",
    "heslo k účtu je 3 roky staré",
    "Heslo od trezoru zná jen babička",
    "PIN k nové kartě přijde 12.5.2026",
    "PIN k telefonu je od 1.5. jiný",
    "Platnost hesla končí 31.12.2026",
    "รหัสผ่าน wifi คือความลับ",
    "รหัสผ่านอยู่ในสมุด",
    "ลืมรหัสผ่าน 3 ครั้ง",
    "รหัสผ่านต้องยาวอย่างน้อย 12 ตัวอักษร",
    "ควรเปลี่ยนรหัสผ่านทุก 90 วัน",
    "รหัสผ่าน wifi คือ เรื่องที่ต้องถามแม่",
    "รหัสผ่านใหม่ใช้ได้ตั้งแต่ 12:30",
    "รหัสผ่าน wifi เปลี่ยนปี 2569",
    "The API key for OpenWeather is in the vault",
    "The API key for maps was rotated on 2026-05-01",
    "The password for the wiki is at https://wiki.example.org/x9",
    "The PIN for the alarm is four digits",
    "Session token lifetime is 3600 seconds",
    "The access key for the building is under the mat",
    "password 2024",
    "password COVID-19",
    "PIN 2024",
    "The passcode for the meeting changes every 30 days",
    "The parola d'ordine for today is pace",
)
"""The same words where nothing is secret."""


@pytest.mark.parametrize("text", list(FAR))
def test_a_secret_is_found_behind_words_that_say_whose_it_is(text: str) -> None:
    done = redact(text)
    assert done.text == FAR[text]
    assert redact(done.text) == type(done)(done.text, ())


@pytest.mark.parametrize(
    ("kind", "marked"),
    [
        *(("password", one) for one in secret_sentences.PASSWORDS),
        *(("code", one) for one in secret_sentences.CODES),
    ],
)
def test_phrases_and_codes_are_found_in_many_languages(kind: str, marked: str) -> None:
    done = redact(marked.replace("«", "").replace("»", ""))
    assert done.text == re.sub("«[^»]*»", f"[{kind} removed]", marked)
    assert done.kinds == (kind,)
    assert redact(done.text).text == done.text


@pytest.mark.parametrize(
    ("text", "nothing_more"),
    [
        ("[token removed]", True),
        ("[password removed], [card number removed].", True),
        ("PIN: [code removed]", False),
        ("[something removed]", False),
        ("...", False),
        ("", False),
    ],
)
def test_a_text_of_placeholders_alone_says_nothing_more(text: str, nothing_more: bool) -> None:
    assert only_placeholders(text) is nothing_more


@pytest.mark.parametrize("text", [*ORDINARY, *secret_sentences.ORDINARY])
def test_sentences_about_passwords_and_codes_stay_as_they_are(text: str) -> None:
    assert redact(text) == type(redact(""))(text, ())


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_filtering_sentences_twice_changes_nothing_more(text: str) -> None:
    once = redact(text)
    assert redact(once.text).text == once.text


@given(
    st.sampled_from(list(NAMES)).flatmap(
        lambda held: st.tuples(st.just(held), st.from_regex(NAMES[held], fullmatch=True))
    )
)
def test_a_name_holds_what_it_is_looked_for_by(name: tuple[str, str]) -> None:
    held, written = name
    assert held in written


@pytest.mark.parametrize("pattern", [NAME, NAMED])
@given(st.lists(st.sampled_from((*PIECES, *NAMES, *UNSPACED, *"İıſ\u212aSKI")), max_size=14).map("".join))
def test_names_are_found_where_the_whole_pattern_finds_them(pattern: re.Pattern[str], text: str) -> None:
    assert [match.span() for match in at_names(pattern, text)] == [match.span() for match in pattern.finditer(text)]


@pytest.mark.parametrize("name", ["PA\u017f\u017fWORD", "AP\u0130 \u212aEY", "p\u0131n"])
def test_letters_that_stand_for_others_hide_no_name(name: str) -> None:
    assert redact(f"{name}: 48213").kinds


@pytest.mark.parametrize("text", list(SECRETS))
def test_a_secret_becomes_a_placeholder_and_its_kind_is_told(text: str) -> None:
    secret, kind = SECRETS[text]
    done = redact(text)
    assert secret not in done.text
    assert kind in done.kinds
    assert redact(done.text) == type(done)(done.text, ())


@pytest.mark.parametrize("text", HARMLESS)
def test_ordinary_sentences_stay_as_they_are(text: str) -> None:
    assert redact(text) == type(redact(""))(text, ())


@given(st.text(max_size=300))
def test_filtering_twice_changes_nothing_more(text: str) -> None:
    once = redact(text)
    assert redact(once.text).text == once.text


def test_the_check_digit_of_cards() -> None:
    assert luhn("4111111111111111")
    assert not luhn("4111111111111112")


@pytest.mark.parametrize(
    "piece",
    [
        "password is ",
        "4111 ",
        "-----BEGIN PRIVATE KEY-----",
        "a://b:",
        "eyJaaaaaaaa.",
        "A1b",
        "token ",
        " ",
        "'",
        "1",
        *SLOW,
    ],
)
def test_no_text_makes_the_filter_slow(piece: str) -> None:
    def spent(size: int) -> float:
        text = (piece * size)[: size * 2]
        started = time.process_time()
        redact(text)
        return time.process_time() - started

    small = min(spent(10_000) for _ in range(3))
    assert spent(40_000) < 20 * small + 0.2
