"""Values that are secrets because of the name before them, as in "the password for the router is ..."."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from memory.letter_case import lowered
from memory.secret_phrases import far_end, is_phrase, says_where, signed_end, told_end
from memory.secret_values import (
    ENDING,
    HARMLESS,
    OF,
    QUOTES,
    UNITS,
    bare_value,
    is_code,
    is_mixed,
    is_prose,
    looks_secret,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAMES = {
    "pass": r"pass(?: ?word|[ -]?phrase|wd|code|wort)|mot de passe",
    "pasword": r"pasword",
    "mdp": r"mdp",
    "clave de": r"clave del? (?:la )?(?:wifi|wi-fi|acceso|internet|correo)",
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
    "recovery ": r"recovery (?:codes?|phrase)",
    "backup ": r"backup codes?",
}
"""The names by what each of them holds: a text that holds none of these needs no closer look."""
UNSPACED = ("รหัสผ่าน", "密码", "密碼", "パスワード", "パスフレーズ", "비밀번호")
"""Names that stand right behind other words."""

HELD = (*NAMES, *UNSPACED)
_WORD = rf"(?<![^\W_])(?:{'|'.join(NAMES.values())})"
_UNSPACED = "|".join(UNSPACED)
_SIGN = r"\s{0,4}(?:[:=：＝]|=>|->)"
_UNSPACED_LINK = r"\s{0,4}(?:คือ|是|为|は|는|은)"
_VALUE = r"(\"[^\"\n]{1,400}\"|'[^'\n]{1,400}'|`[^`\n]{1,400}`|„[^“\n]{1,400}“|[^\s,;<>()\"'`]{1,400})"

BEGINNING = re.compile(rf"(?={_WORD}|{_UNSPACED})")
NAMED = re.compile(
    rf"(?i)((?:{_WORD}|{_UNSPACED})[\"'`]?)"
    rf"((?:{_SIGN}|\s{{1,4}}(?:is|are|was|je|ist|lautet|es|est|é|to|jest|är|это)(?=\s)|['’]s(?=\s)|{_UNSPACED_LINK})\s{{0,4}})"
    rf"{_VALUE}"
)
"""A name, what links it, and the value: "heslo: ...", "密码是..."."""

NAME = re.compile(rf"(?i)(?:{_WORD}(?![^\W_])|({_UNSPACED}))[\"'`]?")
FAR_LINK = re.compile(
    rf"(?i)(?:{_SIGN}"
    r"|\s{1,4}(?:is|are|was|je|ist|lautet|es|est|é|jest|är|это|máme?|mame?|zní|zni|bude|byl[ao]?"
    r"|(?:changed|set|reset) to)(?=\s)"
    rf"|{_UNSPACED_LINK})(?:\s{{1,4}}(?:now|still|currently|teď|ted|nyní|nyni|stále|stale)(?=\s))?\s{{0,4}}"
)
FAR_VALUE = re.compile(_VALUE)
NEAR_VALUE = re.compile(rf"[ \t]{{1,4}}{_VALUE}")

ACT_LINK = re.compile(r"(?i)((?:\s[^\W_]{1,20}){0,4}?)\sto\s{1,4}")
"""What links a name to what it was set to; between them may stand what it is of."""
ACT = re.compile(
    r"(?i)(?<![^\W_])(?:set|sets|setting|change[ds]?|changing|reset|resets|resetting|updated?|updating|switched|switching)"
    r"\s(?:[^\W_]{1,20}(?:['’]s)?[ -]){0,3}$"
)
DASH = re.compile(r"\s{1,4}[-–—]\s{1,4}")

IN_FRONT = re.compile(
    r"(?i)(?<![^\s(])([^\s,;:<>()\"'`\[\]]{6,60})\s(?:is|was|je|ist|est|es|è|é|to|jest|это)\s"
    r"(?:the|my|our|das|mein|unser|le|mon|notre|la|mi|il|a|moje|naše|moja|мой|meu)\s(?:[^\W\d_]{2,20}[ -]){0,2}$"
)
"""hunter2 is my ..., before the name."""
BEFORE = 64
MORE_CODES = re.compile(
    r"(?i)([,;]?\s{1,3}(?:(?:and|a|und|et|y)\s)?)(?=[a-z-]{0,12}\d)[a-z0-9]{3,12}(?:-[a-z0-9]{3,12}){0,4}(?![^\W_])"
)
"""Another one of a list: "1234-5678, 8765-4321"."""

GAP_CHARACTERS, GAP_WORDS = 40, 4
WINDOW = GAP_CHARACTERS + 24
"""The longest gap, and the longest link after it."""
MOST_LINKS = 4
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
    plain = lowered(text)
    if not any(held in plain for held in HELD):
        return text
    return _without_far_values(_without_linked_values(text, note), note)


def at_names(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """What `pattern.finditer` finds, for a pattern that begins with a name: many times faster, as names are few."""
    at = 0
    for beginning in BEGINNING.finditer(lowered(text)):
        if beginning.start() >= at and (found := pattern.match(text, beginning.start())) is not None:
            yield found
            at = found.end()


# --- a value right behind a name and a link ---------------------------------------------------------------------------


def _without_linked_values(text: str, note: Callable[[str], str]) -> str:
    out: list[str] = []
    at = 0
    for match in at_names(NAMED, text):
        if match.start() >= at and (end := _linked_end(match)) is not None:
            out += [text[at : match.start(3)], note(_kind_of(match[1]))]
            at = end
            while match[1].lower().endswith("codes") and (more := MORE_CODES.match(text, at)) is not None:
                out += [more[1], note(_kind_of(match[1]))]
                at = more.end()
    return "".join([*out, text[at:]])


def _linked_end(match: re.Match[str]) -> int | None:
    """Where the value ends; None: it is none."""
    name, link, value = match.groups()
    if _is_quoted(value):
        return match.end() if _is_value(match) else None
    end = _end_of(match, 3) if _is_value(match) else None
    if _kind_of(name) != "password" or link.strip() == "to" or bare_value(value).startswith("["):
        return end
    find = signed_end if _is_sign(link) else told_end
    if says_where(match.string, match.start(3)):
        return None
    longer = find(match.string, match.start(3), phrase=is_phrase(name))
    return end if longer is None else max(longer, end or 0)


def _is_value(match: re.Match[str]) -> bool:
    """After a sign or in quotes everything is a value; after "is" a plain word may belong to the sentence."""
    name, link, value = match.groups()
    bare, lowered = bare_value(value), name.lower()
    if not bare or bare.startswith("["):
        return False  # "password: [password removed]"
    if lowered.startswith(("pin", "cv")):
        counted = UNITS.match(match.string, match.end()) is not None
        return bare.isdecimal() and not counted  # not "the pin is in the drawer", nor "the pin is 4 digits long"
    if "token" in lowered and bare.isdecimal():
        return False  # "tokens: 5000"
    if link.strip() == "to" and not lowered.startswith("has"):
        return False  # "the password to Netflix"; the link is Polish
    if link[0] in "'’":
        return is_mixed(bare)  # "my password's hunter2"; not "the password's owner"
    if _is_sign(link) or _is_quoted(value):
        return bare.lower() not in HARMLESS
    if bare.isdecimal() and UNITS.match(match.string, match.end()) is not None:
        return False  # "the password is 12 characters long"
    if not bare.isascii():
        return any(character.isdigit() for character in bare) and not is_prose(bare)
    return bare.lower() not in HARMLESS and (not bare.isalpha() or not bare.islower() or not _is_plain(name))


def _is_plain(name: str) -> bool:
    """Words that begin ordinary sentences, as in "the token is refreshed": there a lower-case word is no value."""
    return not name.lower().startswith(("pass", "pwd", "pw", "heslo", "kennwort", "contras", "senha", "mot"))


# --- a value with words between it and its name, or with no link: only what looks like a secret is taken --------------


def _without_far_values(text: str, note: Callable[[str], str]) -> str:
    out: list[str] = []
    at = 0
    for name in at_names(NAME, text):
        if name.start() < at or (found := _far_value(text, name)) is None:
            continue
        start, end = found
        if start >= at:
            out += [text[at:start], note(_kind_of(name[0]))]
            at = end
    return "".join([*out, text[at:]])


def _far_value(text: str, name: re.Match[str]) -> tuple[int, int] | None:
    """Where the value of a name begins and ends."""
    if (front := _in_front(text, name)) is not None:
        return front.span(1)
    if (value := _set_value(text, name)) is not None:
        return value.start(1), _end_of(value, 1)
    near = NEAR_VALUE.match(text, name.end())
    if near is not None and _is_near(name[0], near):
        return near.start(1), _end_of(near, 1)
    window = text[name.end() : name.end() + WINDOW]
    if not window[:1].isspace() and name[1] is None:
        return None
    for link in islice(FAR_LINK.finditer(window), MOST_LINKS):
        if not _is_gap(window[: link.start()]):
            return None
        value = FAR_VALUE.match(text, name.end() + link.end())
        if value is None:
            continue
        if _is_far(name[0], value):
            return value.start(1), _end_of(value, 1)
        gap = window[: link.start()].casefold().split()
        if gap and (end := _far_phrase_end(name[0], gap, link[0], value)) is not None:
            return value.start(1), end
    return None


def _in_front(text: str, name: re.Match[str]) -> re.Match[str] | None:
    """What is said to be the password, right before the name: "hunter2 is my password"."""
    if name.start() == 0 or text[name.start() - 1] not in " -" or _kind_of(name[0]) != "password":
        return None
    found = IN_FRONT.search(text, max(0, name.start() - BEFORE), name.start())
    fits = found is not None and is_mixed(found[1]) and ENDING.match(text, name.end()) is not None
    return found if fits else None


def _set_value(text: str, name: re.Match[str]) -> re.Match[str] | None:
    """What a password is said to be set to, or what stands behind a dash: "I changed my password to hunter2"."""
    if _kind_of(name[0]) != "password":
        return None
    link = dash = DASH.match(text, name.end())
    if link is None and ACT.search(text, max(0, name.start() - BEFORE), name.start()) is not None:
        link = ACT_LINK.match(text, name.end())
        if link is not None and link[1] and link[1].split()[0].casefold() not in OF:
            return None
    value = None if link is None else FAR_VALUE.match(text, link.end())
    if value is None or not is_mixed(bare_value(value[1])):
        return None
    return value if dash is None or ENDING.match(text, _end_of(value, 1)) is not None else None


def _far_phrase_end(name: str, gap: list[str], link: str, value: re.Match[str]) -> int | None:
    """Where a secret of plain words ends; with words between it and its name they must say what it is of."""
    if _kind_of(name) != "password" or _is_quoted(value[1]) or value[1].startswith("["):
        return None
    at = value.start(1)
    if _is_sign(link):
        if gap[0] not in OF or says_where(value.string, at):
            return None
        return far_end(value.string, at, phrase=is_phrase(name))
    return told_end(value.string, at, phrase=True) if is_phrase(name) else None


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


def _is_sign(link: str) -> bool:
    return any(sign in link for sign in ":=：＝>")


def _is_quoted(value: str) -> bool:
    return value != value.strip(QUOTES)
