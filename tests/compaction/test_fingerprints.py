from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from compaction.fingerprints import (
    Chain,
    Fingerprint,
    Mark,
    Outline,
    bytes_of,
    first_byte,
    mark_of,
    outline_of,
    shared_prefix,
    text_of_tools,
)
from compaction.layout import Prompt, ToolSpec, build_prompt
from sessions.context import AssistantMessage, Message, ToolMessage, UserMessage

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x1f"), max_size=8)
messages = st.one_of(
    st.builds(UserMessage, text=texts, tokens=st.integers(0, 9)),
    st.builds(AssistantMessage, text=texts, tokens=st.integers(0, 9)),
    st.builds(ToolMessage, call_id=texts, name=texts, text=texts, is_error=st.booleans()),
)
histories = st.lists(messages, max_size=12)


def chain_of(history: list[Message]) -> Chain:
    chain = Chain()
    chain.add(history)
    return chain


def print_of(prompt: Prompt) -> Fingerprint:
    return Fingerprint(
        tools=mark_of(text_of_tools(prompt.tools), 7),
        system=mark_of(prompt.system, 5),
        summary=mark_of(prompt.summary, 3),
        history=chain_of(list(prompt.messages)),
        trailing=mark_of(prompt.trailing, 2),
    )


@given(histories, histories)
def test_what_two_chains_have_in_common_is_found_by_halving(one: list[Message], other: list[Message]) -> None:
    limit = min(len(one), len(other))
    common = next((n for n in range(limit) if bytes_of(one[n]) != bytes_of(other[n])), limit)
    sizes = next((n for n in range(common) if one[n].tokens != other[n].tokens), common)
    assert chain_of(one).in_common(chain_of(other)) == sizes


@given(histories, histories, st.integers(0, 12))
def test_a_history_that_only_grew_is_shared_whole_and_any_other_is_not(
    history: list[Message], more: list[Message], kept: int
) -> None:
    earlier = build_prompt(system="s", messages=history, trailing="12:00")
    grown = print_of(build_prompt(system="s", messages=[*history, *more], trailing="12:01"))
    shared = shared_prefix(outline_of(print_of(earlier)), grown)
    assert (shared.section, shared.messages) == (None, len(history))
    assert shared.tokens == 5 + chain_of(history).mark(len(history)).tokens
    shorter = history[:kept]
    cut = print_of(build_prompt(system="s", messages=shorter))
    known = print_of(earlier)
    shared = shared_prefix(outline_of(known), cut, known.history)
    assert shared.section == (None if len(shorter) == len(history) else "history")
    assert shared.messages == len(shorter)


@given(st.lists(messages, min_size=1, max_size=8), st.data())
def test_the_first_differing_byte_is_where_the_texts_differ(history: list[Message], data: st.DataObject) -> None:
    where = data.draw(st.integers(0, len(history) - 1))
    changed = dataclasses.replace(history[where], text=f"{history[where].text}!")
    other = [*history[:where], changed, *history[where + 1 :]]
    earlier, later = build_prompt(system="s", messages=history), build_prompt(system="s", messages=other)
    known, print_ = print_of(earlier), print_of(later)
    shared = shared_prefix(outline_of(known), print_, known.history)
    assert (shared.section, shared.messages) == ("history", where)
    one, two = (b"".join(map(bytes_of, p.messages)) for p in (earlier, later))
    byte = first_byte(earlier, later, shared, print_.history)
    assert one[:byte] == two[:byte]
    assert one[byte : byte + 1] != two[byte : byte + 1]


def test_each_section_before_the_history_breaks_it_where_it_differs() -> None:
    tool = ToolSpec(name="time", description="tells it")
    base = build_prompt(system="be kind", messages=[UserMessage(text="hi")], tools=[tool], summary="earlier")
    told = ToolSpec(name="time", description="tells IT")
    changes = {
        "tools": (dataclasses.replace(base, tools=(told,)), len(b"time tells ")),
        "system": (dataclasses.replace(base, system="be quick"), 3),
        "summary": (dataclasses.replace(base, summary="earlier on"), 7),
    }
    for section, (later, byte) in changes.items():
        shared = shared_prefix(outline_of(print_of(base)), print_of(later))
        assert shared.section == section
        assert first_byte(base, later, shared, print_of(later).history) == byte


def test_tools_are_sorted_and_what_changes_goes_last_or_under_memories_first_into_the_system_text() -> None:
    tools = [ToolSpec(name=name, description="") for name in "cab"]
    last = build_prompt(system="s", messages=(), tools=tools, trailing="a")
    assert ([tool.name for tool in last.tools], last.system, last.trailing) == (["a", "b", "c"], "s", "a")
    first = build_prompt(system="s", messages=(), tools=tools[::-1], trailing="a", layout="memories_first")
    assert (first.tools, first.system, first.trailing) == (last.tools, "s\n\na", None)


@given(histories)
def test_an_outline_survives_json(history: list[Message]) -> None:
    outline = outline_of(print_of(build_prompt(system="s", messages=history)))
    assert Outline.from_json(outline.to_json()) == outline
    assert mark_of(None, 3) == mark_of("", 3) == Mark()
