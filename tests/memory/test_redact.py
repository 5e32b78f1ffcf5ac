"""What the secret filter takes out, and what it leaves."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.redact import luhn, redact

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
    ["password is ", "4111 ", "-----BEGIN PRIVATE KEY-----", "a://b:", "eyJaaaaaaaa.", "A1b", "token ", " ", "'", "1"],
)
def test_no_text_makes_the_filter_slow(piece: str) -> None:
    def spent(size: int) -> float:
        text = (piece * size)[: size * 2]
        started = time.perf_counter()
        redact(text)
        return time.perf_counter() - started

    small = min(spent(10_000) for _ in range(3))
    assert spent(40_000) < 20 * small + 0.2
