"""Words like yesterday, made into the dates they meant when they were said. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from datetime import timedelta
from typing import TYPE_CHECKING

from memory.letter_case import lowered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

DAYS: dict[str, int] = {
    "the day before yesterday": -2,
    "last night": -1,
    "yesterday": -1,
    "today": 0,
    "tonight": 0,
    "this morning": 0,
    "this afternoon": 0,
    "this evening": 0,
    "tomorrow": 1,
    "the day after tomorrow": 2,
    "předevčírem": -2,
    "včera": -1,
    "dnes": 0,
    "dneska": 0,
    "zítra": 1,
    "pozítří": 2,
    "vorgestern": -2,
    "gestern": -1,
    "heute": 0,
    "übermorgen": 2,
    "เมื่อวานซืน": -2,
    "เมื่อวาน": -1,
    "เมื่อวานนี้": -1,
    "เมื่อคืน": -1,
    "เมื่อคืนนี้": -1,
    "วันนี้": 0,
    "คืนนี้": 0,
    "พรุ่งนี้": 1,
    "มะรืน": 2,
    "มะรืนนี้": 2,
    "大前天": -3,
    "前天": -2,
    "昨天": -1,
    "昨晚": -1,
    "今天": 0,
    "今晚": 0,
    "明天": 1,
    "后天": 2,
    "大后天": 3,
}
NOWADAYS = frozenset({"ทุกวันนี้"})
"""Has a word for a day in it, and names none."""
NUMBERS = {
    "a": 1,
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "ten": 10,
    "jedním": 1,
    "dvěma": 2,
    "třemi": 3,
    "čtyřmi": 4,
    "einem": 1,
    "einer": 1,
    "zwei": 2,
    "drei": 3,
    "vier": 4,
}
_COUNT = rf"(\d{{1,3}}|{'|'.join(NUMBERS)})"
WEEKDAYS: dict[str, int] = {
    **{name: number for number, name in enumerate("monday tuesday wednesday thursday friday saturday sunday".split())},
    **{name: number for number, name in enumerate("pondělí úterý středa čtvrtek pátek sobota neděle".split())},
    "středu": 2,
    "sobotu": 5,
    "neděli": 6,
    **{
        name: number
        for number, name in enumerate("montag dienstag mittwoch donnerstag freitag samstag sonntag".split())
    },
}
_BEFORE = r"last|minul(?:ý|é|ou|á|í)|letzte[nrs]?|vorige[nrs]?"
_AFTER = r"next|příští|nächste[nrs]?|kommende[nrs]?"
_UNITS: dict[str, str] = {
    **dict.fromkeys(("week", "týden", "woche"), "week"),
    **dict.fromkeys(("month", "měsíc", "monat"), "month"),
    **dict.fromkeys(("year", "rok", "jahr"), "year"),
}
_WORD_CHARACTERS = re.compile(r"[\u0e00-\u0e7f\u3400-\u9fff]")

_DAY = re.compile(
    "|".join(
        re.escape(word) if _WORD_CHARACTERS.match(word) else rf"\b{re.escape(word)}\b"
        for word in sorted([*DAYS, *NOWADAYS], key=len, reverse=True)
    ),
    re.IGNORECASE,
)
_AGO = re.compile(
    rf"\b{_COUNT} (day|week)s? ago\b|\bpřed {_COUNT} (dny|dnem|týdny|týdnem)\b|\bvor {_COUNT} (tag|woche)(?:en|n)?\b",
    re.IGNORECASE,
)
_NAMED = re.compile(rf"\b({_BEFORE}|{_AFTER}) ({'|'.join([*WEEKDAYS, *_UNITS])})\b", re.IGNORECASE)
_IS_BEFORE = re.compile(_BEFORE, re.IGNORECASE)
_QUOTED = re.compile(
    r'"[^"\n]{,200}"|“[^”\n]{,200}”|„[^“”\n]{,200}[“”]|«[^»\n]{,200}»|「[^」\n]{,200}」|《[^》\n]{,200}》'
)
_SENTENCE_BEGINS = re.compile(r"(?:^|[.!?\n])[\s(*_-]*\Z")
_LONGEST_BREAK = 8
_GOES_ON = re.compile(r"[/\\@_=&`-]|\.\w| \(\d{4}\b")
_WENT_ON = frozenset("/\\.@#_=&`-")


def resolve_dates(text: str, at: datetime) -> str:
    """Each such word becomes a date, a week (2026-W18), a month or a year, as in ISO 8601. `at` is when it was said, in
    the zone of whoever said it. What could mean a span as well ("in two days") stays as it is, what is named or quoted
    (the song Yesterday, the film "Last Night", the file today.md), and what has a date in brackets behind it."""
    return _dated(text, at, lambda _said, date: date)


def add_dates(text: str, at: datetime) -> str:
    """The same, but the words stay, and their dates stand in brackets behind them."""
    return _dated(text, at, lambda said, date: said if date == said else f"{said} ({date})")


def _dated(text: str, at: datetime, put: Callable[[str, str], str]) -> str:
    try:
        for words, date_of in ((_DAY, _day), (_AGO, _ago), (_NAMED, _named)):
            quoted = [match.span() for match in _QUOTED.finditer(text)]
            pieces: list[str] = []
            end = 0
            for match in words.finditer(text):
                if not (_is_named(text, match) or _is_within(match.start(), quoted)):
                    pieces += [text[end : match.start()], put(match[0], date_of(match, at))]
                    end = match.end()
            text = "".join([*pieces, text[end:]])
    except OverflowError:
        pass  # beyond the years 1 to 9999
    return text


def _is_within(place: int, spans: Sequence[tuple[int, int]]) -> bool:
    """Whether a place is inside one of spans that are in order."""
    before = bisect_left(spans, (place, 0))
    return before > 0 and place < spans[before - 1][1]


def _is_named(text: str, match: re.Match[str]) -> bool:
    """Whether it is a name, or a piece of one, or its date is there already."""
    title = match[0].istitle() and not _SENTENCE_BEGINS.search(
        text, max(0, match.start() - _LONGEST_BREAK), match.start()
    )
    joined = text[match.start() - 1 : match.start()] in _WENT_ON
    return title or joined or _GOES_ON.match(text, match.end()) is not None


def _day(match: re.Match[str], at: datetime) -> str:
    return match[0] if match[0] in NOWADAYS else _date(at, DAYS[lowered(match[0])])


def _date(at: datetime, days: int) -> str:
    return (at + timedelta(days=days)).date().isoformat()


def _ago(match: re.Match[str], at: datetime) -> str:
    number, unit = (group for group in match.groups() if group is not None)
    count = int(number) if number.isdecimal() else NUMBERS[lowered(number)]
    return _date(at, -count * (7 if lowered(unit).startswith(("week", "týd", "woche")) else 1))


def _named(match: re.Match[str], at: datetime) -> str:
    """The nearest such day before or after; a day that is called the last one is not today."""
    sign = -1 if _IS_BEFORE.fullmatch(match[1]) else 1
    name = lowered(match[2])
    weekday = WEEKDAYS.get(name)
    if weekday is not None:
        days = (sign * (weekday - at.weekday()) - 1) % 7 + 1
        return _date(at, sign * days)
    match _UNITS[name]:
        case "week":
            year, week, _ = (at + timedelta(days=7 * sign)).isocalendar()
            return f"{year:04}-W{week:02}"
        case "month":
            months = at.year * 12 + at.month - 1 + sign
            return f"{months // 12:04}-{months % 12 + 1:02}"
        case _:
            return f"{at.year + sign:04}"
