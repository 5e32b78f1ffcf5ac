"""Text of strangers as HTML."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.console.markdown import MAX_CHARACTERS, TAGS, to_html

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![x](https://elsewhere.example/pixel.png)",
    "[x](javascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    '<a href="#" onclick="alert(1)">x</a>',
    "<svg/onload=alert(1)>",
    "</div></main><style>*{display:none}</style>",
    '<iframe srcdoc="<script>alert(1)</script>">',
    "[x]( vbscript:alert(1))",
    '<https://a.example/"onmouseover=alert(1)>',
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_a_hostile_text_can_act_or_load(text: str) -> None:
    html = str(to_html(text))
    tags = {name.lower() for name in re.findall(r"<\s*([a-zA-Z0-9]+)", html)}
    assert tags <= TAGS
    inside = " ".join(re.findall(r"<[^>]*>", html)).lower()
    assert "javascript:" not in inside
    assert "data:" not in inside
    assert " on" not in inside


@given(st.text(max_size=300))
def test_any_text_becomes_tags_of_the_list_only(text: str) -> None:
    html = str(to_html(text))
    assert {name.lower() for name in re.findall(r"<\s*/?([a-zA-Z0-9]+)", html)} <= TAGS


def test_markdown_is_shown_as_meant() -> None:
    html = str(to_html("Hello **there**\n\n- one\n- two\n\n`code`"))
    assert "<strong>there</strong>" in html
    assert html.count("<li>") == 2
    assert "<code>code</code>" in html


def test_a_text_too_long_to_render_is_shown_as_it_is() -> None:
    assert str(to_html("**a** <" + "x" * MAX_CHARACTERS)).startswith("<pre>**a** &lt;")
