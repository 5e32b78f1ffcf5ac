"""Values that are secrets because of the name before them, as in "the password for the router is ..."."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memory.letter_case import lowered
from memory.secret_values import HARMLESS, QUOTES, bare_value, is_code, is_mixed, looks_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAMES = {
    "pass": r"pass(?:word|phrase|wd|code|wort)|mot de passe",
    "pw": r"pwd|pw",
    "kennwort": r"kennwort",
    "hesl": r"heslo|hesla",
    "hasło": r"hasło",
    "contrase": r"contraseña|contrasena",
    "senha": r"senha",
    "пароль": r"пароль",
    "parola": r"parola",
    "wachtwoord": r"wachtwoord",
    "lösenord": r"lösenord",
    "salasana": r"salasana",
    "jelszó": r"jelszó",
    "şifre": r"şifre",
    "geheimnis": r"geheimnis",
    "secret": r"secret|client[ _-]?secret",
    "key": r"(?:api|access|secret|private|signing|encryption|auth|master|license|account|storage)[ _-]?key",
    "token": r"(?:access|auth|refresh|bearer|session|bot|api|id)?[ _-]?token",
    "credential": r"credentials?",
    "pin": r"pin(?: code)?",
    "cv": r"cvv2?|cvc2?",
    "seed phrase": r"seed phrase",
    "recovery ": r"recovery (?:code|phrase)",
    "비밀번호": r"비밀번호",
}
"""The names by what each of them holds: a text that holds none of these needs no closer look."""
UNSPACED = ("รหัสผ่าน", "密码", "密碼", "パスワード")
"""Names that stand right behind other words."""

_WORD = rf"(?<![^\W_])(?:{'|'.join(NAMES.values())})"
_UNSPACED = "|".join(UNSPACED)
_SIGN = r"\s{0,4}(?:[:=：＝]|=>|->)"
_UNSPACED_LINK = r"\s{0,4}(?:คือ|是|为|は)"
_VALUE = r"(\"[^\"\n]{1,400}\"|'[^'\n]{1,400}'|`[^`\n]{1,400}`|„[^“\n]{1,400}“|[^\s,;<>()\"'`]{1,400})"

BEGINNING = re.compile(rf"(?={_WORD}|{_UNSPACED})")
NAMED = re.compile(
    rf"(?i)((?:{_WORD}|{_UNSPACED})[\"'`]?)"
    rf"((?:{_SIGN}|\s{{1,4}}(?:is|are|was|je|ist|lautet|es|est|é|to|jest|är|это)(?=\s)|{_UNSPACED_LINK})\s{{0,4}})"
    rf"{_VALUE}"
)
"""A name, what links it, and the value: "heslo: ...", "密码是..."."""

NAME = re.compile(rf"(?i)(?:{_WORD}(?![^\W_])|({_UNSPACED}))[\"'`]?")
FAR_LINK = re.compile(
    rf"(?i)(?:{_SIGN}"
    r"|\s{1,4}(?:is|are|was|je|ist|lautet|es|est|é|jest|är|это|máme?|mame?|zní|zni|bude|byl[ao]?)(?=\s)"
    rf"|{_UNSPACED_LINK})(?:\s{{1,4}}(?:now|still|currently|teď|ted|nyní|nyni|stále|stale)(?=\s))?\s{{0,4}}"
)
FAR_VALUE = re.compile(_VALUE)
NEAR_VALUE = re.compile(rf"[ \t]{{1,4}}{_VALUE}")

GAP_CHARACTERS, GAP_WORDS = 40, 4
WINDOW = GAP_CHARACTERS + 24
"""The longest gap, and the longest link after it."""
GAP_END = re.compile(r"[\n;\[\]…]|[.,!?:](?=\s|$)")
NOT_OF = frozenset(
    "manager managers policy policies generator length reset resets hint hints field fields prompt check checks "
    "hash hashes hashing rule rules requirement requirements expiry expires expired expiration strength change "
    "changes changed rotation protected protection protects format count counts limit limits budget usage window "
    "price cost type name names id size minimum maximum per page screen form file attempts history and or but nor "
    "a i nebo ale und oder aber y o et ou politika správce délka změna kampaně kampane dne roku týdne měsíce "
    "verze pravidla".split()
)
"""Right behind the name these make another thing of it ("password manager"), or end what is said of it."""


def without_named(text: str, note: Callable[[str], str]) -> str:
    """The text without values that have a name. `note` makes the placeholder of a kind."""
    return _without_far_values(_without_linked_values(text, note), note)


def at_names(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """What `pattern.finditer` finds, for a pattern that begins with a name: many times faster, as names are few."""
    plain = lowered(text)
    if not any(held in plain for held in (*NAMES, *UNSPACED)):
        return
    at = 0
    for beginning in BEGINNING.finditer(plain):
        if beginning.start() >= at and (found := pattern.match(text, beginning.start())) is not None:
            yield found
            at = found.end()


# --- a value right behind a name and a link ---------------------------------------------------------------------------


def _without_linked_values(text: str, note: Callable[[str], str]) -> str:
    out: list[str] = []
    at = 0
    for match in at_names(NAMED, text):
        name, link, value = match.groups()
        if _is_value(name, link, value):
            end = match.end() if _is_quoted(value) else _end_of(match, 3)
            out += [text[at : match.start(3)], note(_kind_of(name))]
            at = end
    return "".join([*out, text[at:]])


def _is_value(name: str, link: str, value: str) -> bool:
    """After a sign or in quotes everything is a value; after "is" a plain word may belong to the sentence."""
    bare, lowered = bare_value(value), name.lower()
    if not bare or bare.startswith("["):
        return False  # "password: [password removed]"
    if lowered.startswith(("pin", "cv")):
        return bare.isdecimal()  # not "the pin is in the drawer"
    if "token" in lowered and bare.isdecimal():
        return False  # "tokens: 5000"
    if link.strip() == "to" and not lowered.startswith("has"):
        return False  # "the password to Netflix"; the link is Polish
    if any(sign in link for sign in ":=：＝>") or _is_quoted(value):
        return bare.lower() not in HARMLESS
    if not bare.isascii():
        return any(character.isdigit() for character in bare)
    return bare.lower() not in HARMLESS and (not bare.isalpha() or not bare.islower() or not _is_plain(name))


def _is_plain(name: str) -> bool:
    """Words that begin ordinary sentences, as in "the token is refreshed": there a lower-case word is no value."""
    return not name.lower().startswith(("pass", "pwd", "pw", "heslo", "kennwort", "contras", "senha", "mot"))


# --- a value with words between it and its name, or with no link: only what looks like a secret is taken --------------


def _without_far_values(text: str, note: Callable[[str], str]) -> str:
    out: list[str] = []
    at = 0
    for name in at_names(NAME, text):
        if name.start() >= at and (value := _far_value(text, name)) is not None:
            out += [text[at : value.start(1)], note(_kind_of(name[0]))]
            at = _end_of(value, 1)
    return "".join([*out, text[at:]])


def _far_value(text: str, name: re.Match[str]) -> re.Match[str] | None:
    near = NEAR_VALUE.match(text, name.end())
    if near is not None and _is_near(name[0], near):
        return near
    window = text[name.end() : name.end() + WINDOW]
    if not window[:1].isspace() and name[1] is None:
        return None
    for link in FAR_LINK.finditer(window):
        if not _is_gap(window[: link.start()]):
            return None
        value = FAR_VALUE.match(text, name.end() + link.end())
        if value is not None and _is_far(name[0], value):
            return value
    return None


def _is_near(name: str, value: re.Match[str]) -> bool:
    """With no link only a code or a password of letters and digits is taken: "heslo Tajne-123"."""
    bare = value[1].rstrip(".!?")
    if name.startswith("PIN") or name.lower().startswith("cv"):
        return is_code(bare, value)
    named = bare.casefold().strip("0123456789_-")
    return _kind_of(name) == "password" and is_mixed(bare) and named not in NOT_OF


def _is_gap(gap: str) -> bool:
    """A few words that say whose it is: " of the router", not " manager at home" or ". It"."""
    words = gap.casefold().split()
    if len(gap) > GAP_CHARACTERS or len(words) > GAP_WORDS or GAP_END.search(gap) is not None:
        return False
    return not words or (words[0] not in NOT_OF and not words[0][0].isdigit())


def _is_far(name: str, value: re.Match[str]) -> bool:
    bare, lowered = bare_value(value[1]), name.lower()
    if lowered.startswith(("pin", "cv")):
        return is_code(bare, value)  # "pin k telefonu je 4821"
    if lowered.startswith(("secret", "geheimnis", "credential")) and "key" not in lowered:
        return False  # "the secret of good pizza is 00-flour-2"
    if any(sign in lowered for sign in ("key", "token", "secret")):
        return len(bare) >= 8 and sum(c.isdigit() for c in bare) >= 2 and is_mixed(bare)  # not "the key for A is B12"
    return looks_secret(bare, last=_ends_there(value))


def _ends_there(value: re.Match[str]) -> bool:
    return value[1].endswith((".", "!", "?")) or not value.string[value.end() : value.end() + 1].strip(" ")


# --- what both share --------------------------------------------------------------------------------------------------


def _kind_of(name: str) -> str:
    lowered = name.lower()
    if "token" in lowered:
        return "token"
    if "key" in lowered:
        return "key"
    if lowered.startswith(("pin", "cv")):
        return "code"
    return "secret" if "secret" in lowered or "credential" in lowered else "password"


def _end_of(match: re.Match[str], group: int) -> int:
    """Where the value ends, without the end of its sentence."""
    return match.start(group) + len(match[group].rstrip(".!?"))


def _is_quoted(value: str) -> bool:
    return value != value.strip(QUOTES)
