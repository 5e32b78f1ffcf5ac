"""The secret filter: shapes of keys, tokens, passwords, private keys and card numbers become placeholders."""

from __future__ import annotations

import itertools
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
    r"pass(?:word|phrase|wd|code)|pwd|pw|passwort|kennwort|heslo|hesla|hasło|contraseña|contrasena|senha|mot de passe|"
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
ANY_NAME = re.compile(rf"(?i)(?<![^\W_])(?:{_WORDS})|{_UNSPACED}")
NAMED = re.compile(rf"(?i)((?:(?<![^\W_])(?:{_WORDS})|{_UNSPACED})[\"'`]?)({_LINK}){_VALUE}")

# the same with words between, or with no link: only what looks like a secret is taken then
NAME = re.compile(rf"(?i)(?:(?<![^\W_])(?:{_WORDS})(?![^\W_])|({_UNSPACED}))[\"'`]?")
FAR_LINK = re.compile(
    r"(?i)(?:\s{0,4}(?:[:=：＝]|=>|->)"
    r"|\s{1,4}(?:is|are|was|je|ist|lautet|es|est|é|jest|är|это|máme?|mame?|zní|zni|bude|byl[ao]?)(?=\s)"
    r"|\s{0,4}(?:คือ|是|为|は))(?:\s{1,4}(?:now|still|currently|teď|ted|nyní|nyni|stále|stale)(?=\s))?\s{0,4}"
)
FAR_VALUE = re.compile(_VALUE)
NEAR_VALUE = re.compile(rf"[ \t]{{1,4}}{_VALUE}")
GAP_CHARACTERS, GAP_WORDS = 40, 4
WINDOW = GAP_CHARACTERS + 24
"""The longest gap, and the longest link after it."""
TAKEN = re.compile(r"^\[|\[[a-z]{3,8}$|^removed\]")
"""The first word of a placeholder, and its last."""
GAP_END = re.compile(r"[\n;\[\]…]|[.,!?:](?=\s|$)")
UNITS = re.compile(
    r"(?i)\s{0,2}(?:%|€|\$|[°/:.-]\d|(?:mm?|cm|km|kg|g|v|mv|czk|kč|eur|usd|people|lidí|metres|meters|miles|metrů|minutes|minut|"
    r"hours|hodin|seconds|sekund|days|dní|times|krát|characters|znaků|words|slov|tokens|users|points|votes|ohms?)\b)"
)
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

# right behind the name these make another thing of it ("password manager"), or end what is said of it
NOT_OF = frozenset(
    "manager managers policy policies generator length reset resets hint hints field fields prompt check checks "
    "hash hashes hashing rule rules requirement requirements expiry expires expired expiration strength change "
    "changes changed rotation protected protection protects format count counts limit limits budget usage window "
    "price cost type name names id size minimum maximum per page screen form file attempts history and or but nor "
    "a i nebo ale und oder aber y o et ou politika správce délka změna kampaně kampane dne roku týdne měsíce "
    "verze pravidla".split()
)
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
    text = _without_cards(text, note)
    before = len(kinds)
    if ANY_NAME.search(text) is not None:
        text = NAMED.sub(lambda m: _named(m, note), text)
        text = _without_far_values(text, note)
    text = LONG_WORD.sub(lambda m: note("key") if _looks_random(m[0]) else m[0], text)
    if len(kinds) > before:  # a card's digits may have had others beside them that are gone now
        text = _without_cards(text, note)
    return Redacted(text, tuple(sorted(dict.fromkeys(kinds), key="card number".__eq__)))


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


def _without_cards(text: str, note: Callable[[str], str]) -> str:
    return CARD.sub(lambda m: note("card number") if _is_card(m[0]) else m[0], text)


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
    if link.strip() == "to" and not name.lower().startswith("has"):
        return False  # "the password to Netflix"; the link is Polish
    if any(sign in link for sign in ":=：＝>") or value != value.strip("\"'`„“"):
        return bare.lower() not in HARMLESS
    if not bare.isascii():
        return any(character.isdigit() for character in bare)
    return bare.lower() not in HARMLESS and (not bare.isalpha() or not bare.islower() or not _is_plain(name))


def _without_far_values(text: str, note: Callable[[str], str]) -> str:
    """Values with words between them and their name, as in "the password for the router is ...", or with nothing."""
    out: list[str] = []
    at = 0
    for name in NAME.finditer(text):
        if name.start() >= at and (value := _far_value(text, name)) is not None:
            end = value.start(1) + len(value[1].rstrip(".!?"))
            out += [text[at : value.start(1)], note(_kind_of(name[0]))]
            at = end
    return "".join([*out, text[at:]])


def _far_value(text: str, name: re.Match[str]) -> re.Match[str] | None:
    near = NEAR_VALUE.match(text, name.end())
    if near is not None and _is_near(name[0], text, near):
        return near
    window = text[name.end() : name.end() + WINDOW]
    if not window[:1].isspace() and name[1] is None:
        return None
    for link in FAR_LINK.finditer(window):
        if not _is_gap(window[: link.start()]):
            return None
        value = FAR_VALUE.match(text, name.end() + link.end())
        if value is not None and _is_far(name[0], text, value):
            return value
    return None


def _is_gap(gap: str) -> bool:
    words = gap.casefold().split()
    if len(gap) > GAP_CHARACTERS or len(words) > GAP_WORDS or GAP_END.search(gap) is not None:
        return False
    return not words or (words[0] not in NOT_OF and not words[0][0].isdigit())


def _is_far(name: str, text: str, value: re.Match[str]) -> bool:
    bare = value[1].strip("\"'`„“").rstrip(".!?")
    lowered = name.lower()
    if lowered.startswith(("pin", "cv")):
        return _is_code(bare, text, value)
    if lowered.startswith(("secret", "geheimnis", "credential")) and "key" not in lowered:
        return False
    if any(sign in lowered for sign in ("key", "token", "secret")):
        return len(bare) >= 8 and sum(c.isdigit() for c in bare) >= 2 and _is_mixed(bare)
    return _looks_secret(bare, last=_ends_there(value[1], text, value.end()))


def _is_near(name: str, text: str, value: re.Match[str]) -> bool:
    """With no link only a code or a password of letters and digits is taken: "heslo Tajne-123"."""
    bare = value[1].rstrip(".!?")
    if name.startswith("PIN") or name.lower().startswith("cv"):
        return _is_code(bare, text, value)
    named = bare.casefold().strip("0123456789_-")
    return _kind_of(name) == "password" and _is_mixed(bare) and named not in NOT_OF


def _is_code(bare: str, text: str, value: re.Match[str]) -> bool:
    """Three to eight digits that are neither a year, nor an amount, nor the beginning of a card's number."""
    if not bare.isdecimal() or not 3 <= len(bare) <= 8 or (len(bare) == 4 and bare[:2] in ("19", "20")):
        return False
    return UNITS.match(text, value.end()) is None and CARD.match(text, value.start(1)) is None


def _looks_secret(bare: str, *, last: bool) -> bool:
    if len(bare) < 6 or TAKEN.search(bare) or PLAIN_SHAPE.fullmatch(bare):
        return False
    if bare.isdecimal() or _is_mixed(bare):
        return True
    if any(sign in bare for sign in "!@#$%^&*+=~?_|\\") and any(c.isalpha() for c in bare):
        return True
    return last and any(a.islower() and b.isupper() for a, b in itertools.pairwise(bare))


def _is_mixed(bare: str) -> bool:
    if len(bare) < 6 or TAKEN.search(bare) or PLAIN_SHAPE.fullmatch(bare):
        return False
    return any(c.isalpha() for c in bare) and any(c.isdigit() for c in bare)


def _ends_there(value: str, text: str, end: int) -> bool:
    return value.endswith((".", "!", "?")) or not text[end : end + 1].strip(" ")


def _is_plain(name: str) -> bool:
    """Words that begin ordinary sentences, as in "the token is refreshed": there a lower-case word is no value."""
    return not name.lower().startswith(("pass", "pwd", "pw", "heslo", "kennwort", "contras", "senha", "mot"))


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
