"""What is believed of a helper model's proposals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from memory.dates import resolve_dates
from memory.judge import Learnable, judge
from memory.learn import Proposal, Said, clean_said, parse_answer
from memory.records import Memory, Source, user_pool
from memory.text import cut

NOW = datetime(2026, 5, 10, 12, tzinfo=UTC)


def heard(text: str, who: str = "user") -> Said:
    return Said(seq=3, who=who, text=text, at=NOW)  # pyright: ignore[reportArgumentType]


def known(text: str, at: datetime = NOW - timedelta(days=1), origin: str = "learning") -> Memory:
    source = Source(origin=origin)  # pyright: ignore[reportArgumentType]
    return Memory(
        id="m", pool=user_pool("ana"), text=text, valid_from=at, source=source, author="x", created_at=at, updated_at=at
    )


def given(said: Said, *memories: Memory, deleted: tuple[str, ...] = ()) -> Learnable:
    return Learnable(said=[said], known=memories, topics=[], deleted=deleted, terms=cut, most=2)


def test_prose_around_the_answer_is_left_out_and_broken_json_is_none() -> None:
    answer = 'Sure! ```{"changes": [{"op": "add", "text": "a"}, {"op": "fly"}, 3]}``` Anything else?'
    assert parse_answer(answer) == [Proposal(op="add", text="a")]
    assert parse_answer('{"changes": [{"op": "add"') is None
    assert parse_answer("I cannot do that.") is None


def test_no_more_than_the_quota_is_taken() -> None:
    said = heard("I drink tea, I ride bikes and I paint birds")
    texts = ("Ana drinks tea", "Ana rides bikes", "Ana paints birds")
    judged = judge([Proposal(op="add", text=text) for text in texts], given(said))
    assert [step.text for step in judged.steps] == list(texts[:2])
    assert judged.refused == ["over the limit of changes"]


def test_what_was_deleted_known_or_never_said_is_refused() -> None:
    said = heard("I drink tea in the morning")
    tea = Proposal(op="add", text="Ana drinks tea in the morning")
    assert judge([tea], given(said, deleted=("Ana drinks tea in the morning.",))).steps == []
    assert judge([tea], given(said, known("Ana drinks tea in the morning"))).steps == []
    assert judge([Proposal(op="add", text="Boris owns castles")], given(said)).steps == []
    assert judge([Proposal(op="add", text="Ana drinks tea 4711 times")], given(said)).steps == []


def test_a_persons_text_changes_only_by_what_the_person_says_later() -> None:
    change = Proposal(op="update", ids=("m",), text="Ana lives in Brno")
    said = heard("I live in Brno now")
    assert judge([change], given(said, known("Ana lives in Prague", NOW + timedelta(days=1), "person"))).steps == []
    assert len(judge([change], given(said, known("Ana lives in Prague", origin="person"))).steps) == 1
    claim = heard("You live in Brno now", "assistant")
    assert judge([change], given(claim, known("Ana lives in Prague"))).steps == []
    gone = Proposal(op="delete", ids=("m",))
    assert judge([gone], given(heard("Prague"), known("Ana lives in Prague", origin="person"))).steps == []


def test_secrets_are_gone_before_anything_is_asked_or_kept() -> None:
    secret = "sk-" + "a1B2" * 8
    assert secret not in clean_said([heard(f"my key is {secret}")])[0][0].text
    judged = judge([Proposal(op="add", text=f"The key of Ana is {secret}")], given(heard("the key of Ana")))
    assert judged.redacted == 1
    assert secret not in str(judged)


def test_yesterday_becomes_the_day_it_was() -> None:
    assert resolve_dates("Ana moved yesterday", NOW) == "Ana moved 2026-05-09"
    assert resolve_dates("Ana se včera stěhovala", NOW) == "Ana se 2026-05-09 stěhovala"
