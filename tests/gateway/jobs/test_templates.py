from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.jobs.hooks import render_envelope
from gateway.jobs.templates import BadTemplate, check_template, example_body, render


def test_values_are_found_by_name_also_where_python_has_a_method_of_that_name() -> None:
    body = {"id": 42, "items": 3, "build": {"name": "a"}}
    assert render("{{ body.id }} {{ body.items }} {{ body['build'].name }}", {"body": body}) == "42 3 a"


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("one\n{{ body.missing }}", "line 2"),
        ("{{ body.id.deeper }}", "line 1"),
        ("{{ body.list[5] }}", "line 1"),
        ("a\nb\n{{ 1 / 0 }}", "line 3"),
        ("{{ body.list + 1 }}", "line 1"),
        ("{{ nobody }}", "line 1"),
    ],
)
def test_what_does_not_fit_the_payload_is_named_with_its_line(source: str, place: str) -> None:
    with pytest.raises(BadTemplate) as error:
        render(source, {"body": {"id": 1, "list": []}})
    assert error.value.place == place


@pytest.mark.parametrize(
    "source", ["{{ body.id", "{% for %}", "{% include 'x' %}{{", "{{ body | nofilter }}", "{" * 20_001]
)
def test_a_template_that_cannot_be_read_is_refused_beforehand(source: str) -> None:
    with pytest.raises(BadTemplate):
        check_template(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ body.__init__.__globals__ }}",
        "{{ 'x' * 10000000000 }}",
        "{{ 10 ** 10 ** 10 }}",
        "{{ '%1000000000d' % 3 }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ 'x'.ljust(1000000000) }}",
        "{{ 'x'.zfill(1000000000) }}",
        "{% for i in range(10000000000) %}x{% endfor %}",
        "{% for i in range(90000) %}{% for j in range(90000) %}{{ j }}{% endfor %}{% endfor %}",
        "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
        "{% set r = range(90000) | list %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
        "{% set r = range(90000) | list %}{% for i in r %}{% for j in r if false %}{% endfor %}{% endfor %}",
        "{% set n = namespace(x='xx') %}{% for i in [1] * 90 %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x='xx') %}{% for i in range(90) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{{ lipsum(n=100000000) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% include '/etc/passwd' %}",
        "{% set x = body.update({'a': 1}) %}",
    ],
)
def test_no_template_gets_out_of_the_sandbox_or_takes_time_and_room_without_end(source: str) -> None:
    with pytest.raises(BadTemplate):
        render(source, {"body": {"id": 1}})


def test_values_are_not_templates_themselves() -> None:
    assert render("{{ body.text }}", {"body": {"text": "{{ 7 * 7 }}"}}) == "{{ 7 * 7 }}"


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_any_payload_is_rendered_or_refused(body: Any) -> None:
    assert render("{{ body | tojson }}", {"body": body})
    with contextlib.suppress(BadTemplate):
        render("{{ body.id }} {{ body.name.first }}", {"body": body})


def test_the_example_payload_fits_the_template() -> None:
    source = "{{ body.build.id }} {{ body['x'] }} {% if body.build.name %}{{ body.build.name | upper }}{% endif %}"
    assert example_body(source) == {"build": {"id": "example", "name": "example"}, "x": "example"}
    assert render(source, {"body": example_body(source)}) == "example example EXAMPLE"


@given(st.text())
def test_no_payload_closes_its_envelope(text: str) -> None:
    mark = "01M8QZGWTX4YWP9VTBXTC6ACJ8"
    shown = render_envelope("build", "Say who broke it.", text, mark)
    assert shown.startswith(f"<webhook-data {mark}>\n{text}\n</webhook-data {mark}>\n")
    assert shown.count(mark) == 2
    assert shown.endswith("\nSay who broke it.")
