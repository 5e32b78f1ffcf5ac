"""Secrets of several words: "passphrase: correct horse battery staple"."""

from __future__ import annotations

import re

from memory.secret_values import HARMLESS, MEASURES, SAYINGS, UNSPACED_SAYINGS

NEXT = re.compile(r"[ \t\u00a0]{0,3}([^\s,;<>()\"'`\[\]:=：＝]{1,60}+)(?=([ \t\u00a0]{0,3}[:=：＝])|[\s,;<>()\"'`]|$)")
"""The next word of a clause; with a sign behind it (group 2) it names something else: "user: ana"."""
GOES_ON = frozenset(
    "a an the and or but if at by for with about to from in into on is are was were be been being as than then so that "
    "this it its i you he she we they my your his her our their not no only also every each per all any please because "
    "since until till after before during when where who which inside outside under over now today tomorrow must "
    "should can may will has have had does do did works work needs need behind near "
    "je jsou byl byla na v ve z ze k ke u pro při po pod nad od do aby když jako nebo ale ani už ještě se si s jsem má "
    "mám musí každý každé "
    "und oder aber der die das ist im am auf für mit von vom zum zur bei nicht ein eine muss hat jede jeden jeder "
    "et ou mais le la les un une est dans sur pour avec de du des au aux chaque doit "
    "y o pero el los las una es en con para por del al cada debe e il da di che è "
    "i oraz lub w dla jest to i и или но в на для с от по у не это".split()
)
"""Words of sentences: what stands before one of them is a secret, and what comes after is not."""
MOST_WORDS, MOST_WORDS_OF_PHRASE = 12, 32


def is_phrase(name: str) -> bool:
    """Whether the name says that its secret has several words."""
    return name.lower().rstrip("\"'`").endswith(("phrase", "パスフレーズ"))


def words_from(text: str, at: int, *, phrase: bool) -> tuple[list[str], int, bool]:
    """The words from a place on that may be one secret, where they end, and whether their clause ends there.

    A phrase may hold words of sentences.
    """
    words: list[str] = []
    end = at
    most = MOST_WORDS_OF_PHRASE if phrase else MOST_WORDS
    while len(words) < most and (found := NEXT.match(text, end)) is not None:
        if words and (found[2] is not None or (not phrase and found[1].casefold() in GOES_ON)):
            return words, end, found[2] is not None
        words.append(found[1].rstrip(".!?…"))
        end = found.start(1) + len(words[-1])
        if words[-1] != found[1]:
            return words, end, True
    return words, end, not text[end : end + 2].lstrip(" \t\u00a0").startswith("[") and len(words) < most


def signed_end(text: str, at: int, *, phrase: bool) -> int | None:
    """Where a secret behind a sign ends that has more words than its first; None: it has no more."""
    words, end, whole = words_from(text, at, phrase=phrase)
    if len(words) < 2 or not (phrase or _is_plain(words[0])):
        return None
    return end if words[0].casefold() not in HARMLESS or _is_unlike_a_sentence(words, whole=whole) else None


def told_end(text: str, at: int, *, phrase: bool) -> int | None:
    """The same behind "is", where a sentence may go on: there it takes more words to be one."""
    words, end, whole = words_from(text, at, phrase=False)
    if not whole or len(words) < (3 if phrase else 4) or not _is_plain(words[0]) or _is_measured(words):
        return None
    if words[0].casefold() in HARMLESS:
        return end if phrase and _is_unlike_a_sentence(words, whole=whole) else None
    return end


def far_end(text: str, at: int, *, phrase: bool) -> int | None:
    """Where a clause behind a sign ends that is one secret, or a word that is one; None: it is none."""
    words, end, whole = words_from(text, at, phrase=phrase)
    fits = whole and words and _is_plain(words[0])
    return end if fits and (words[0].casefold() not in HARMLESS or _is_unlike_a_sentence(words, whole=whole)) else None


def says_where(text: str, at: int) -> bool:
    """Whether it is told where the secret is, or how it must be, and not what it is: "password: ask Ana"."""
    words, _, _ = words_from(text, at, phrase=True)
    if not words or not _is_plain(words[0]):
        return False
    if len(words) > 1 and (words[0].casefold() in SAYINGS or _is_measured(words)):
        return True
    return UNSPACED_SAYINGS.match(words[0]) is not None


def _is_measured(words: list[str]) -> bool:
    return not MEASURES.isdisjoint(word.casefold() for word in words[:5])


def _is_unlike_a_sentence(words: list[str], *, whole: bool) -> bool:
    """Whether the first word is the only one that could say something of the secret: "correct horse battery staple"."""
    rest = [word.casefold() for word in words[1:]]
    return whole and len(words) >= 4 and not any(one in HARMLESS or one in SAYINGS or one in GOES_ON for one in rest)


def _is_plain(word: str) -> bool:
    """Letters only, in any script, whose signs for vowels are no letters to Python."""
    return not any(c.isdigit() or (c.isascii() and not c.isalpha()) for c in word)
