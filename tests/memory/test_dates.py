"""Words like yesterday become the dates they meant."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.dates import add_dates, resolve_dates

if TYPE_CHECKING:
    from collections.abc import Callable

AT = datetime(2026, 5, 6, 12, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Ana moved the day before yesterday", "Ana moved 2026-05-04"),
        ("Ana moved two weeks ago", "Ana moved 2026-04-22"),
        ("Ana moved 3 days ago", "Ana moved 2026-05-03"),
        ("Ana came last Wednesday", "Ana came 2026-04-29"),
        ("Ana comes next Monday", "Ana comes 2026-05-11"),
        ("Ana was ill last week", "Ana was ill 2026-W18"),
        ("Ana starts next month", "Ana starts 2026-06"),
        ("Ana married last year", "Ana married 2025"),
        ("Ana se přestěhovala před třemi dny", "Ana se přestěhovala 2026-05-03"),
        ("Ana přijede příští pondělí", "Ana přijede 2026-05-11"),
        ("Ana ist vor zwei Tagen umgezogen", "Ana ist 2026-05-04 umgezogen"),
        ("昨天安娜搬家", "2026-05-05安娜搬家"),
        ("大前天安娜搬家", "2026-05-03安娜搬家"),
        ("อันนาย้ายบ้านเมื่อวาน", "อันนาย้ายบ้าน2026-05-05"),
        ("อันนาย้ายบ้านเมื่อวานนี้", "อันนาย้ายบ้าน2026-05-05"),
        ("อันนาย้ายบ้านเมื่อวานซืน", "อันนาย้ายบ้าน2026-05-04"),
        ("ทุกวันนี้อันนาทำงานที่บ้าน", "ทุกวันนี้อันนาทำงานที่บ้าน"),
        ("Ana learnt it in two days", "Ana learnt it in two days"),
        ("Ana runs in a week what others run in a month", "Ana runs in a week what others run in a month"),
    ],
)
def test_relative_words_are_resolved(said: str, kept: str) -> None:
    assert resolve_dates(said, AT) == kept


@pytest.mark.parametrize(
    "said",
    [
        "Ana's favourite song is Yesterday",
        'Ana likes the film "yesterday"',
        "Ana likes „Yesterday“ and «Last Night»",
        "Anina oblíbená kniha je Včera",
        "Anas Lieblingsbuch ist „heute und übermorgen“",
        "安娜喜欢《昨天》",
        "Ana reads USA Today",
        "The notes are in notes/today.md, see https://example.org/today#tomorrow and --yesterday",
        "Ana's tag is `today`",
    ],
)
def test_names_and_quotations_stay(said: str) -> None:
    assert resolve_dates(said, AT) == said


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Yesterday Ana moved", "2026-05-05 Ana moved"),
        ("Ana is glad. Yesterday she moved", "Ana is glad. 2026-05-05 she moved"),
        ("- Včera se Ana přestěhovala", "- 2026-05-05 se Ana přestěhovala"),
        ('Ana saw "Dune" yesterday and "Alien" last week', 'Ana saw "Dune" 2026-05-05 and "Alien" 2026-W18'),
        ("Ana came yesterday.", "Ana came 2026-05-05."),
        ("It was yesterday's idea (today)", "It was 2026-05-05's idea (2026-05-06)"),
    ],
)
def test_words_beside_names_and_at_the_beginning_of_a_sentence_are_resolved(said: str, kept: str) -> None:
    assert resolve_dates(said, AT) == kept


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Ana moved ye\u017fterday", "Ana moved 2026-05-05"),
        ("Ana moved \u017f\u0131x weeks ago", "Ana moved 2026-03-25"),
        ("Ana moved F\u0131ve day\u017f ago", "Ana moved 2026-05-01"),
        ("Ana came la\u017ft Wedne\u017fday", "Ana came 2026-04-29"),
        ("Ana came last Fr\u0130day", "Ana came 2026-05-01"),
        ("Ana was ill last wee\u212a", "Ana was ill 2026-W18"),
        ("Ana p\u0159ijede zi\u0301tra v DNE\u017fKA", "Ana p\u0159ijede zi\u0301tra v 2026-05-06"),
    ],
)
def test_letters_that_count_as_others_when_case_is_ignored_break_nothing(said: str, kept: str) -> None:
    assert resolve_dates(said, AT) == kept


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Ana moved yesterday.", "Ana moved yesterday (2026-05-05)."),
        ("Ana was ill last week and two days ago", "Ana was ill last week (2026-W18) and two days ago (2026-05-04)"),
        ("อันนาย้ายบ้านเมื่อวาน", "อันนาย้ายบ้านเมื่อวาน (2026-05-05)"),
        ("ทุกวันนี้อันนาทำงานที่บ้าน", "ทุกวันนี้อันนาทำงานที่บ้าน"),
        ("Ana's favourite song is Yesterday", "Ana's favourite song is Yesterday"),
    ],
)
def test_dates_stand_behind_words_that_stay(said: str, kept: str) -> None:
    assert add_dates(said, AT) == kept


PIECES = st.lists(
    st.sampled_from(["yesterday", "Last Friday", "3 days ago", "(2026", '"', " ", ".", "ทุกวันนี้", "a-"])
).map("".join)


@pytest.mark.parametrize("dates", [resolve_dates, add_dates])
@given(st.text(max_size=80) | PIECES, st.datetimes(timezones=st.just(UTC)))
def test_any_text_at_any_time_is_dated_once(dates: Callable[[str, datetime], str], text: str, at: datetime) -> None:
    once = dates(text, at)
    assert dates(once, at) == once


@given(st.sampled_from(["Yesterday Ana came", "Ana came last year", "Ana came 3 weeks ago"]))
def test_the_edges_of_the_calendar_raise_nothing(text: str) -> None:
    for at in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        assert resolve_dates(text, at)


@pytest.mark.parametrize("piece", ['"a" yesterday ', "„a“ gestern ", "“", '"', "yesterday ", "last "])
def test_the_time_is_linear_whatever_is_quoted(piece: str) -> None:
    def taken_s(size: int) -> float:
        text = piece * (size // len(piece))
        begun = time.process_time()
        add_dates(text, AT)
        return time.process_time() - begun

    assert min(taken_s(200_000) for _ in range(3)) < 20 * max(0.005, min(taken_s(25_000) for _ in range(3)))
