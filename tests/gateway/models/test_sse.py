from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.models.sse import MAX_EVENT_BYTES, EventParser, EventTooLong

line = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1, max_size=30)


def events_of(chunks: list[bytes]) -> list[tuple[str, bytes]]:
    parser = EventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)] + parser.end()


@given(st.lists(st.tuples(st.sampled_from(["", "delta"]), line), max_size=10), st.data())
def test_events_are_the_same_wherever_the_bytes_are_cut(sent: list[tuple[str, str]], data: st.DataObject) -> None:
    newline = data.draw(st.sampled_from(["\n", "\r\n"]))
    whole = "".join(
        (f"event: {name}{newline}" if name else ": ping" + newline) + f"data: {text}{newline}{newline}"
        for name, text in sent
    ).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=20)))
    chunks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert events_of(chunks) == [(name, text.encode()) for name, text in sent]


def test_data_over_several_lines_is_one_event() -> None:
    assert events_of([b'data: {"a":\ndata: 1}\n\n']) == [("", b'{"a":\n1}')]


def test_a_last_event_without_its_blank_line_counts_if_its_line_is_whole() -> None:
    assert events_of([b"data: 1\n\ndata: 2\n"]) == [("", b"1"), ("", b"2")]
    assert events_of([b"data: 1\n\ndata: 2"]) == [("", b"1")]


@pytest.mark.parametrize("body", [b'{"choices": []}', b'{\n  "choices": []\n}\n', b"<html>\n</html>"])
def test_what_came_instead_of_events_is_kept_whole(body: bytes) -> None:
    parser = EventParser()
    for n in range(len(body)):
        assert parser.feed(body[n : n + 1]) == []
    assert parser.foreign() == body.strip()


def test_a_line_without_an_end_is_refused() -> None:
    with pytest.raises(EventTooLong):
        events_of([b"x" * 65536] * (MAX_EVENT_BYTES // 65536 + 2))
