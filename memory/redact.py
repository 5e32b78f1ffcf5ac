"""The secret filter: shapes of keys, tokens, passwords, private keys and card numbers become placeholders."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

BEGIN_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,20}-----")
END_KEY = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,20}-----")

# every repetition below has a limit or stands alone, so that the time grows with the length of the text only
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
HOOK_URL = re.compile(
    r"https://(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks|[a-z0-9-]{1,60}\.webhook\.office\.com)"
    r"/[A-Za-z0-9/_@-]{8,300}"
)
URL_PASSWORD = re.compile(r"(?<![A-Za-z0-9])([A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@]{0,200}:)([^\s/@]{1,200})(?=@)")
HEADER = re.compile(r"(?i)\b((?:bearer|basic)[ \t]{1,4})([A-Za-z0-9._~+/=-]{16,4000})")

_WORDS = (
    r"pass(?:word|phrase|wd|code)|pwd|passwort|kennwort|heslo|hesla|hasło|contraseña|contrasena|senha|mot de passe|"
    r"пароль|parola|wachtwoord|lösenord|salasana|jelszó|şifre|geheimnis|secret|client[ _-]?secret|"
    r"(?:api|access|secret|private|signing|encryption|auth|master|license|account|storage)[ _-]?key|apikey|"
    r"(?:access|auth|refresh|bearer|session|bot|api|id)?[ _-]?token|credentials?|pin(?: code)?|cvv2?|cvc2?|"
    r"seed phrase|recovery (?:code|phrase)|비밀번호"
)
_UNSPACED = r"รหัสผ่าน|密码|密碼|パスワード"
"""These stand right behind other words."""
_LINK = (
    r"(?:\s{0,4}(?:[:=：＝]|=>|->)"
    r"|\s{1,4}(?:is|are|was|je|ist|lautet|es|est|é|to|jest|är|это)(?=\s)"
    r"|\s{0,4}(?:คือ|是|为|は))\s{0,4}"
)
_VALUE = r"(\"[^\"\n]{1,400}\"|'[^'\n]{1,400}'|`[^`\n]{1,400}`|„[^“\n]{1,400}“|[^\s,;<>()\"'`]{1,400})"
NAMED = re.compile(rf"(?i)((?:(?<![^\W_])(?:{_WORDS})|{_UNSPACED})[\"'`]?)({_LINK}){_VALUE}")
CARD = re.compile(r"(?<![\d.])(?:\d[ -]?){12,18}\d(?![\d])")
LONG_WORD = re.compile(r"(?<![A-Za-z0-9_/+=.-])[A-Za-z0-9_+=-]{32,400}(?![A-Za-z0-9_+=/-])")

# words after "the password is" that are no password
HARMLESS = frozenset(
    "a an the not no now so too very also already always never only still in on at by for from of to with stored kept "
    "saved required needed expired wrong correct missing empty unknown optional invalid valid secret encrypted hashed "
    "changed rotated reset ok fine long short weak strong safe different same shared private public used set being "
    "it that this which what where who one none null true false je v na ne není uložené uloženo špatně povinné prošlé "
    "nicht in im ein eine der die das falsch abgelaufen".split()
)


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without its secrets, and the kinds that were taken out, each once."""

    text: str
    kinds: tuple[str, ...]


def redact(text: str) -> Redacted:
    """Replaces what looks like a secret by `[<kind> removed]`. Redacting twice changes nothing more."""
    kinds: list[str] = []

    def note(kind: str) -> str:
        kinds.append(kind)
        return f"[{kind} removed]"

    text = _without_private_keys(text, note)
    text = HOOK_URL.sub(lambda m: note("webhook address"), text)
    text = URL_PASSWORD.sub(lambda m: m[1] + note("password"), text)
    text = TOKENS.sub(lambda m: note("token"), text)
    text = HEADER.sub(lambda m: m[1] + note("token"), text)
    text = NAMED.sub(lambda m: _named(m, note), text)
    text = CARD.sub(lambda m: note("card number") if _is_card(m[0]) else m[0], text)
    text = LONG_WORD.sub(lambda m: note("key") if _looks_random(m[0]) else m[0], text)
    return Redacted(text, tuple(dict.fromkeys(kinds)))


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


def _named(match: re.Match[str], note: Callable[[str], str]) -> str:
    name, link, value = match[1], match[2], match[3]
    bare = value.strip("\"'`„“").rstrip(".!?")
    if not bare or bare.startswith("[") or not _is_value(name, link, value, bare):
        return match[0]
    tail = value[len(value.rstrip(".!?")) :] if value == value.strip("\"'`„“") else ""
    return f"{name}{link}{note(_kind_of(name))}{tail}"


def _is_value(name: str, link: str, value: str, bare: str) -> bool:
    """After a sign or in quotes everything is a value; after "is" a plain word may belong to the sentence."""
    if name.lower().startswith(("pin", "cv")):
        return bare.isdecimal()
    if "token" in name.lower() and bare.isdecimal():
        return False  # a count of tokens
    if any(sign in link for sign in ":=：＝>") or value != value.strip("\"'`„“"):
        return bare.lower() not in HARMLESS
    if not bare.isascii():
        return any(character.isdigit() for character in bare)
    return bare.lower() not in HARMLESS and (not bare.isalpha() or not bare.islower() or not _is_plain(name))


def _is_plain(name: str) -> bool:
    """Words that begin ordinary sentences, as in "the token is refreshed": there a lower-case word is no value."""
    return not name.lower().startswith(("pass", "pwd", "heslo", "kennwort", "contras", "senha", "mot"))


def _kind_of(name: str) -> str:
    lowered = name.lower()
    if "token" in lowered:
        return "token"
    if "key" in lowered:
        return "key"
    if lowered.startswith(("pin", "cv")):
        return "code"
    return "secret" if "secret" in lowered or "credential" in lowered else "password"


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
