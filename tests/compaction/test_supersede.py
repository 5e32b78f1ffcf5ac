"""What no longer holds, by what was said later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compaction.extract import extract_summary
from compaction.summary import ARROW, LISTS, completed, shortened, texts_of
from compaction.supersede import retired
from tests.sessions.builders import user

if TYPE_CHECKING:
    from sessions.entries import Entry

CASES = [
    ("The port is 8080.", "The port is now 8081."),
    ("We decided on Postgres because of the backups.", "We decided on SQLite instead of Postgres."),
    ("I prefer oat milk in my coffee.", "I now prefer soy milk in my coffee rather than oat milk."),
    ("The meeting is on 2027-03-14.", "The meeting was moved to 2027-03-15."),
    ("Objednej 5 kusů šroubů.", "Místo 5 kusů 7."),
    ("Schůzka je 2027-03-14 v 9:30.", "Schůzku jsme přesunuli na 2027-03-15 v 10:00."),
    ("พอร์ตคือ 8080", "ตอนนี้พอร์ตคือ 8081"),
    ("เราตัดสินใจใช้ Postgres", "เราตัดสินใจใช้ SQLite แทน Postgres"),
    ("端口是8080。", "端口现在改成8081。"),
    ("我们决定用Postgres。", "我们决定用SQLite而不是Postgres。"),
]


def summarised(*said: str) -> dict[str, list[str]]:
    return extract_summary([user(text) for text in said], None)


def current(summary: dict[str, list[str]]) -> set[str]:
    return {item for name in LISTS if name != "superseded" for item in summary[name]}


@pytest.mark.parametrize(("old", "new"), CASES)
def test_what_was_said_to_be_otherwise_now_is_not_told_as_if_it_held(old: str, new: str) -> None:
    summary = summarised(old, "Something else was said about 12 hills.", new)
    assert summary["superseded"] == [f"{old}{ARROW}{new}"]
    assert old not in current(summary)
    assert new in current(summary)


@pytest.mark.parametrize(("old", "new"), CASES)
def test_what_an_earlier_summary_has_is_replaced_as_well(old: str, new: str) -> None:
    later = extract_summary([user(new)], summarised(old))
    assert old not in current(later)
    assert new in current(later)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The tank holds 385 kg.", "The barrel now holds 20 kg."),
        ("The ticket PG-12 is about the Postgres outage.", "We decided on SQLite instead of Postgres."),
        ("Over hill 5 it was calm.", "Over hill 6 it was calm."),
        ("The port is 8080.", "Is the port now 8081?"),
        ("The port is now 8081.", "The tea is now at 80 °C."),
    ],
)
def test_what_is_about_something_else_stays(one: str, other: str) -> None:
    summary = summarised(one, other)
    assert summary["superseded"] == []
    assert one in current(summary)


def test_of_three_values_the_last_one_holds() -> None:
    summary = summarised("The port is 8080.", "The port is now 8081.", "The port is now 8082.")
    assert summary["facts"] == ["The port is now 8082."]


def test_a_summary_of_a_model_is_corrected_too() -> None:
    theirs = {name: list[str]() for name in LISTS} | {"facts": ["Port: 8080", "The port is 8081.", "Tea is fine."]}
    corrected = retired(theirs, ["The port is 8080.", "The port is now 8081."])
    assert corrected["facts"] == ["The port is 8081.", "Tea is fine."]


def test_identifiers_of_what_is_past_are_not_listed_and_bare_numbers_do_not_crowd_out_the_others() -> None:
    entries: list[Entry] = [user("The ticket is QX7-4431-ZK."), user("The port is 8080."), user("It is now 8081.")]
    entries += [user(f"Hill {number} is calm.") for number in range(300, 400)]
    summary = {**summarised(), "facts": ["It is now 8081."], "superseded": ["The port is 8080."]}
    whole = completed(summary, texts=texts_of(entries), previous=None, generation=2)
    assert "8080" not in whole["identifiers"]
    assert "QX7-4431-ZK" in whole["identifiers"]


def test_what_could_be_guessed_gives_way_first_and_prohibitions_last() -> None:
    summary = {**summarised(), "facts": [f"Hill {n} is calm." for n in range(40)], "constraints": ["Never call him."]}
    summary["facts"].append("The tank holds 385 kg.")
    short = shortened(summary, 110, lambda text: len(text) // 4)
    assert short["facts"][-1] == "The tank holds 385 kg."
    assert len(short["facts"]) < 10
    assert short["constraints"] == ["Never call him."]
