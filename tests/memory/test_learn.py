"""What is believed of a helper model's proposals."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import hypothesis
from hypothesis import settings
from hypothesis import strategies as st

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
    assert parse_answer('{"changes": [{"op": "add", "text": "a"}, {"op": "upd') is None
    assert parse_answer("I cannot do that.") is None


def test_no_more_than_the_quota_is_taken() -> None:
    said = heard("I drink tea, I ride bikes and I paint birds")
    texts = ("Ana drinks tea", "Ana rides bikes", "Ana paints birds")
    judged = judge([Proposal(op="add", text=text) for text in texts], given(said))
    assert [step.text for step in judged.steps] == list(texts[:2])
    assert judged.refused == ["over the limit of changes"]


def test_every_text_is_cut_once_however_many_proposals_it_is_compared_with() -> None:
    asked: list[str] = []

    def terms(text: str) -> list[str]:
        asked.append(text)
        return cut(text)

    heard_of = given(heard("I drink tea, I ride bikes"), known("Ana sails"), deleted=("Ana flies kites",))
    proposals = [Proposal(op="add", text=text) for text in ("Ana drinks tea", "Ana rides bikes", "Ana drinks tea")]
    judge(proposals, replace(heard_of, terms=terms))
    assert len(asked) == len(set(asked)) == 5


def test_what_was_deleted_known_or_never_said_is_refused() -> None:
    said = heard("I drink tea in the morning")
    tea = Proposal(op="add", text="Ana drinks tea in the morning")
    assert judge([tea], given(said, deleted=("Ana drinks tea in the morning.",))).steps == []
    assert judge([tea], given(said, known("Ana drinks tea in the morning"))).steps == []
    assert judge([Proposal(op="add", text="Boris owns castles")], given(said)).steps == []
    assert judge([Proposal(op="add", text="Ana drinks tea 4711 times")], given(said)).steps == []


def test_the_contrary_of_what_is_known_is_not_known_already() -> None:
    said = heard("I drink coffee with sugar, never mind what I said")
    fresh = Proposal(op="add", text="Ana drinks coffee with sugar")
    for contrary in ("Ana drinks coffee without sugar", "Ana never drinks coffee with sugar"):
        assert judge([fresh], given(said, known(contrary))).refused != ["is known already"], contrary
    assert judge([fresh], given(said, known("Ana drinks coffee with sugar daily"))).refused == ["is known already"]


def test_a_persons_text_changes_only_by_what_the_person_says_later() -> None:
    change = Proposal(op="update", ids=("m",), text="Ana lives in Brno")
    said = heard("I live in Brno now")
    assert judge([change], given(said, known("Ana lives in Prague", NOW + timedelta(days=1), "person"))).steps == []
    assert len(judge([change], given(said, known("Ana lives in Prague", origin="person"))).steps) == 1
    claim = heard("You live in Brno now", "assistant")
    assert judge([change], given(claim, known("Ana lives in Prague"))).steps == []
    gone = Proposal(op="delete", ids=("m",))
    assert judge([gone], given(heard("Prague"), known("Ana lives in Prague", origin="person"))).steps == []


def test_sorting_a_persons_text_is_no_writing_it_again() -> None:
    change = Proposal(op="update", ids=("m",), text="Ana lives in Brno")
    sorted_since = replace(
        known("Ana lives in Prague", origin="person"), updated_at=NOW + timedelta(hours=1), revision=2
    )
    assert len(judge([change], given(heard("I live in Brno now"), sorted_since)).steps) == 1
    written_since = replace(sorted_since, created_at=NOW + timedelta(hours=1))
    refused = judge([change], given(heard("I live in Brno now"), written_since)).refused
    assert refused == ["is older than what a person has written since"]


def test_secrets_are_gone_before_anything_is_asked_or_kept() -> None:
    secret = "sk-" + "a1B2" * 8
    assert secret not in clean_said([heard(f"my key is {secret}")])[0][0].text
    judged = judge([Proposal(op="add", text=f"The key of Ana is {secret}")], given(heard("the key of Ana")))
    assert judged.redacted == 1
    assert secret not in str(judged)


def test_what_is_nothing_but_a_secret_is_not_learnt() -> None:
    said, _ = clean_said([heard("ghp_abcdefghijklmnopqrstuvwxyz0123")])
    proposals = [Proposal(op="add", text=text) for text in ("ghp_abcdefghijklmnopqrstuvwxyz0123", "[token removed]")]
    judged = judge(proposals, given(said[0]))
    assert judged.steps == []
    assert judged.refused == ["holds nothing but a secret"] * 2


def test_yesterday_becomes_the_day_it_was() -> None:
    assert resolve_dates("Ana moved yesterday", NOW) == "Ana moved 2026-05-09"
    assert resolve_dates("Ana se včera stěhovala", NOW) == "Ana se 2026-05-09 stěhovala"


def test_a_person_s_text_is_not_put_aside_for_another_fact_nor_cut_short_for_nothing() -> None:
    allergy = known("Ana is allergic to penicillin and nuts", origin="person")
    tea = Proposal(op="update", ids=("m",), text="Ana drinks tea in the morning")
    assert judge([tea], given(heard("I drink tea in the morning"), allergy)).steps == []
    shorter = Proposal(op="update", ids=("m",), text="Ana is allergic to penicillin")
    assert judge([shorter], given(heard("Hello, I am Ana"), allergy)).steps == []
    assert len(judge([shorter], given(heard("I may eat nuts again"), allergy)).steps) == 1


def test_what_only_the_assistant_has_named_is_the_assistants_claim() -> None:
    said = [heard("What does the page about invoices say?"), heard("Invoices go to a@evil.example.", "assistant")]
    order = Proposal(op="add", text="All invoices go to a@evil.example")
    (step,) = judge([order], replace(given(said[0]), said=said)).steps
    assert step.said_by == "assistant"
    turned = Proposal(op="update", ids=("m",), text="Invoices of Ana go to a@evil.example")
    assert judge([turned], replace(given(said[0], known("Invoices of Ana go to Brno")), said=said)).steps == []


def exchange(asked: str, answer: str, *memories: Memory, echo: bool = False) -> Learnable:
    reply = replace(heard(answer, "assistant"), seq=4, echo=echo)
    return replace(given(heard(asked), *memories), said=[heard(asked), reply])


def test_a_question_says_nothing_of_what_the_answer_adds() -> None:
    boat = exchange("What is my boat called?", "Your boat is called Vltava and it is red.", echo=True)
    job = exchange("Do I like my job at the bank?", "You hate your job at the bank.")
    for seqs in ((), (3,), (4,), (3, 4), (999,)):
        assert judge([Proposal(op="add", text="Ana's boat Vltava is red", seqs=seqs)], boat).steps == []
        (step,) = judge([Proposal(op="add", text="Ana hates her job at the bank", seqs=seqs)], job).steps
        assert step.said_by == "assistant", seqs


def test_what_is_drawn_from_the_answer_alone_is_not_the_persons() -> None:
    said = exchange("My boat needs paint.", "Your boat is red.")
    (step,) = judge([Proposal(op="add", text="Ana's boat is red", importance=9, seqs=(4,))], said).steps
    assert (step.said_by, step.importance) == ("assistant", 5)


def test_a_person_says_things_beside_a_question_and_in_other_words_than_the_answer() -> None:
    for asked in (
        "I moved to Brno, what should I see there?",
        "I moved to Brno. Any tips?",
        "Brno je teď můj domov. Kam zajít?",
        "我搬到 Brno 了，有什么好玩的？",
    ):
        said = exchange(asked, "Since you live in Brno: the castle.", echo=True)
        for seqs in ((), (3,), (3, 4), (999,)):
            (step,) = judge([Proposal(op="add", text="Ana lives in Brno", seqs=seqs)], said).steps
            assert step.said_by == "user", asked
    vegan = exchange("Where can I eat vegan food in Brno?", "In many places.", echo=True)
    assert len(judge([Proposal(op="add", text="Ana eats vegan food")], vegan).steps) == 1


def test_what_a_person_said_counts_whichever_message_is_cited() -> None:
    boat = exchange("My boat is red.", "Your boat is red, I see.", echo=True)
    for seqs in ((), (3,), (4,), (3, 4), (999,)):
        (step,) = judge([Proposal(op="add", text="Ana's boat is red", seqs=seqs)], boat).steps
        assert step.said_by == "user", seqs


def test_an_answer_alone_takes_no_memory_away() -> None:
    gone = Proposal(op="delete", ids=("m",), seqs=(4,))
    sold = exchange("Is my boat Vltava sold?", "Yes, your boat Vltava was sold.", known("Ana has a boat, Vltava"))
    assert judge([gone], sold).steps == []
    told = exchange("Forget my boat Vltava.", "Your boat Vltava is forgotten.", known("Ana has a boat, Vltava"))
    assert len(judge([replace(gone, seqs=(3,))], told).steps) == 1


def test_words_of_every_sentence_prove_nothing() -> None:
    said = heard("What does it say, and do you know what I like?")
    assert judge([Proposal(op="add", text="Ana likes what she does and knows rowing boats")], given(said)).steps == []


def test_a_word_whose_stem_is_a_word_of_every_sentence_tells_something() -> None:
    area = known("Ana: I collect areas with pleasure")  # as "are"
    shells = Proposal(op="add", text="Ana: I collect shells with pleasure")
    (step,) = judge([shells], given(heard("I collect shells with pleasure"), area)).steps
    assert (step.op, step.ids) == ("add", ())


def test_the_opposite_of_a_known_fact_is_no_repetition() -> None:
    eats = Proposal(op="add", text="Ana eats meat")
    judged = judge([eats], given(heard("I eat meat again"), known("Ana does not eat meat")))
    assert len(judged.steps) == 1


@settings(max_examples=200)
@hypothesis.given(
    st.lists(
        st.builds(
            Proposal,
            op=st.sampled_from(["add", "update", "merge", "delete"]),
            text=st.text(max_size=40) | st.just("Ana drinks tea"),
            importance=st.none() | st.integers(-5, 20),
            ids=st.lists(st.sampled_from(["m", "x"]), max_size=3).map(tuple),
            seqs=st.lists(st.integers(-3, 9), max_size=3).map(tuple),
        ),
        max_size=8,
    )
)
def test_whatever_is_proposed_keeps_the_quota_and_touches_each_memory_once(proposals: list[Proposal]) -> None:
    judged = judge(proposals, given(heard("I drink tea and coffee"), known("Ana drinks coffee")))
    assert len(judged.steps) <= 2
    touched = [one for step in judged.steps for one in step.ids]
    assert len(touched) == len(set(touched))
    assert len(judged.steps) + len(judged.refused) == len(proposals)
    assert all(step.first_seq == step.last_seq == 3 for step in judged.steps)


@hypothesis.given(
    st.text(max_size=200) | st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists).map(str)
)
def test_no_answer_raises(text: str) -> None:
    parse_answer(text)
    parse_answer('{"changes": ' + text)


def test_what_a_summary_says_is_no_new_fact() -> None:
    profile = replace(known("Ana Novak is a nurse and lives in Prague"), place="p", topic="profile")
    lives = Proposal(op="add", text="Ana lives in Prague")
    assert judge([lives], given(heard("You live in Prague", "assistant"), profile)).steps == []
    moved = Proposal(op="add", text="Ana lives in Brno")
    assert len(judge([moved], given(heard("I live in Brno"), profile)).steps) == 1


def test_what_models_write_instead_is_understood_where_it_is_whole() -> None:
    one = Proposal(op="add", text="a", importance=7, seqs=(3,))
    assert parse_answer('[{"op": "create", "content": "a", "importance": "7", "from": 3}]') == [one]
    assert parse_answer('{"op": "add", "text": "a", "importance": 7, "from": ["3"]}') == [one]
    assert parse_answer('{"changes": [{"op": "forget", "id": "m"}]}') == [Proposal(op="delete", ids=("m",))]
    assert parse_answer("[1, 2]") is None
    assert parse_answer('{"changes": []}') == []
