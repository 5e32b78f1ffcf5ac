"""Shapes that are secrets wherever they stand: private keys, tokens, addresses of webhooks, cards, random words."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

BEGIN_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,20}-----")
END_KEY = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,20}-----")

# Every repetition has a limit or stands alone, so that the time grows with the length of the text only.
# What begins with a set of characters and looks behind it then is many times faster than what looks behind first.

TOKENS = re.compile(
    r"""(?<![A-Za-z0-9_])(?:
      sk-[A-Za-z0-9_-]{16,400} | [rsp]k_(?:live|test)_[A-Za-z0-9]{10,200} | whsec_[A-Za-z0-9+/=]{16,200}
    | gh[pousr]_[A-Za-z0-9]{20,300} | github_pat_[A-Za-z0-9_]{20,300} | gl(?:pat|dt|rt|ptt|cbt)-[A-Za-z0-9_-]{16,200}
    | xox[abeoprs]-[A-Za-z0-9-]{10,300} | xapp-[A-Za-z0-9-]{10,300}
    | (?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9]) | AIza[A-Za-z0-9_-]{30,60} | ya29\.[A-Za-z0-9_-]{20,400}
    | hf_[A-Za-z0-9]{20,200} | npm_[A-Za-z0-9]{30,80} | pypi-[A-Za-z0-9_-]{30,400} | dckr_pat_[A-Za-z0-9_-]{16,100}
    | SG\.[A-Za-z0-9_-]{10,100}\.[A-Za-z0-9_-]{10,100} | key-[a-f0-9]{32}(?![a-f0-9]) | shp(?:at|ca|pa|ss)_[a-f0-9]{32}
    | eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{4,8000}\.[A-Za-z0-9_-]{4,2000}
    | \d{8,10}:AA[A-Za-z0-9_-]{30,40} | AGE-SECRET-KEY-1[A-Z0-9]{50,70} | do[opr]_v1_[a-f0-9]{64}
    | eng_[A-Za-z0-9]{24,200} | gsk_[A-Za-z0-9]{20,200} | r8_[A-Za-z0-9]{30,60} | pplx-[A-Za-z0-9]{30,80}
    | lin_api_[A-Za-z0-9]{30,60} | secret_[A-Za-z0-9]{30,60} | ntn_[A-Za-z0-9]{30,60} | sq0[a-z]{3}-[A-Za-z0-9_-]{20,60}
    )""",
    re.VERBOSE,
)
"""sk-…, ghp_…, eyJ….….…: what makers of keys begin them with, so that they are found."""
HOOK_URL = re.compile(
    r"https://(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks|[a-z0-9-]{1,60}\.webhook\.office\.com)"
    r"/[A-Za-z0-9/_@-]{8,300}"
)
"""https://hooks.slack.com/services/T000/B000/XXXX: whoever has the address may write."""
URL_PASSWORD = re.compile(r"(?<![A-Za-z0-9])([A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@]{0,200}:)([^\s/@]{1,200})(?=@)")
"""postgres://ana:p4ss@db/shop"""
HEADER = re.compile(r"([Bb](?<!\w[Bb])(?i:earer|asic)[ \t]{1,4})([A-Za-z0-9._~+/=-]{16,4000})")
"""Authorization: Bearer abcdefghijklmnop1234"""
CARD = re.compile(r"\d(?<![\d.]\d)(?:[ -]?\d){12,18}(?!\d)")
"""4111 1111 1111 1111; more digits than a card has, or the decimals of an amount, are none."""
LONG_WORD = re.compile(r"(?<![A-Za-z0-9_/+=.-])[A-Za-z0-9_+=-]{32,400}(?![A-Za-z0-9_+=/-])")
"""Zx9Qw3Er7Ty1Ui5Op2As8Df4Gh6Jk0Lz; the hex of commits and LONG_NAMES_IN_CAPITALS are left."""


def without_shapes(text: str, note: Callable[[str], str]) -> str:
    """The text without private keys, addresses that let in, and tokens. `note` makes the placeholder of a kind."""
    text = _without_private_keys(text, note)
    text = HOOK_URL.sub(lambda m: note("webhook address"), text)
    if "://" in text:
        text = URL_PASSWORD.sub(lambda m: m[1] + note("password"), text)
    text = TOKENS.sub(lambda m: note("token"), text)
    return HEADER.sub(lambda m: m[1] + note("token"), text)


def without_cards(text: str, note: Callable[[str], str]) -> str:
    return CARD.sub(lambda m: note("card number") if _is_card(m[0]) else m[0], text)


def without_random_words(text: str, note: Callable[[str], str]) -> str:
    return LONG_WORD.sub(lambda m: note("key") if _looks_random(m[0]) else m[0], text)


def luhn(digits: str) -> bool:
    """Whether the check digit of a card number fits (ISO/IEC 7812)."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if place % 2 else 1)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _without_private_keys(text: str, note: Callable[[str], str]) -> str:
    """From each BEGIN to its END; a key whose end is missing reaches to the end of the text."""
    out: list[str] = []
    at = 0
    while (begin := BEGIN_KEY.search(text, at)) is not None:
        out += [text[at : begin.start()], note("private key")]
        end = END_KEY.search(text, begin.end())
        at = len(text) if end is None else end.end()
    return "".join([*out, text[at:]])


def _is_card(text: str) -> bool:
    digits = "".join(character for character in text if character.isdecimal())
    return digits[0] in "23456" and len(set(digits)) > 1 and luhn(digits)


def _looks_random(word: str) -> bool:
    """Long, of all three kinds of characters, and without the repetitions of words."""
    kinds = (any(c.islower() for c in word), any(c.isupper() for c in word), sum(c.isdigit() for c in word) >= 3)
    if not all(kinds):
        return False
    counts = Counter(word)
    entropy = -sum(n / len(word) * math.log2(n / len(word)) for n in counts.values())
    return entropy > 4.0
