"""Descriptions of APIs as people have them: JSON and YAML, well and badly written."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import pytest

import gateway.documents
from gateway.documents import MAX_NAME_BYTES, kept_name, list_documents, put_document, remove_document
from memory.errors import InvalidMemory

if TYPE_CHECKING:
    from pathlib import Path


def converted(name: str, content: bytes) -> str:
    return gateway.documents.converted(name, content, max_bytes=100_000)


def test_json_may_hold_tabs_and_pairs_of_surrogates() -> None:
    said = b'{\n\t"openapi": "3.1.0",\n\t"info": {"title": "Bees \\ud83d\\ude00", "version": "1"},\n\t"paths": {}\n}'
    assert converted("api.json", said) == "# Bees \N{GRINNING FACE} 1"


@pytest.mark.parametrize("content", [b"openapi: 3\npaths: {}\nsince: 2026-02-30\n", b"\xff\xfe\x00", b"{", b"[]", b""])
def test_what_is_no_description_is_refused_with_a_reason(content: bytes) -> None:
    with pytest.raises(InvalidMemory, match="document"):
        converted("api.yaml", content)


def nines(name: str, first: str, one: str) -> str:
    """Eleven values, each with nine of the one before it."""
    lines = [f"{name}0: &{name}0 {first}"]
    lines += [f"{name}{n}: &{name}{n} " + one % ", ".join([f"*{name}{n - 1}"] * 9) for n in range(1, 12)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "said",
    [nines("a", "lol", "[%s]") + "\ninfo: {title: *a11}", nines("m", "{x: 1}", "{<<: [%s]}"), "info: &i {title: *i}"],
)
def test_aliases_that_repeat_each_other_without_end_are_refused(said: str) -> None:
    with pytest.raises(InvalidMemory, match="aliases"):
        converted("api.yaml", f"{said}\nopenapi: 3.1.0\npaths: {{}}\n".encode())


def test_aliases_that_stay_small_are_kept() -> None:
    said = (
        b"x: &x {name: yard, in: query}\nopenapi: 3.1.0\npaths: {/a: {get: {summary: &s Bees, parameters: [*x, *x]}}}\n"
    )
    assert "- yard (query)" in converted("api.yaml", said)


@pytest.mark.parametrize("deep", ["[" * 50_000, '{"a":' * 50_000, "- " * 50_000])
@pytest.mark.parametrize("ending", ["json", "yaml"])
def test_what_is_nested_too_deep_is_refused(ending: str, deep: str) -> None:
    with pytest.raises(InvalidMemory, match="too deep"):
        converted(f"api.{ending}", deep.encode())


def test_half_a_character_is_refused() -> None:
    with pytest.raises(InvalidMemory, match="half a character"):
        converted("api.json", b'{"openapi": "3", "paths": {}, "info": {"title": "a\\ud800"}}')


def test_other_names_are_other_files(tmp_path: Path) -> None:
    names = ["a b.txt", "a-b.txt", "a_b.txt", "A b.txt", "a  b.txt", "นางพญา.txt", "นงพญ.txt"]
    for name in names:
        put_document(tmp_path, name, name)
    assert {name: (tmp_path / kept_name(name)).read_text("utf-8") for name in names} == {name: name for name in names}
    assert len(list_documents(tmp_path)) == len(names)


@pytest.mark.parametrize(
    "name", ["../a.txt", "/etc/passwd", ".a.txt", "..", "a\nb", "a\0", "\ud800", " ", "\\a", "ก" * 90]
)
def test_a_name_that_no_file_can_have_is_refused_in_words(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidMemory, match="name"):
        put_document(tmp_path, name, "x")
    assert list(tmp_path.iterdir()) == []


def test_the_longest_name_fits(tmp_path: Path) -> None:
    assert put_document(tmp_path, "x" * MAX_NAME_BYTES, "bees") == "x" * MAX_NAME_BYTES + ".md"
    assert [file.name for file in tmp_path.iterdir()] == ["x" * MAX_NAME_BYTES + ".md"]


def test_a_document_is_removed_by_the_name_it_was_given_with_or_is_kept_under(tmp_path: Path) -> None:
    for name in ("x.md", "x.md.md", "Kovářová.txt"):
        put_document(tmp_path, name, "bees")
    for name, left in (
        ("x.md.md", ["Kovářová.txt.md", "x.md.md.md"]),  # what a list shows goes before what was given
        ("x.md.md", ["Kovářová.txt.md"]),
        (unicodedata.normalize("NFD", "Kovářová.txt"), []),
    ):
        assert remove_document(tmp_path, name), name
        assert [known for known, _ in list_documents(tmp_path)] == left
    for name in ("x.md", "../x.md", ""):
        assert not remove_document(tmp_path, name)
