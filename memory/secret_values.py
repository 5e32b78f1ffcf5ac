"""What a secret value looks like, and what looks like one and is none."""

from __future__ import annotations

import itertools
import re

from memory.secret_shapes import CARD

QUOTES = "\"'`„“"
HARMLESS = frozenset(
    "a an the not no now so too very also already always never only still in on at by for from of to with stored kept "
    "saved required needed expired wrong correct missing empty unknown optional invalid valid secret encrypted hashed "
    "changed rotated reset ok fine long short weak strong safe different same shared private public used set being "
    "it that this which what where who one none null true false je v na ne není uložené uloženo špatně povinné prošlé "
    "nicht in im ein eine der die das falsch abgelaufen".split()
)
"""Words after "the password is" that are no password."""
TAKEN = re.compile(r"^\[|\[[a-z]{3,8}$|^removed\]")
"""The first word of a placeholder, and its last."""
UNITS = re.compile(
    r"(?i)\s{0,2}(?:%|€|\$|[°/:.-]\d|(?:mm?|cm|km|kg|g|v|mv|czk|kč|eur|usd|people|lidí|metres|meters|miles|metrů|minutes|minut|"
    r"hours|hodin|seconds|sekund|days|dní|times|krát|characters|znaků|words|slov|tokens|users|points|votes|ohms?)\b)"
)
"""Behind a number these make it an amount: "1500 m away", "5000 tokens"."""
PLAIN_SHAPE = re.compile(
    r"""(?ix)
      \d{1,4}[./:-]\d{1,2}(?:[./:-]\d{0,4})?(?:t[\d:.z+-]{0,20})?(?:am|pm|h)?   # dates and times
    | v?\d{1,5}(?:[.,]\d{1,5}){1,4}(?:[a-z]{1,3}\d{0,2})?                     # versions and amounts
    | \d{1,5} | \d{1,6}(?:[-/.][a-zá-ž]{1,20}){1,3}                            # counts, "8-character"
    | \d{1,6}(?:st|nd|rd|th|x|k|m|g|s|h|min|ms|gb|mb|kb|kč|v|w|am|pm|px)
    | [a-z]{1,2}-?\d{1,4}                                                      # rooms, trains, papers
    | (?:sha|aes|rsa|wpa|utf|iso|rfc|oauth|tls|argon|base|ed|gpt|cve|http|ipv|covid
      |bcrypt|scrypt|pbkdf|ecdsa|hmac|erc|bip|ieee|totp)[\w.]{0,4}-?[\d./:-]{1,12}(?:-?[a-z]{1,20}){0,2}
    | [1-9]password[\w']{0,3} | (?:last|kee)pass\w{0,5} | bitwarden | icloud | github | gitlab | onedrive | paypal
    | youtube | whatsapp | linkedin
    | [\w-]{1,60}\.(?:py|ts|js|go|rs|md|txt|json|ya?ml|toml|pdf|html?|docx?|xlsx?|csv|png|jpe?g)
    | [\w.+-]{1,64}@[\w-]{1,63}(?:\.[a-z]{2,20}){1,4}                          # addresses
    | (?:https?:)?//.{0,400} | www\..{0,400} | [/~].{0,400}
    """
)
"""What has digits or signs, and is no secret."""


def bare_value(value: str) -> str:
    """Without quotation marks, and without the end of its sentence."""
    return value.strip(QUOTES).rstrip(".!?")


def is_code(bare: str, value: re.Match[str]) -> bool:
    """Three to eight digits that are neither a year, nor an amount, nor the beginning of a card's number."""
    if not bare.isdecimal() or not 3 <= len(bare) <= 8 or (len(bare) == 4 and bare[:2] in ("19", "20")):
        return False
    return UNITS.match(value.string, value.end()) is None and CARD.match(value.string, value.start(1)) is None


def looks_secret(bare: str, *, last: bool) -> bool:
    """Digits, signs inside a word ("S3cr!t"), or, where the sentence ends (`last`), capitals inside ("SunFlower")."""
    if not _is_odd(bare):
        return False
    if bare.isdecimal() or is_mixed(bare):
        return True
    if any(sign in bare for sign in "!@#$%^&*+=~?_|\\") and any(c.isalpha() for c in bare):
        return True
    return last and any(a.islower() and b.isupper() for a, b in itertools.pairwise(bare))


def is_mixed(bare: str) -> bool:
    """Letters and digits: "Kocour123"."""
    return _is_odd(bare) and any(c.isalpha() for c in bare) and any(c.isdigit() for c in bare)


def _is_odd(bare: str) -> bool:
    return len(bare) >= 6 and TAKEN.search(bare) is None and PLAIN_SHAPE.fullmatch(bare) is None
