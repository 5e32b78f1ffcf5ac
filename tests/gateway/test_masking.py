"""Addresses are shown without the passwords and keys in them."""

from __future__ import annotations

import time

import pytest

from gateway.masking import masked, masked_target


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://ana:p4ss@llm.example/v1", "https://***@llm.example/v1"),
        ("https://p4ss@llm.example", "https://***@llm.example"),
        ("http://a:p4ss@b:p4ss@[::1]:80/v1", "http://***@[::1]:80/v1"),
        ("see http://a:p4ss@x, or HTTP://b:p4ss@y.", "see http://***@x, or HTTP://***@y."),
        ("https://x/v1?api-version=p4ss&p4ss#p4ss", "https://x/v1?api-version=***&***#***"),
        ("https://x?sig=p4ss", "https://x?sig=***"),
        ("cannot reach 'https://x/y?t=p4ss': refused", "cannot reach 'https://x/y?t=***': refused"),
        ("https://x/v1/users/ana@example.com", "https://x/v1/users/ana@example.com"),
        ("mail ana@example.com, what? a=b", "mail ana@example.com, what? a=b"),
    ],
)
def test_passwords_and_values_of_a_query_become_stars(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert masked(shown) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.slack.com/services/T0AAAAAAA/B0BBBBBBB/p4ssXXXXXXXXXXXXXXXXXXXX", "/T0AAAAAAA/B0BBBBBBB/***"),
        ("https://api.telegram.org/bot123456789:p4ssDEF1234ghIkl-zyx57W2v1u/sendMessage", "/***/sendMessage"),
        ("https://a1b2c3d4e5f6g7h8.receiver.example/in/x", "://a1b2c3d4e5f6g7h8.receiver.example/in/x"),
        ("https://receiver.example/in?token=p4ss&channel=p4ss", "/in?token=***&channel=***"),
        ("https://receiver.example/sessiond/replies-of-the-morning", "/sessiond/replies-of-the-morning"),
    ],
)
def test_of_a_target_the_parts_that_look_like_keys_are_hidden_too(url: str, shown: str) -> None:
    assert masked_target(url).endswith(shown)
    assert masked_target(masked_target(url)) == masked_target(url)


def test_the_time_it_takes_grows_with_the_length_only() -> None:
    started = time.process_time()
    for text in ("a://" * 100_000, "a://" + "@" * 400_000, "://?" * 100_000, "a://b/" + "c" * 400_000):
        masked(text)
        masked_target(text)
    assert time.process_time() - started < 5
